"""Differential privacy at sites: bounds and noise are those of a simulation, but nobody can draw the noise again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")
pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")

import dp_accounting as accounting
from dp_accounting import rdp

from idiolect.core.noise import SecureNoise, SeededNoise
from idiolect.deploy.configuration import read_plan, write_site
from idiolect.deploy.rollback import roll_back
from idiolect.deploy.server import privacy_notice, server_setting
from idiolect.deploy.site import Site
from idiolect.deploy.spent_budget import spent_by_sites
from idiolect.deploy.tensor_names import flatten
from idiolect.engines import Workload
from idiolect.errors import UserError
from idiolect.records import read_run
from idiolect.reports import write_page

from .conftest import PERSFL, Deploy
from .played import assert_close, assert_parity, folder_of, grid_of, play, server_of, simulated
from .server_requests import Server

METHODS = ("fedavg", "fedper", "map", "ditto", PERSFL)
BOUND = "client_dp(clip=0.05, noise=0)"
NOISY = ("client_dp(clip=0.5, noise=2)", "client_dp(clip=0.5, noise=2, where=local)", "dp_sgd(noise=2)")
TOLD = {"base", "base_digest", "digest", "experiment", "scores", "serial", "site", "spent"}
SLOW = pytest.mark.slow

pytestmark = pytest.mark.usefixtures("without_pauses")


def products(quick: str, parts: tuple[str, ...]) -> list[Any]:
    names = [f"{method} + {part}" for method in METHODS for part in parts]
    return [name if name.startswith(quick) else pytest.param(name, marks=SLOW) for name in names]


def gaussian(noise: float, count: int, delta: float = 1e-5) -> float:
    """The accountant's own answer for uploads of which one client's are replaced."""
    accountant = rdp.RdpAccountant(neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(noise), count))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("method", products("fedper", (BOUND,)))
def test_uploads_are_bounded_as_in_a_simulation(deploy: Deploy, method: str) -> None:
    deployment = deploy(method=method, participation_rate=0.67)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)
    plain = simulated(replace(read_plan(deployment.server).experiment, method=method.partition(" + ")[0]))
    weights = [name for name in server_of(deployment) if name.endswith("weight")]
    assert any(not torch.equal(server_of(deployment)[n], flatten(plain.server)[n]) for n in weights)


@pytest.mark.parametrize("method", products("fedper", NOISY))
def test_with_noise_of_the_seed_sites_train_as_clients_of_a_simulation(
    deploy: Deploy, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workload, "noise", property(lambda work: SeededNoise(work.seed)))
    deployment = deploy(method=method, participation_rate=0.67)
    assert play(deployment)["status"] == "finished"
    assert_close(server_of(deployment), flatten(simulated(read_plan(deployment.server).experiment).server))


@pytest.mark.parametrize("part", NOISY)
def test_noise_is_the_operating_systems_and_numbers_stay_at_sites(
    deploy: Deploy, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: drawn.append(count) or real(count))
    monkeypatch.delattr(SeededNoise, "normal")  # whoever asks for it fails
    deployment = deploy(method=f"fedper + {part}", newcomers=1)
    grid = grid_of(deployment)
    found = play(deployment, grid)
    assert found["status"] == "finished", found["message"]
    shared = sum(leaf.numel() for name, leaf in server_of(deployment).items() if "/params/" in name)
    # for each shared number and round at least one normal number, of four draws of two uniform ones of eight bytes
    assert shared and sum(drawn) >= 3 * 4 * 2 * 8 * shared
    answers = [json.loads(message.header) for message in grid.log]
    trained = [answer for answer in answers if "spent" in answer]
    assert len(trained) == 3 * 2
    assert all(answer.keys() == TOLD and answer["scores"] == {} for answer in trained)
    assert not any(answer.keys() & {"loss", "work", "examined", "remarks", "arrival"} for answer in answers)
    record = read_run(folder_of(deployment))
    privacy = record.manifest["privacy"]
    assert privacy["noise_source"] == "the operating system's secure source"
    assert privacy["switched_off"] and not any("exact" in text for text in privacy["not_covered"])
    rows = record.rows
    assert set(rows.client) == {-1} and set(rows.metric) == {
        f"epsilon of one {privacy['promises'][0]['unit']}"
    }
    by_round = rows.set_index("round").value
    assert by_round[3] > by_round[2] > 0
    assert privacy["promises"][0]["epsilon"] == by_round[3]
    if part.startswith("client"):
        assert by_round.to_dict() == pytest.approx({2: gaussian(1.0, 2), 3: gaussian(1.0, 3)}, rel=1e-9)
    assert record.rounds.train_loss.isna().all()
    assert write_page([record], tmp_path / "report.html").exists()


def test_two_runs_of_one_seed_have_different_noise(deploy: Deploy) -> None:
    first, second = (deploy(method=f"fedavg + {NOISY[0]}", rounds=1) for _ in range(2))
    assert play(first)["status"] == play(second)["status"] == "finished"
    found, other = server_of(first), server_of(second)
    assert not any(torch.equal(found[name], other[name]) for name in found if "/params/" in name)


def test_source_is_secure_at_sites_and_their_server_alone(deploy: Deploy) -> None:
    deployment = deploy(method="fedavg")
    site = Site.open(deployment.site_folder(deployment.sites[0]))
    for setting in (site.setting, server_setting(site.plan, deployment.server)):
        assert isinstance(setting.work.noise, SecureNoise)
    assert isinstance(simulated(replace(site.plan.experiment, rounds=1)).setting.work.noise, SeededNoise)


@pytest.mark.parametrize("asked", [{"observe": True}, {"kind": "follow", "settle": None, "examine": True}])
def test_a_site_refuses_to_tell_what_the_noise_does_not_cover(deploy: Deploy, asked: dict[str, Any]) -> None:
    header = {"tally": False, "remark": False, "examine": False, **asked}
    server = Server(deploy(method=f"fedavg + {NOISY[0]}"))
    assert "site-0 tells no scores" in server.ask(**header)["refused"]
    assert "refused" not in Server(deploy(method=f"fedavg + {BOUND}")).ask(**header)


def test_an_upload_that_is_made_again_is_another_and_counts_again(deploy: Deploy) -> None:
    server = Server(deploy(method=f"fedavg + {NOISY[1]}"))
    first, again = (server.open(server.site.reply(server.message(round=0))) for _ in range(2))
    assert not any(torch.equal(first.tensors[n], again.tensors[n]) for n in first.tensors if "weight" in n)
    assert first.header["spent"] == pytest.approx([gaussian(1.0, 1)], rel=1e-9)
    assert again.header["spent"] == pytest.approx([gaussian(1.0, 2)], rel=1e-9)


def test_a_site_spends_no_more_than_it_allows_and_remembers_it(deploy: Deploy) -> None:
    deployment = deploy(method=f"fedavg + {NOISY[1]}")
    folder = deployment.site_folder(deployment.sites[0])
    most = gaussian(1.0, 2) + 0.01
    write_site(replace(Server(deployment).site.config, most_epsilon=most))
    server = Server(deployment)
    assert "refused" not in server.ask(round=0) and "refused" not in server.ask(round=0)
    server.site = Site.open(folder)  # it starts again
    refused = server.ask(round=0)["refused"]
    assert f"the upload of round 1 would bring the site to epsilon {gaussian(1.0, 3):.4g}" in refused
    assert "most_epsilon" in refused
    (counted,) = folder.rglob("uploads.json")
    assert json.loads(counted.read_text()) == {"0": 2} and counted.stat().st_mode & 0o077 == 0
    write_site(replace(server.site.config, most_epsilon=-1.0))
    with pytest.raises(UserError, match="most_epsilon must be at least 0, got -1"):
        Site.open(folder)
    write_site(replace(server.site.config, most_epsilon=None))
    counted.write_text("{")
    with pytest.raises(UserError, match="nobody knows what the site has spent"):
        Site.open(folder)


def test_a_rollback_takes_no_upload_back(deploy: Deploy) -> None:
    deployment = deploy(method=f"fedavg + {NOISY[0]}")
    assert play(deployment)["status"] == "finished"
    roll_back(deployment, 1, lambda sentence: None)
    assert play(deployment)["status"] == "finished"
    (promise,) = read_run(folder_of(deployment)).manifest["privacy"]["promises"]
    assert promise["epsilon"] == pytest.approx(gaussian(1.0, 5), rel=1e-9)


def test_what_sites_spent_is_kept_beside_checkpoints_and_survives_damage(deploy: Deploy) -> None:
    deployment = deploy(method=f"fedavg + {NOISY[0]}", rounds=1)
    assert play(deployment)["status"] == "finished"
    said: list[str] = []
    spent = spent_by_sites(deployment.server, said.append)
    assert {name: pytest.approx([gaussian(1.0, 1)]) for name in ("site-0", "site-1", "site-2")} == spent
    (deployment.server / "spent.json").write_text('{"site-0": 3}')
    assert spent_by_sites(deployment.server, said.append) == {}
    assert len(said) == 1 and (deployment.server / "spent.damaged").exists()


def test_the_notice_says_what_is_spent_or_who_knows(deploy: Deploy) -> None:
    notice = privacy_notice(deploy(method=f"fedavg + {NOISY[0]}"))
    assert (
        f"epsilon {gaussian(1.0, 3):.3g}" in notice
        and "losses, scores and counts stay at the sites" in notice
    )
    assert "simulation" not in notice
    assert "each site says what dp_sgd(noise=2) spends" in privacy_notice(
        deploy(method="fedavg + dp_sgd(noise=2)")
    )
    assert privacy_notice(deploy(method="fedavg")) == ""
