"""Runs under disturbances: who downloads, trains and uploads, what is merged when, and what a run is known by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import idiolect
from idiolect.core import broadcast
from idiolect.core.trees import count_scalars, tree_leaves
from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment
from idiolect.engines import LoopEngine
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.experiments.identity import hash_of
from idiolect.experiments.rounds.late_uploads import LateUploads
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.testing.tiny_federation import TINY, tiny_setting

SMALL = {"model": "mlpnet(hidden=8)", "rounds": 4}


def played(under: Any, method: str = "fedavg", **settings: Any) -> Simulation:
    setting = tiny_setting(method, under=under, **SMALL | settings)
    simulation = Simulation.start(setting, LoopEngine(setting.work))
    for _ in range(setting.experiment.rounds):
        simulation.advance()
    return simulation


def test_all_spellings_are_one_run_and_none_is_the_run_of_before() -> None:
    assert hash_of(Experiment(under=())) == hash_of(Experiment())
    one, two = (hash_of(Experiment(under=u)) for u in ("late", ["late( share = 0.2)"]))
    assert one == two != hash_of(Experiment())
    assert Experiment(under=["dropout", "label_noise"]) == Experiment(
        under=("label_noise", "dropout(rate=0.1)")
    )
    with pytest.raises(UserError, match="setting under must be"):
        idiolect.run("fedavg", under=3)


def test_lost_clients_download_and_nothing_of_theirs_is_kept() -> None:
    run = played("dropout(rate=0.5)")
    setting = run.setting
    model = count_scalars(broadcast(setting.method, run.server))
    seen: set[int] = set()
    for round, row in enumerate(run.rounds.table().to_pylist()):
        selected, trained = setting.selected(round), setting.cohort(round)
        assert row["cohort"] == len(trained)
        assert row["bytes_down"] == 4 * model * len(selected)
        assert row["bytes_up"] == 4 * model * len(trained)
        seen |= set(trained)
    assert sum(len(setting.cohort(r)) for r in range(4)) < sum(len(setting.selected(r)) for r in range(4))
    assert set(run.selected) == seen


def test_private_state_of_lost_clients_stays() -> None:
    run = played("dropout(rate=1.0)", "fedper")
    assert len(run.selected) == 0
    first = run.setting.first_private(2)
    for found, expected in zip(tree_leaves(run.store.rows([2])[2]), tree_leaves(first), strict=True):
        assert torch.equal(found, expected)


def test_a_round_without_answers_leaves_the_server_as_it_is() -> None:
    run = played("dropout(rate=1.0)", "fedadam")
    first = run.setting.first_server()
    for found, expected in zip(tree_leaves(run.server), tree_leaves(first), strict=True):
        assert torch.equal(found, expected)
    rows = run.rounds.table().to_pylist()
    assert [row["cohort"] for row in rows] == [0] * 4 and all(
        row["train_loss"] != row["train_loss"] for row in rows
    )
    assert all(row["bytes_up"] == 0 < row["bytes_down"] for row in rows)


def test_late_uploads_are_merged_in_the_round_of_their_arrival() -> None:
    run = played("late(share=1.0, delay=2)")
    rows = run.rounds.table().to_pylist()
    assert [row["bytes_up"] > 0 for row in rows] == [False, False, True, True]
    assert [upload.due for upload in run.late.waiting] == [4, 4, 4, 5, 5, 5]
    on_time = played((), rounds=4)
    setting = tiny_setting("fedavg", under="late(share=1.0, delay=2)", **SMALL)
    stale = Simulation.start(setting, LoopEngine(setting.work))
    for _ in range(3):
        stale.advance()
    # both first uploads start from the initial model, so that what arrives in the third round is what the first gave
    fresh = Simulation.start(on_time.setting, LoopEngine(on_time.setting.work))
    fresh.advance()
    for found, expected in zip(tree_leaves(stale.server), tree_leaves(fresh.server), strict=True):
        assert torch.equal(found, expected)


def test_private_state_of_late_clients_is_kept_at_once() -> None:
    run = played("late(share=1.0, delay=9)", "fedper")
    assert set(run.selected) == {1, 2, 3, 4, 5} | set(run.selected)
    moved = run.store.rows([2])[2]
    first = run.setting.first_private(2)
    same = [torch.equal(a, b) for a, b in zip(tree_leaves(moved), tree_leaves(first), strict=True)]
    assert not all(same)


def test_uploads_are_ordered_by_client_and_then_by_age() -> None:
    late = LateUploads()

    def sent(*values: float) -> Any:
        column = torch.tensor(values)
        return {"average": ({"w": column[:, None]}, column + 100)}

    assert late.deliver(0, [1, 4], sent(1, 4), {4: 1}).clients == [1]
    arrived = late.deliver(1, [2, 4], sent(20, 40), {2: 3})
    assert arrived.clients == [4, 4]
    values, weights = arrived.messages["average"]
    assert values["w"].ravel().tolist() == [4, 40] and weights.tolist() == [104, 140]
    assert LateUploads.from_state(late.state()).waiting[0][:3] == (2, 1, 4)
    arrived = late.deliver(4, [1, 5], sent(11, 55), {})
    assert arrived.clients == [1, 2, 5] and not late.waiting
    assert arrived.messages["average"][0]["w"].ravel().tolist() == [11, 20, 55]


def test_scaffold_stays_the_mean_of_its_controls_when_clients_fail() -> None:
    """c = mean_k c_k over all K clients, because the merge knows how many changes of the c_k it has."""
    run = played(["dropout(rate=0.4)"], "scaffold", rounds=5)
    assert any(len(run.setting.cohort(r)) < 3 for r in range(5))
    own = [run.store.rows([client])[client]["slots"]["control_variates"] for client in range(6)]
    for name, control in run.server["slots"]["control_variates"].items():
        expected = torch.stack([one[name] for one in own]).mean(0)
        torch.testing.assert_close(control, expected, rtol=1e-9, atol=1e-12)


def test_costs_of_clients_add_up_to_those_of_rounds() -> None:
    run = played(["dropout(rate=0.4)", "late(share=0.7)"])
    costs, rounds = run.costs.table().to_pandas().set_index("client"), run.rounds.table().to_pandas()
    assert costs["bytes_up"].sum() == rounds["bytes_up"].sum()
    assert costs["bytes_down"].sum() == rounds["bytes_down"].sum()
    model = costs["bytes_down"].max() // max(
        sum(c in run.setting.selected(r) for r in range(4)) for c in costs.index
    )
    for client, line in costs.iterrows():
        trained = sum(client in run.setting.cohort(round) for round in range(4))
        waiting = sum(upload.client == client for upload in run.late.waiting)
        assert line["rounds"] == trained and line["bytes_up"] == model * (trained - waiting)


def test_samples_of_rows_follow_the_drift() -> None:
    run = played("drift(at=0.5, share=1.0, kind=clients)", evaluate_every=1)
    rows = run.rows.table().to_pandas()
    tested = rows[(rows["split"] == "test") & (rows["population"] == "all")]
    held = {
        round: group.groupby("client")["samples"].first().to_dict()
        for round, group in tested.groupby("round")
    }
    assert held[1] == held[2] != held[3] == held[4]
    assert sorted(held[2].values()) == sorted(held[3].values())


def test_drift_is_scored_on_the_data_of_its_time() -> None:
    settings = {"evaluate_every": 1, "learning_rate": 0.0, "participation_rate": 1.0}
    clean = played((), **settings).rows.table().to_pandas()
    drifted = played("drift(at=0.5, share=1.0)", **settings).rows.table().to_pandas()
    key = ["round", "client", "split", "predictor", "moment", "population", "metric"]
    pairs = clean.merge(drifted, on=key, suffixes=("", "_drifted"))
    clients = pairs[(pairs.split == "test") & (pairs.metric == "accuracy")]
    equal = (clients.value == clients.value_drifted).groupby(clients["round"]).all()
    assert equal.to_dict() == {1: True, 2: True, 3: False, 4: False}
    server = pairs[pairs.split == "server"]
    assert (server.value == server.value_drifted).all()


def test_facts_of_clients_follow_the_drift() -> None:
    work = tiny_setting("fedavg", under="drift(at=0.5, share=1.0, kind=clients)", **SMALL).work
    before, after = ([work.at(r).facts(c).samples.item() for c in range(6)] for r in (1, 2))
    assert sorted(before) == sorted(after) and before != after


def test_manifest_says_whose_data_were_disturbed(tmp_path: Path) -> None:
    done = idiolect.run(
        "fedper",
        under=["label_noise(share=0.5)", "late(share=1.0, delay=5)", "drift(at=0.0, kind=labels)"],
        clients=4,
        rounds=1,
        partition="iid",
        model="mlpnet(hidden=8)",
        out=tmp_path,
        engine="loop",
        quiet=True,
        test=0.7,
        valid=0.1,
    )
    disturbed = done.manifest["disturbed"]
    assert sorted(map(len, disturbed.values())) == [2, 2]
    assert "1 upload was still on the way after the last round and not merged" in done.manifest["notes"]
    assert done.manifest["spec"]["under"][0].startswith("label_noise(")
    assert "under=label_noise(" in done.manifest["scene"]
    again = idiolect.open(done.folder)
    assert again.model(0) is not None


def test_deployments_refuse_disturbances(tmp_path: Path) -> None:
    experiment = replace(TINY, dataset="fashion-mnist-12k", partition="iid", under="dropout")
    with pytest.raises(UserError, match=r"leave dropout\(rate=0.1\) out of under"):
        create_deployment(experiment, tmp_path / "new", DeploymentOptions())
    assert not (tmp_path / "new").exists()
