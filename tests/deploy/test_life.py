"""The life of a site and of the server, in one process: late, away, back, lost, damaged, killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import read_plan
from idiolect.deploy.create_deployment import DeploymentOptions, add_site
from idiolect.deploy.deployed_sites import DeployedSites
from idiolect.deploy.progress import PROGRESS_FILE, DeploymentProgress, read_progress
from idiolect.deploy.server import run_server
from idiolect.deploy.site import Site
from idiolect.deploy.status import is_running, status
from idiolect.deploy.tensor_names import flatten
from idiolect.errors import UserError
from idiolect.experiments.rounds.round import FederatedRun
from idiolect.records import find_checkpoint

from .conftest import PERSFL, Deploy
from .fake_grid import FakeGrid
from .played import assert_close, assert_parity, folder_of, grid_of, play, server_of, simulated

TWO = DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=2)


class Killed(BaseException):
    """The server's process is gone."""


def kill_in_round(monkeypatch: pytest.MonkeyPatch, round: int, step: str) -> None:
    """The server is lost in this round before ``step`` of it."""
    owner: type = FederatedRun if hasattr(FederatedRun, step) else DeployedSites
    whole = getattr(owner, step)

    def killed(self: Any, *arguments: Any, **options: Any) -> Any:
        sites = self.participants if owner is FederatedRun else self
        if sites.progress.round == round:
            raise Killed
        return whole(self, *arguments, **options)

    monkeypatch.setattr(owner, step, killed)


@pytest.mark.parametrize(
    ("method", "step"),
    [("map", "_uploads"), ("map", "_record_round"), (PERSFL, "follow_up"), (PERSFL, "_record_round")],
)
def test_server_killed_anywhere_goes_on_after_the_last_complete_round(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, method: str, step: str
) -> None:
    deployment = deploy(method=method)
    grid = grid_of(deployment)
    with monkeypatch.context() as patch:
        kill_in_round(patch, 1, step)
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)
    found = find_checkpoint(folder_of(deployment, done=False))
    assert found is not None and found[0] == 1
    assert play(deployment, grid)["status"] == "finished"
    assert_parity(deployment)


def test_damaged_checkpoint_costs_a_round_and_changes_nothing(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy()
    grid = grid_of(deployment)
    with monkeypatch.context() as patch:
        kill_in_round(patch, 2, "advance")
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)
    newest = folder_of(deployment, done=False) / "checkpoint-2.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8] + b"\0" * 8)
    found = play(deployment, grid)
    assert any("damaged" in event for event in found["events"])
    assert_parity(deployment)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has a node be away in some rounds."""

    def arrange(grid: FakeGrid, node: int, *rounds: int) -> None:
        whole = FederatedRun.advance

        def advance(self: FederatedRun[DeployedSites]) -> None:
            grid.away = {node} if self.round in rounds else set()
            whole(self)

        monkeypatch.setattr(FederatedRun, "advance", advance)
        monkeypatch.setattr("idiolect.deploy.site_requests.NODES_SECONDS", 0.0)

    return arrange


def test_site_that_was_away_comes_back_to_its_own_state(deploy: Deploy, away: Callable[..., None]) -> None:
    deployment = deploy(TWO, rounds=5, evaluate_every=5)
    grid = grid_of(deployment)
    away(grid, 102, 1, 2)
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any("site-2 is back after 2 rounds without it" in event for event in found["events"])
    assert grid.sites[102].store.versions()[-1].round == 4
    assert found["sites"]["site-2"]["round"] == 5


def test_site_that_is_lost_for_good_does_not_stop_the_others(deploy: Deploy) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)
    grid.away = {101}
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any("site-1 left out: is not connected" in event for event in found["events"])


def test_too_few_sites_stop_the_run_with_a_sentence_and_it_goes_on_later(deploy: Deploy) -> None:
    deployment = deploy(replace(TWO, deadline=1.0))
    grid = grid_of(deployment)
    grid.away = {101, 102}
    found = play(deployment, grid)
    assert found["status"] == "stopped"
    assert "round 1 needs 2 sites and 1 answered" in found["message"]
    grid.away = set()
    assert play(deployment, grid)["status"] == "finished"
    assert_parity(deployment)


def test_site_that_comes_late_starts_from_its_own_first_state(
    deploy: Deploy, away: Callable[..., None]
) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)
    away(grid, 101, 0)
    found = play(deployment, grid)
    assert any("site-1 takes part for the first time" in event for event in found["events"])
    assert grid.sites[101].store.versions()[-1].round == 2


def test_site_added_later_joins_by_the_methods_rule(deploy: Deploy) -> None:
    deployment = deploy()
    play(deployment)
    before = server_of(deployment)
    larger = add_site(deployment, read_plan(deployment.server), "late")
    member = larger.sites[-1]
    source = larger.site_folder(larger.sites[0]) / "data" / "data.npz"
    shutil.copyfile(source, larger.site_folder(member) / "data" / "data.npz")
    found = play(larger, grid_of(larger))
    assert found["status"] == "finished"
    assert any("late has joined" in event for event in found["events"])
    assert grid_of(larger).sites[103].store.newest() is not None
    assert_close(server_of(larger), before)


def test_damaged_store_is_refused_at_the_start_and_goes_on_from_the_backup(deploy: Deploy) -> None:
    deployment = deploy(TWO)
    play(deployment)
    folder = deployment.site_folder(deployment.sites[0])
    store = Site.open(folder).store
    path = next(iter(sorted(store.folder.glob("state-2-*"))))
    path.write_bytes(path.read_bytes()[:-4] + b"\7\7\7\7")
    with pytest.raises(UserError, match=r"private state is damaged.*the backup of round 2 is sound"):
        Site.open(folder)
    store.step_back()
    assert Site.open(folder).store.newest() == store.versions()[-1]


def test_lost_store_is_refused_and_not_replaced_in_silence(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(TWO)
    with monkeypatch.context() as patch:
        kill_in_round(patch, 1, "advance")
        with pytest.raises(Killed):
            run_server(grid_of(deployment), deployment.folder)
    shutil.rmtree(deployment.site_folder(deployment.sites[0]) / "private")
    found = play(deployment, grid_of(deployment))
    assert found["status"] == "finished"
    assert any("site-0 refused: the private state of round 1 is not in" in event for event in found["events"])


def test_restored_backup_is_reported(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deploy(TWO, rounds=4)
    with monkeypatch.context() as patch:
        kill_in_round(patch, 3, "advance")
        with pytest.raises(Killed):
            run_server(grid_of(deployment), deployment.folder)
    Site.open(deployment.site_folder(deployment.sites[0])).store.step_back()
    found = play(deployment, grid_of(deployment))
    assert any("site-0 goes on from round 2, where the server knew round 3" in e for e in found["events"])


def test_site_that_starts_again_is_asked_again(deploy: Deploy) -> None:
    """A message taken by a process that is gone goes out again to the one that comes after it."""
    deployment = deploy(method="map")
    grid = Forgetful(grid_of(deployment).sites)
    found = play(deployment, grid)
    assert any("site-1 asked again" in event for event in found["events"])
    assert_parity(deployment)


class Forgetful(FakeGrid):
    """The second message for round 2 is answered into the void, and the site starts again."""

    lost: bool = False

    def push_messages(self, messages: Any) -> list[str]:
        messages = list(messages)
        identities = super().push_messages(messages)
        header = json.loads(messages[0].content["envelope"]["header"])
        if header.get("round") == 1 and header["site"] == "site-1" and not self.lost:
            self.lost = True
            self.replies.pop(identities[0])
            self.since[101] = "1"
        return identities


def test_progress_names_every_site(deploy: Deploy) -> None:
    deployment = deploy()
    play(deployment)
    found = read_progress(deployment.server)
    assert found is not None
    assert set(found["sites"]) == {"site-0", "site-1", "site-2"}
    assert all({"round", "loss", "accuracy", "digest"} <= site.keys() for site in found["sites"].values())
    assert (
        flatten(simulated(read_plan(deployment.server).experiment).server).keys()
        == server_of(deployment).keys()
    )


@pytest.mark.parametrize(
    "damaged",
    [
        '["x"]',
        '{"sites": []}',
        '{"sites": {"site-0": 3}}',
        '{"sites": {"site-0": {"loss": "a"}}}',
        '{"events": [1]}',
        '{"status": "running", "pid": "x"}',
        '{"status": []}',
        f'{{"sites": {{"site-0": {{"loss": {10**400}}}}}}}',
        "[" * 100_000,
    ],
)
def test_damaged_progress_is_none(deploy: Deploy, damaged: str) -> None:
    deployment = deploy()
    (deployment.server / PROGRESS_FILE).write_text(damaged)
    assert status(deployment)["status"] == "not started"
    assert not is_running(deployment)


def test_another_process_with_the_number_of_the_server_is_not_taken_for_it(deploy: Deploy) -> None:
    deployment = deploy()
    DeploymentProgress(deployment.server, 3).save()
    assert is_running(deployment)
    path = deployment.server / PROGRESS_FILE
    earlier = {**json.loads(path.read_text()), "began": "7 ticks after another boot"}
    path.write_text(json.dumps(earlier))
    assert not is_running(deployment)
    assert status(deployment)["status"] == "interrupted"
