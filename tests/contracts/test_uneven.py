"""Clients of very unequal size on a CPU: whoever is done leaves the batch, and comes back to its place at the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from idiolect.core import UPLOAD, Batch, Part, Tree, View, broadcast, chain
from idiolect.engines import CohortEngine, LoopEngine, PoolEngine, Workload, client_packing
from idiolect.engines.cohort.cpu.traced_stages import MANY_ROUNDS, TracedStages
from idiolect.engines.contract import Outcome
from idiolect.engines.worker_calls import EngineCall, amounts, worker_engine
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.parts import average

from .cases import spelt
from .sameness import assert_equal, assert_exact, states
from .tiny import play, setting_of

UNEVEN: dict[str, Any] = {
    "model": "mlpnet(hidden=8)",
    "dataset": "tiny(sizes=(28, 5, 15, 200, 20, 60))",  # 2, 1, 2, 15, 2 and 5 steps of training
    "participation_rate": 1.0,
}
EVERYBODY = range(6)
SEVERAL_STAGES, PRIVATE, DRAWS, MEASURED = "map", "fedper", "superfed_mm", "persfl"


@pytest.mark.parametrize("compile", ["flat", "none"])
@pytest.mark.parametrize(
    "name", [SEVERAL_STAGES, PRIVATE, DRAWS, pytest.param(MEASURED, marks=pytest.mark.slow)]
)
def test_uneven_clients_side_by_side_equal_the_loop(name: str, compile: str) -> None:
    setting = setting_of(spelt(name), **UNEVEN)
    found, loop = (
        play(setting, e) for e in (CohortEngine(setting.work, compile=compile), LoopEngine(setting.work))
    )
    assert_equal(states(found), states(loop))


@pytest.mark.parametrize("rounds", [2, MANY_ROUNDS])
@pytest.mark.parametrize("name", [SEVERAL_STAGES, PRIVATE, DRAWS])
def test_uneven_clients_in_a_pool_equal_the_loop(name: str, rounds: int) -> None:
    setting = setting_of(name, rounds=rounds, **UNEVEN)
    assert isinstance(
        worker_engine(setting.work, setting.program(0)), LoopEngine if rounds < MANY_ROUNDS else CohortEngine
    )
    found, loop = (
        play(setting, engine) for engine in (PoolEngine(setting.work, 2), LoopEngine(setting.work))
    )
    assert_equal(states(found), states(loop))


class Counting(Workload):
    """Counts how often a client is given a batch."""

    given: list[int]

    def gather(self, index: Tensor, mask: Tensor, key: Tensor, draws: dict[str, Tensor]) -> Batch:
        self.given.append(len(index))
        return super().gather(index, mask, key, draws)


def counting(work: Workload) -> Counting:
    found = Counting(**{field.name: getattr(work, field.name) for field in fields(Workload)})
    object.__setattr__(found, "given", [])
    return found


def one_round(
    setting: Setting, engine: CohortEngine | LoopEngine, clients: Iterable[int] = EVERYBODY
) -> Sequence[Outcome]:
    sent = broadcast(setting.method, setting.first_server())
    return engine.round(setting.program(0), sent, {c: setting.first_private(c) for c in clients}, False)


@pytest.mark.parametrize("compile", ["flat", "none"])
def test_a_client_that_is_done_is_computed_on_no_more(compile: str) -> None:
    setting = setting_of(SEVERAL_STAGES, **UNEVEN)
    work, program = counting(setting.work), setting.program(0)
    one_round(setting, CohortEngine(work, compile=compile))
    asked = amounts(work, program, EngineCall("round", program.clock, False), EVERYBODY)
    assert sum(work.given) == sum(asked.values())


def test_evaluation_of_uneven_clients_equals_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of(PRIVATE, **UNEVEN | {"dataset": "tiny(sizes=(1000, 5, 15, 2000, 20, 60))"})
    sent = broadcast(setting.method, setting.first_server())
    privates = {c: setting.first_private(c) for c in EVERYBODY}
    arguments = (setting.program(0), sent, privates, "train")
    looked_at = []
    vmap = torch.func.vmap
    monkeypatch.setattr(
        client_packing,
        "vmap",
        lambda function: lambda *leaves: looked_at.append(len(leaves[0])) or vmap(function)(*leaves),
    )
    found = CohortEngine(setting.work).evaluate(*arguments)
    assert looked_at == [6, 2, 2, 1, 1], "600 and 1200 rows in batches of 256; the others have one batch"
    assert_equal(found, LoopEngine(setting.work).evaluate(*arguments))


def test_steps_are_traced_for_few_shapes_whoever_takes_part() -> None:
    setting = setting_of("fedavg", **UNEVEN)
    steps = TracedStages(many=0)
    engine = CohortEngine(setting.work)
    engine._packing = steps.packing
    for clients in itertools.combinations(EVERYBODY, 4):
        one_round(setting, engine, clients)
    assert sum(map(len, steps._steps.values())) == 3, "blocks of four, two and one"


def test_the_order_of_clients_changes_nothing() -> None:
    setting = setting_of(PRIVATE, **UNEVEN)
    engine = CohortEngine(setting.work, compile="flat")
    order = [4, 1, 3, 0, 5, 2]
    reversed_order = dict(zip(order, one_round(setting, engine, order), strict=True))
    assert_equal([reversed_order[c] for c in EVERYBODY], list(one_round(setting, engine)))


def odd(kind: str) -> Part:
    """Its carry comes back with its names in another order, or in another type."""

    def carry(params: Tree, view: View) -> Tree:
        zero = torch.zeros(()) if kind == "type" else torch.zeros_like(view.facts.samples)
        return {"norm": zero, "steps": zero}

    def gradient(plain: Any, view: View) -> Any:
        def found(params: Tree, buffers: Tree, batches: Any, carry: Tree) -> tuple[Tree, Tree, Tree]:
            grads, new = plain(params, buffers, batches)
            norm = carry["norm"] + sum((leaf**2).sum() for leaf in grads["model"].values())
            return grads, new, {"steps": carry["steps"] + 1, "norm": norm}

        return found

    def finish(results: Any, view: View) -> Tree:
        return {name: 1.0 * results[UPLOAD].carry["odd"][name] for name in ("norm", "steps")}

    zeros = torch.zeros(2, dtype=torch.float64)
    return Part(
        "odd",
        carry=carry,
        gradient=gradient,
        finish=finish,
        init_client=lambda *_: {"norm": zeros[0], "steps": zeros[1]},
    )


@pytest.mark.parametrize("compile", ["flat", "none"])
@pytest.mark.parametrize("kind", ["order", "type"])
def test_a_state_that_changes_its_form_runs_client_by_client(kind: str, compile: str) -> None:
    setting = replace(setting_of("fedavg", **UNEVEN), method=chain(average(), odd(kind)))
    with pytest.warns(UserWarning, match="client by client"):
        found = one_round(setting, CohortEngine(setting.work, compile=compile))
    assert_equal(list(found), list(one_round(setting, LoopEngine(setting.work))))


@pytest.mark.slow
def test_measures_of_uneven_clients_equal_the_loop() -> None:
    sizes = UNEVEN | {
        "dataset": "tiny(sizes=(2000, 5, 15, 1200, 20, 60))",
        "rounds": 1,
        "learning_rate": 1e-4,
    }
    setting = setting_of(spelt(MEASURED), **sizes)
    found, loop = (
        play(setting, e) for e in (CohortEngine(setting.work, compile="flat"), LoopEngine(setting.work))
    )
    assert_equal(states(found), states(loop))


def test_a_step_that_reads_keys_later_does_not_read_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of("fedavg", **UNEVEN)
    engine = CohortEngine(setting.work, compile="flat")
    reads = itertools.chain([False], itertools.repeat(True))
    monkeypatch.setattr("idiolect.engines.cohort.cpu.traced_stages.reads_keys", lambda *_: next(reads))
    one_round(setting, engine, [1])  # one step of one client
    with pytest.warns(UserWarning, match="client by client"):
        found = one_round(setting, engine)
    assert_exact(list(found), list(one_round(setting, LoopEngine(setting.work))))


@pytest.mark.slow
def test_an_engine_put_in_later_goes_on_to_the_last_digit() -> None:
    setting = setting_of(DRAWS, rounds=4, **UNEVEN)
    through = Simulation.start(setting, CohortEngine(setting.work, compile="flat"))
    cut = Simulation.start(setting, CohortEngine(setting.work, compile="flat"))
    for round in range(4):
        through.advance()
        if round == 2:
            cut.participants.engine = CohortEngine(setting.work, compile="flat")
        cut.advance()
    assert_exact(states(cut), states(through))


def test_a_round_made_again_is_the_same_to_the_last_digit() -> None:
    setting = setting_of(SEVERAL_STAGES, **UNEVEN)
    engine = CohortEngine(setting.work, compile="flat")
    first, second = (list(one_round(setting, engine)) for _ in range(2))
    assert_exact(first, second)
    assert_exact(first, list(one_round(setting, CohortEngine(setting.work, compile="flat"))))
