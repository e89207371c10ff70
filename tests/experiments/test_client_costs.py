"""What each client spent: rounds, steps, operations and bytes, against sums by hand and the table of rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from idiolect import from_module, register_model
from idiolect.engines import EngineChoice
from idiolect.experiments import Experiment, prepare, run
from idiolect.experiments.rounds.client_costs import ClientCosts
from idiolect.experiments.rounds.client_work import Work, WorkCounter
from idiolect.records import Run

STEP = 2 * (3 * (8 * 8 + 8 * 8 + 8 * 3) - 8 * 8)  # operations of mlpnet(hidden=8) per row
PERSFL = "persfl(lambdas=(0.5,), temperatures=(1.0,), epochs=1)"


def made(experiment: Experiment, folder, **options) -> Run:
    return run(experiment, out=folder, engine="loop", device="cpu", **options)


def sums(found: Run) -> pd.Series:
    everyone = found.costs[found.costs["population"] == "all"]
    return everyone[["steps", "flops", "bytes_down", "bytes_up"]].sum()


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedproto", PERSFL])
def test_costs_of_clients_are_those_of_the_rounds(method, tiny, tmp_path):
    found = made(replace(tiny, method=method, rounds=3, participation_rate=0.5), tmp_path)
    assert found.costs["client"].tolist() == [0, 1, 2, 3] and found.costs["rounds"].sum() == 3 * 2
    for name in ("bytes_down", "bytes_up"):
        assert sums(found)[name] == found.rounds[name].sum()
    if method != PERSFL:  # whose clients train on at the end of the run
        assert sums(found)["steps"] == found.rounds["steps"].sum()
        assert sums(found)["flops"] == found.rounds["flops"].sum() > 0


def test_a_client_counts_its_rounds_steps_and_batches(tiny, tmp_path):
    """Twelve training rows in batches of 8 are 8 + 4 rows: two steps an epoch, the operations of 12 rows."""
    experiment = replace(tiny, rounds=3, participation_rate=0.5, local_epochs=2)
    found = made(experiment, tmp_path)
    setting = prepare(experiment, EngineChoice("loop", "cpu", "as asked"))
    taken = np.bincount(np.concatenate([setting.cohort(round) for round in range(3)]), minlength=4)
    rows = setting.federation.clients.sizes("train")[:4]
    costs = found.costs.set_index("client")
    assert costs["rounds"].tolist() == taken.tolist()
    assert costs["steps"].tolist() == (taken * 2 * -(-rows // 8)).tolist()
    assert costs["flops"].tolist() == (taken * 2 * rows * STEP).tolist()
    assert (rows % 8 != 0).all()  # else the last batch would not be tried


def test_everyone_downloads_and_scores_where_the_method_says_so(tiny, tmp_path):
    found = made(replace(tiny, method=PERSFL, rounds=3, participation_rate=0.5), tmp_path)
    costs, first = found.costs, found.rounds.iloc[0]
    model = first["bytes_up"] / 2
    first_cohort = costs["bytes_down"] - 3 * model  # everyone after each merge, and the first cohort before
    assert sorted(first_cohort) == [0, 0, model, model]
    never = costs[costs["rounds"] == 0]
    assert (never["flops"] > 0).all() and (never["steps"] > 0).all()  # they score and distil all the same


def test_newcomers_have_costs_of_their_own(tiny, tmp_path):
    found = made(replace(tiny, method="fedavg_lu", newcomers=1), tmp_path)
    new = found.costs[found.costs["population"] == "new"]
    assert new["client"].tolist() == [3] and new["rounds"].tolist() == [1]
    assert new["bytes_up"].tolist() == [0]
    assert new["bytes_down"].iloc[0] == found.rounds["bytes_down"].iloc[0] / 3
    assert sums(found)["bytes_down"] == found.rounds["bytes_down"].sum()


def test_what_cannot_be_counted_is_unknown_and_the_run_goes_on(tiny, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("no operator for this")

    monkeypatch.setattr("idiolect.experiments.rounds.client_work.count_stages", refuse)
    found = made(tiny, tmp_path)
    assert found.costs["flops"].isna().all() and found.rounds["flops"].isna().all()
    assert (found.costs["steps"] > 0).all()
    assert any("could not be counted" in note and "no operator" in note for note in found.manifest["notes"])


def test_a_network_of_ones_own_is_counted(tiny, tmp_path):
    def own(*shape: object) -> torch.nn.Module:
        body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 4), torch.nn.ReLU())
        return from_module(body, torch.nn.Linear(4, 3))

    register_model("counted_own", own)
    found = made(replace(tiny, model="counted_own"), tmp_path)
    step = 2 * (3 * (8 * 4 + 4 * 3) - 8 * 4)
    assert found.costs["flops"].tolist() == [tiny.rounds * 12 * step] * 4


def test_state_goes_through_a_checkpoint():
    costs = ClientCosts(2, 1)
    costs.train([(0, Work(3, 10.0)), (2, Work(1, 5.0))])
    costs.download([0, 0, 1], 4)
    costs.upload([1], [7])
    again = ClientCosts(2, 1)
    again.restore(costs.state())
    again.settle([(4, Work(0, 1.0))])  # a client that nobody knew of before
    assert again.table().to_pydict() == {
        "client": [0, 1, 2, 3, 4],
        "population": ["all", "all", "new", "new", "new"],
        "rounds": [1, 0, 1, 0, 0],
        "steps": [3, 0, 1, 0, 0],
        "flops": [10.0, 0.0, 5.0, 0.0, 1.0],
        "bytes_down": [8, 4, 0, 0, 0],
        "bytes_up": [0, 7, 0, 0, 0],
    }


def test_costs_are_unknown_after_a_checkpoint_without_them():
    costs = ClientCosts(2)
    costs.restore(None)
    costs.download([0], 4)
    assert costs.table().num_rows == 0
    again = ClientCosts(2)
    again.restore(costs.state())
    assert again.table().num_rows == 0


def test_a_last_row_that_is_dropped_is_not_counted(tiny):
    setting = prepare(replace(tiny, batch_size=11), EngineChoice("loop", "cpu", "as asked"))
    counter, program = WorkCounter(setting), setting.program(0)
    rows = len(setting.federation.clients[0].train)
    assert rows % 11 == 1
    (whole,) = counter.of(program, "round", [0])
    dropping = replace(setting, work=replace(setting.work, drop_single=True))
    (fewer,) = WorkCounter(dropping).of(program, "round", [0])
    assert (whole.steps - fewer.steps, whole.flops - fewer.flops) == (1, STEP)


def test_costs_follow_who_trained_received_and_sent(tiny, tmp_path):
    """Clients that fail have downloaded and nothing else; an upload counts when it arrives."""
    under = ("dropout(rate=0.5)", "late(share=0.6, delay=2)")
    found = made(replace(tiny, rounds=6, under=under), tmp_path)
    costs, rounds = found.costs, found.rounds
    model = rounds["bytes_down"].iloc[0] / 4
    assert costs["bytes_down"].tolist() == [6 * model] * 4
    assert costs["rounds"].sum() == rounds["cohort"].sum() < 6 * 4
    assert costs["bytes_up"].sum() == rounds["bytes_up"].sum() < costs["rounds"].sum() * model
    assert costs["flops"].tolist() == (costs["rounds"] * 12 * STEP).tolist()
