"""The pool's own duties: a dead worker is replaced, an error comes back, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from idiolect.core import Batch, Program, broadcast
from idiolect.core.trees import tree_leaves
from idiolect.engines import CohortEngine, EngineChoice, LoopEngine, PoolEngine
from idiolect.engines.balance import balanced_shares
from idiolect.engines.client_packing import BATCHED
from idiolect.engines.cohort.cpu.traced_stages import MANY_ROUNDS, TracedStages
from idiolect.engines.worker_calls import TRIES, batches_well
from idiolect.errors import UserError
from idiolect.experiments import Experiment, Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.federation import Store
from idiolect.methods import method as read_method

from ...child_process import child_process, children_of, is_running

SCENE = Experiment(
    dataset="synthetic",
    partition="iid",
    clients=6,
    model="mlpnet(hidden=8)",
    rounds=2,
    participation_rate=1.0,
)
CONVOLUTIONAL = replace(
    SCENE, dataset="fashion-mnist-12k", clients=200, model="lenet_bn", participation_rate=0.03
)


def _setting(experiment: Experiment) -> Setting:
    return prepare(experiment, EngineChoice("pool", "cpu", "as asked"))


def _arguments(setting: Setting, clients: range = range(6)) -> tuple[Program, Any, dict[int, Any]]:
    server = broadcast(setting.method, setting.first_server())
    return setting.program(0), server, {c: setting.first_private(c) for c in clients}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture(params=[SCENE, CONVOLUTIONAL], ids=["batched", "one by one"])
def pool(request: pytest.FixtureRequest, said: list[str]) -> Iterator[tuple[Setting, PoolEngine]]:
    setting = _setting(request.param)
    pool = PoolEngine(setting.work, workers=2, say=said.append)
    yield setting, pool
    pool.close()


def _deadly(program: Program, marker: str, times: int) -> Program:
    """A program whose process is killed at its first steps, ``times`` times in all."""
    forward = program.task.forward

    def killing(params: Any, buffers: Any, batch: Batch, train: Any) -> Any:
        deaths = len(os.listdir(marker))
        if deaths < times:
            with suppress(FileExistsError):  # another worker dies this death
                open(os.path.join(marker, str(deaths)), "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return forward(params, buffers, batch, train)

    return replace(program, task=program.task._replace(forward=killing))


@pytest.mark.parametrize("observe", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_killed_worker_is_replaced_and_numbers_stay(
    pool: tuple[Setting, PoolEngine], said: list[str], tmp_path: Any, observe: bool
) -> None:
    setting, engine = pool
    program, server, privates = _arguments(setting)
    expected = list(engine.round(program, server, privates, observe))
    found = list(engine.round(_deadly(program, str(tmp_path), 1), server, privates, observe))
    assert len(said) == 1
    assert "exit code -9" in said[0]
    assert "clients [" in said[0]
    for got, wanted in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert torch.equal(got, wanted)


def test_clients_that_kill_every_worker_end_the_run(pool: tuple[Setting, PoolEngine], tmp_path: Any) -> None:
    setting, engine = pool
    program, server, privates = _arguments(setting, range(1))
    with pytest.raises(UserError, match=r"exit code -9 as did 2 before it on clients \[0\]"):
        engine.round(_deadly(program, str(tmp_path), TRIES), server, privates, False)
    assert not engine._running


def test_an_error_in_a_worker_comes_back_and_the_pool_goes_on(pool: tuple[Setting, PoolEngine]) -> None:
    setting, engine = pool
    program, server, privates = _arguments(setting)

    def broken(*_: Any) -> Any:
        raise ValueError("this network is broken")

    with pytest.raises(RuntimeError, match="this network is broken"):
        engine.round(replace(program, task=program.task._replace(forward=broken)), server, privates, False)
    assert len(engine.round(program, server, privates, False)) == 6


@pytest.mark.parametrize("other", [range(6), range(1, 5)], ids=["as expected", "others"])
@pytest.mark.parametrize("rounds", [2, MANY_ROUNDS], ids=["vmapped", "traced"])
def test_what_was_expected_is_prepared_and_changes_no_number(rounds: int, other: range) -> None:
    setting = _setting(replace(SCENE, rounds=rounds))
    program, server, privates = _arguments(setting)
    following = setting.program(1)
    found = {}
    for expects in (True, False):
        engine = PoolEngine(setting.work, workers=2)
        if expects:
            engine.prepare(following, list(other))
        try:
            engine.round(program, server, privates, False)
            found[expects] = list(engine.round(following, server, privates, False))
        finally:
            engine.close()
    for got, wanted in zip(tree_leaves(found[True]), tree_leaves(found[False]), strict=True):
        assert torch.equal(got, wanted)


class Unpacked:
    """Travels with a program and runs a function in the worker that unpacks it."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __reduce__(self) -> Any:
        return self.function, ()


def _prepared_by(setting: Setting, function: Any) -> Setting:
    forward, attachment = setting.task.forward, Unpacked(function)

    def same(*arguments: Any, attachment: Any = attachment) -> Any:
        return forward(*arguments)

    return replace(setting, task=setting.task._replace(forward=same))


def test_workers_prepare_what_they_are_given_next(tmp_path: Any) -> None:
    scene = replace(SCENE, clients=12, rounds=3, participation_rate=0.5)

    def note_calls() -> None:
        given = CohortEngine.round

        def looked_ahead(self: CohortEngine, program: Program, clients: list[int]) -> None:
            (tmp_path / f"ahead {program.clock.round} {clients}").touch()

        def came(self: CohortEngine, program: Program, server: Any, privates: Any, observe: bool) -> Any:
            (tmp_path / f"came {program.clock.round} {list(privates)}").touch()
            return given(self, program, server, privates, observe)

        CohortEngine.look_ahead, CohortEngine.round = looked_ahead, came

    setting = _prepared_by(_setting(scene), note_calls)
    engine = PoolEngine(setting.work, workers=2)
    run = Simulation.start(setting, engine)
    try:
        for _ in range(3):
            run.advance()
    finally:
        engine.close()
    seen = {file.name for file in tmp_path.iterdir()}
    ahead = {name.removeprefix("ahead ") for name in seen if name.startswith("ahead")}
    came_later = {
        name.removeprefix("came ") for name in seen if name.startswith("came") and "came 0" not in name
    }
    assert len(ahead) == 4
    assert ahead == came_later


def test_a_worker_that_dies_while_it_prepares_is_replaced(said: list[str], tmp_path: Any) -> None:
    def dies_once(self: CohortEngine, program: Program, clients: list[int]) -> None:
        with suppress(FileExistsError):
            open(tmp_path / "died", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def die_when_preparing() -> None:
        CohortEngine.look_ahead = dies_once

    setting = _prepared_by(_setting(SCENE), die_when_preparing)
    program, server, privates = _arguments(setting)
    engine = PoolEngine(setting.work, workers=2, say=said.append)
    try:
        expected = list(engine.round(program, server, privates, False))
        engine.prepare(setting.program(1), list(privates))
        for _ in range(2):
            found = list(engine.round(program, server, privates, False))
    finally:
        engine.close()
    assert len(said) == 1
    for got, wanted in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_rows_of_odd_size_compute_as_they_do_alone() -> None:
    """Clients with one row in a batch, whose products depend on where in memory they begin."""
    scene = replace(
        SCENE, method="fedrep", model="mlpnet(hidden=41)", partition="dirichlet_class", clients=140
    )
    setting = _setting(replace(scene, batch_size=1, local_epochs=1))
    server = broadcast(setting.method, setting.first_server())
    shapes = setting.private_shapes
    store = Store.in_memory(setting.first_private, setting.federation.population, shapes, "cpu")
    store.write({client: setting.first_private(client) for client in range(140)})
    privates = store.together(range(140))
    engine = PoolEngine(setting.work, workers=2)
    try:
        found = engine.round(setting.program(0), server, privates, False)
    finally:
        engine.close()
    alone = LoopEngine(setting.work).round(setting.program(0), server, store.rows(range(140)), False)
    for got, wanted in zip(tree_leaves(list(found)), tree_leaves(list(alone)), strict=True):
        assert torch.equal(got, wanted)


def test_a_prepared_stage_is_handed_out_once_and_for_its_round_and_clients_alone() -> None:
    setting = _setting(replace(SCENE, rounds=MANY_ROUNDS))
    steps, work = TracedStages(), setting.work
    program, following = (
        replace(setting.program(round), differentiate=BATCHED.differentiate) for round in (0, 1)
    )
    (stage,) = program.method.plan(program.scene, program.clock).before
    steps.look_ahead(work, following, [0, 1, 2])
    assert not steps.feed(work, program, stage, [0, 1, 2]).ready
    assert not steps.feed(work, following, stage, [0, 2, 1]).ready
    other = replace(following, method=read_method("fedprox"))
    assert not steps.feed(work, other, stage, [0, 1, 2]).ready
    prepared = steps.feed(work, following, stage, [0, 1, 2])
    assert not steps.feed(work, following, stage, [0, 1, 2]).ready
    (block,) = prepared.blocks()
    assert len(prepared.ready) == block.stop
    fresh = steps.feed(work, following, stage, [0, 1, 2]).steps(block)
    for (got, _), (wanted, _) in zip(prepared.steps(block), fresh, strict=True):
        for one, another in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
            assert torch.equal(one, another)


def test_no_more_is_prepared_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = _setting(replace(SCENE, rounds=MANY_ROUNDS))
    monkeypatch.setattr("idiolect.engines.cohort.cpu.traced_stages.READY_BYTES", 1)
    steps, program = TracedStages(), replace(setting.program(1), differentiate=BATCHED.differentiate)
    (stage,) = program.method.plan(program.scene, program.clock).before
    steps.look_ahead(setting.work, program, [0, 1, 2])
    prepared = steps.feed(setting.work, program, stage, [0, 1, 2])
    (block,) = prepared.blocks()
    assert len(prepared.ready) == 1 < len(list(prepared.steps(block))) == block.stop


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a worker has it: sums over several threads differ in their last digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_single_worker_does_the_work_of_all() -> None:
    setting = _setting(CONVOLUTIONAL)
    program, server, privates = _arguments(setting)
    engine = PoolEngine(setting.work, workers=1)
    try:
        found = engine.round(program, server, privates, False)
    finally:
        engine.close()
    for got, wanted in zip(
        tree_leaves(found),
        tree_leaves(LoopEngine(setting.work).round(program, server, privates, False)),
        strict=True,
    ):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    ("scene", "batched"),
    [
        (SCENE, True),
        (CONVOLUTIONAL, False),
        (replace(SCENE, partition="dirichlet_class"), False),
        (replace(SCENE, partition="dirichlet_class", rounds=MANY_ROUNDS), True),
    ],
    ids=["even", "convolutional", "uneven and short", "uneven and long"],
)
def test_networks_without_convolutions_are_batched_where_it_pays(scene: Experiment, batched: bool) -> None:
    setting = _setting(scene)
    assert batches_well(setting.work, setting.program(0)) == batched


@given(st.lists(st.integers(0, 200), min_size=1, max_size=40), st.integers(1, 9))
def test_balanced_shares_are_of_equal_size_and_no_work_could_be_handed_over_whole(
    amounts: list[int], count: int
) -> None:
    work = dict(enumerate(amounts))
    shares = balanced_shares(work, count)
    assert sorted(client for share in shares for client in share) == list(work)
    assert len(shares) <= count
    most = -(-len(work) // count)
    assert max(map(len, shares)) <= most
    loads = [sum(work[client] for client in share) for share in shares]
    open_loads = [load for load, share in zip(loads, shares, strict=True) if len(share) < most]
    for load, share in zip(loads, shares, strict=True):
        for other in open_loads:
            assert load - work[share[-1]] <= other, "its last client had a better place"


@pytest.mark.slow
def test_ctrl_c_leaves_no_worker_behind(tmp_path: Any) -> None:
    command = [sys.executable, "-m", "idiolect", "run", "--method", "fedavg", "--rounds", "100000"]
    command += ["--engine", "pool", "--out", str(tmp_path), "--set", "evaluate_every=100000"]
    with child_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        workers = _wait_for_workers(run.pid)
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert b"idiolect: interrupted" in errors and b"Traceback" not in errors
    deadline = time.monotonic() + 20
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)


def _wait_for_workers(parent: int) -> list[int]:
    """The process that forks workers, and those."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.1)
        for child in children_of(parent):
            if workers := children_of(child):
                return [child, *workers]
    raise AssertionError("no worker was started")
