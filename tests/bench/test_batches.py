"""How many steps a round has, by hand, by the plan and by what optimisers do."""

import math
from dataclasses import replace

import numpy as np
import pytest

from idiolect.bench import BenchGrid
from idiolect.bench.plain_loop_batches import blocks_of, cohort_of, round_batches, steps_of_round
from idiolect.bench.plain_loops import PlainLoop, plain_method
from idiolect.bench.roofline import Work, count_steps
from idiolect.bench.worker import PlainRunner
from idiolect.bench.workloads import BenchCell, bench_setting
from idiolect.errors import UserError


def test_workload_w_is_twenty_clients_of_seven_steps():
    setting = bench_setting(BenchCell(workload="dnn"), "fedavg")
    assert steps_of_round(setting, 0, "round") == 20 * 7
    batches = round_batches(setting, 0)
    assert len(batches) == 20 and setting.federation.population == 100
    for stages in batches.values():
        assert [len(rows) for rows, _ in stages["main"]] == [64] * 6 + [16]


def test_workload_w_is_the_net_of_the_tutorial(small):
    setting = bench_setting(small(workload="w"), "fedavg")
    assert setting.n_parameters == 122_570
    assert setting.experiment.learning_rate == 0.03 and setting.experiment.momentum == 0.9
    assert setting.experiment.weighting == "uniform" and setting.experiment.local_epochs == 1


def test_no_timed_round_is_evaluated(small):
    experiment = bench_setting(small(), "fedavg").experiment
    most = 2 * BenchGrid(repeats=250, warmup=250).repeats
    assert experiment.evaluate_every == experiment.rounds > most
    with pytest.raises(UserError, match=r"repeats must be in \[1, 250\]"):
        BenchGrid(repeats=251)


def test_lognormal_sizes_are_quantiles_whatever_the_seed():
    cell = BenchCell(workload="dnn", sizes="lognormal", population=1000)
    sizes, others = cell.train_sizes(), replace(cell, seed=1).train_sizes()
    assert sizes == cell.train_sizes() != others
    assert sorted(sizes) == sorted(others)
    logarithms = np.log(np.array(sizes) / 400) + 0.5
    assert logarithms.mean() == pytest.approx(0, abs=0.01) and logarithms.std() == pytest.approx(1, abs=0.01)
    assert sum(z > 1.96 for z in logarithms) == 25
    assert min(BenchCell(workload="dnn", sizes="lognormal", samples=2).train_sizes()) == 2


def test_steps_of_ragged_clients_are_their_own(small):
    cell = small(sizes="lognormal")
    setting = bench_setting(cell, "fedavg")
    sizes = cell.train_sizes()
    expected = sum(math.ceil(sizes[client] / 8) for client in cohort_of(setting, 0))
    assert steps_of_round(setting, 0, "round") == expected
    assert [len(client.train) for client in setting.federation.clients] == sizes


@pytest.mark.parametrize(
    ("method", "phase", "expected"),
    [("fedavg", "round", 9), ("map", "round", 9), ("persfl", "round", 9), ("persfl", "end", 15)],
)
def test_planned_steps_equal_those_that_optimisers_make(small, method, phase, expected):
    """Three steps for each of 3 clients; MAP makes two before and one after the upload, PersFL's end takes all 5."""
    setting, work = bench_setting(small(), plain_method(method).text), Work()
    running = PlainRunner(setting, plain_method(method).plain)
    running.ready("round")
    running.go("round")
    running.ready(phase)
    with count_steps(work):
        running.go(phase)
    assert work.steps == steps_of_round(setting, 1, phase) == expected


def test_steps_of_another_learning_rate_are_not_counted(small):
    setting, work = bench_setting(small(), "fedavg"), Work()
    with count_steps(work, learning_rate=1.0):
        PlainLoop(setting).round(round_batches(setting, 0))
    assert work.steps == 0


def test_held_out_images_come_beside_the_training_ones(small):
    setting = bench_setting(small(method="persfl"), plain_method("persfl").text)
    clients = setting.federation.clients
    assert all((len(c.train), len(c.valid), len(c.test)) == (20, 5, 1) for c in clients)
    rows = [row for client in clients for part in client for row in part]
    assert sorted(rows) == list(range(5 * 26)) and len(setting.work.x) == 5 * 26


def test_block_of_a_client_holds_its_own_images(small):
    setting = bench_setting(small(sizes="lognormal"), "fedavg")
    for block, client in zip(blocks_of(setting), setting.federation.clients, strict=True):
        assert block.stop - block.start == len(client.train)
        assert set(range(block.start, block.stop)) <= {row for part in client for row in part}
