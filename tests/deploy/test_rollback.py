"""The way back from a poisoned round: server and sites go back, and a site is excluded and included."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy import status
from idiolect.deploy.checkpoint_history import rounds_kept
from idiolect.deploy.configuration import Deployment, read_deployment
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.keys import private_key
from idiolect.deploy.private_store import MERGED, Position
from idiolect.deploy.progress import PROGRESS_FILE, read_progress
from idiolect.deploy.rollback import exclude_site, include_site, roll_back
from idiolect.deploy.server import run_server
from idiolect.deploy.server_memory import MEMORY
from idiolect.deploy.signed_messages import SignedMessage, load, sign
from idiolect.errors import UserError

from .conftest import PERSFL, Deploy
from .fake_grid import FakeGrid
from .played import assert_close, assert_parity, grid_of, play, server_of
from .test_life import Killed, kill_in_round

pytestmark = pytest.mark.usefixtures("without_pauses")

TWO = DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=2)
POISONED = 3  # the round, from 0, in which site-2 uploads what is within the bounds and useless


def quiet(sentence: str) -> None:
    """Takes what a command would print."""


def poisoner(deployment: Deployment) -> FakeGrid:
    """A grid in which site-2 uploads numbers a hundred thousand times too large in one round."""
    grid = FakeGrid(grid_of(deployment).sites)
    key = private_key(deployment.site_folder(deployment.sites[2]) / "key")

    def change(answer: SignedMessage) -> SignedMessage:
        header, request = json.loads(answer.header), json.loads(grid.log[-1].header)
        if header["site"] != "site-2" or request.get("round") != POISONED or request["kind"] != "train":
            return answer
        tensors = load(answer.body)
        poisoned = {name: one if name.endswith("/1") else one * 1e5 for name, one in tensors.items()}
        return sign(header, poisoned, key)

    grid.change = change
    return grid


def train_to(deployment: Deployment, grid: FakeGrid, round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        kill_in_round(patch, round, "advance")
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)


@pytest.mark.parametrize(("method", "to"), [("map", 3), (PERSFL, 0), (PERSFL, 2)])
def test_run_that_went_back_ends_like_one_without_the_poison(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, method: str, to: int
) -> None:
    deployment = deploy(TWO, method=method, rounds=6)
    grid = poisoner(deployment)
    train_to(deployment, grid, 5, monkeypatch)
    assert float(max(tensor.abs().max() for tensor in server_of(deployment, done=False).values())) > 1e3
    roll_back(deployment, to, quiet)
    stands = read_progress(deployment.server)
    assert stands is not None and stands["round"] == to and f"went back to round {to}" in stands["message"]
    grid.change = lambda message: message
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert not [event for event in found["events"] if "goes on from" in event or "refused" in event]
    assert_parity(deployment)


def test_sites_go_back_also_where_the_memory_of_it_was_damaged(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(TWO, method="map", rounds=6)
    grid = poisoner(deployment)
    train_to(deployment, grid, 5, monkeypatch)
    roll_back(deployment, 0, quiet)  # where nothing but the era tells sites to start afresh
    (deployment.server / MEMORY).write_text("{")
    grid.change = lambda message: message
    found = play(deployment, grid)
    assert any("starts are counted anew" in event for event in found["events"])
    assert not [event for event in found["events"] if "goes on from" in event or "refused" in event]
    assert_parity(deployment)


def test_finished_run_goes_back_too(deploy: Deploy) -> None:
    deployment = deploy(TWO, rounds=4)
    grid = poisoner(deployment)
    assert play(deployment, grid)["status"] == "finished"
    said: list[str] = []
    roll_back(deployment, POISONED, said.append)
    assert "is no longer finished" in said[0]
    grid.change = lambda message: message
    assert play(deployment, grid)["status"] == "finished"
    assert_parity(deployment)


def test_site_that_cannot_go_back_is_named_and_the_others_train(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(TWO, rounds=6)
    grid = poisoner(deployment)
    train_to(deployment, grid, 5, monkeypatch)
    store = grid.sites[101].store
    for version in store.versions()[:-1]:
        (store.folder / f"state-{version.round}-{version.step}.safetensors").unlink()
    roll_back(deployment, 3, quiet)
    grid.change = lambda message: message
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any("site-1 refused: the private state of round 3 is not in" in event for event in found["events"])


def test_server_and_sites_keep_as_many_rounds_as_they_are_told(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(
        DeploymentOptions(plain=True, wait=0.3, min_sites=2, checkpoints=3),
        method=PERSFL,
        rounds=8,
        evaluate_every=8,
    )
    grid = grid_of(deployment)
    train_to(deployment, grid, 7, monkeypatch)
    assert rounds_kept(deployment.server) == [5, 6, 7]
    held = grid.sites[100].store.versions()
    assert {Position(4, MERGED), Position(5, MERGED), Position(6, MERGED)} <= set(held)
    assert min(held) == Position(
        2, MERGED
    )  # where a site starts that misses the next round and goes back to round 4
    with pytest.raises(
        UserError, match=r"--to must be a round whose checkpoint is kept, which are 0, 5, 6, 7; got 4"
    ):
        roll_back(deployment, 4, quiet)


def test_rollback_needs_a_run_that_stands_still(deploy: Deploy) -> None:
    deployment = deploy(TWO)
    with pytest.raises(UserError, match=r"nothing has been trained in .* yet"):
        roll_back(deployment, 0, quiet)
    grid = grid_of(deployment)
    refusals: list[str] = []

    def change(answer: SignedMessage) -> SignedMessage:
        try:
            roll_back(deployment, 0, quiet)
        except UserError as error:
            refusals.append(str(error))
        return answer

    grid.change = change
    assert play(deployment, grid)["status"] == "finished"
    assert refusals and all("the run is on its way" in sentence for sentence in refusals)


def test_rollback_is_refused_from_the_moment_in_which_a_run_is_asked_for(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(TWO, rounds=1)
    play(deployment)
    refusals: list[str] = []

    def take(*words: object) -> Any:
        with pytest.raises(UserError) as refused:
            roll_back(deployment, 0, quiet)
        refusals.append(str(refused.value))
        return SimpleNamespace(returncode=len(refusals) - 1)

    monkeypatch.setattr(status, "is_served", lambda deployment: True)
    monkeypatch.setattr(status, "refuse_silent_server", lambda deployment: None)
    monkeypatch.setattr(status, "use_flower", take)
    assert status.start_run(deployment)
    assert status.status(deployment)["status"] == "starting"
    assert not status.start_run(deployment), "the same run was asked for twice"
    (deployment.server / PROGRESS_FILE).unlink()
    with pytest.raises(UserError, match="did not take the run"):
        status.start_run(deployment)
    assert len(refusals) == 2 and all("the run is on its way" in sentence for sentence in refusals)
    roll_back(deployment, 0, quiet)


def test_excluded_site_is_asked_nothing_and_comes_back_when_it_is_included(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, alone = deploy(TWO, rounds=4), deploy(TWO, rounds=4)
    exclude_site(deployment, "site-2")
    without = grid_of(alone)
    without.away = {102}
    train_to(alone, without, 2, monkeypatch)
    grid = grid_of(deployment)
    train_to(deployment, grid, 2, monkeypatch)
    asked = [json.loads(message.header) for message in grid.log]
    assert {header["kind"] for header in asked if header.get("site") == "site-2" and "kind" in header} <= {
        "hello"
    }
    assert_close(server_of(deployment, done=False), server_of(alone, done=False))
    include_site(read_deployment(deployment.folder), "site-2")
    found = play(deployment, grid)
    assert any("site-2 takes part for the first time" in event for event in found["events"])
    assert found["sites"]["site-2"]["round"] == 4


def test_site_is_excluded_while_the_run_is_on_its_way(deploy: Deploy) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)

    def change(answer: SignedMessage) -> SignedMessage:
        if json.loads(grid.log[-1].header).get("round") == 1:
            exclude_site(read_deployment(deployment.folder), "site-2")
        return answer

    grid.change = change
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any(event == "round 3: site-2 is excluded" for event in found["events"])
    assert found["sites"]["site-2"]["round"] == 2


def test_a_round_whose_sites_are_all_excluded_changes_nothing(deploy: Deploy) -> None:
    options = DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=1)
    deployment = deploy(options, participation_rate=0.34, rounds=6)
    exclude_site(exclude_site(deployment, "site-2"), "site-1")
    found = play(deployment)
    assert found["status"] == "finished"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in server_of(deployment).values())


def test_exclusion_is_refused_where_too_few_would_be_left(deploy: Deploy) -> None:
    deployment: Any = deploy(TWO)
    with pytest.raises(UserError, match=r"there is no site site-9 in .*; known: site-0, site-1, site-2"):
        exclude_site(deployment, "site-9")
    smaller = exclude_site(deployment, "site-0")
    assert read_deployment(deployment.folder).excluded == ("site-0",)
    with pytest.raises(
        UserError, match="without site-1 only 1 of the sites can train, and min_sites asks for 2"
    ):
        exclude_site(smaller, "site-1")
