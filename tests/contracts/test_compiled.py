"""The cohort as it runs on a GPU, without one: traced steps on lanes, chunks that shrink, ways out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from logging.handlers import BufferingHandler
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import idiolect.engines.cohort.engine as cohort_module
from idiolect.core import Batch, Loss, Out, Part, Tree, View, broadcast, chain
from idiolect.engines import CohortEngine, LoopEngine, Workload
from idiolect.engines.cohort.cuda.compiled_stages import COMPILED
from idiolect.engines.cohort.cuda.lane_assignment import Layout
from idiolect.engines.cohort.cuda.lane_batch_plans import Planner
from idiolect.errors import UserError
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.methods import method as read_method
from idiolect.parts import average

from .cases import METHODS, spelt
from .sameness import assert_equal, states
from .tiny import finished_run, play, setting_of

SOME = ("map", "scaffold", "apfl")


def one_round(setting: Setting, engine: Any) -> Any:
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in range(6)}
    return engine.round(setting.program(0), sent, first, False)


@pytest.mark.parametrize("name", SOME)
def test_traced_cohort_equals_loop(name: str) -> None:
    setting = setting_of(name)
    assert_equal(
        states(play(setting, CohortEngine(setting.work, compile="trace"))), states(finished_run(name))
    )


@pytest.mark.parametrize(
    ("name", "layout", "local_epochs"),
    [
        ("fedavg", (2, True), 6),  # bundles of every size
        pytest.param("fedavg", (6, True), 6, marks=pytest.mark.slow),
        pytest.param("fedavg", (4, False), 6, marks=pytest.mark.slow),
        pytest.param("map", (6, True), 1, marks=pytest.mark.slow),
        ("map", (2, False), 1),
        pytest.param("superfed_mm(phase_one=0)", (2, True), 1, marks=pytest.mark.slow),
        pytest.param("perfedavg_hf", (6, True), 1, marks=pytest.mark.slow),
        pytest.param(
            "persfl(lambdas=(0.0, 1.0), temperatures=(1.0,), epochs=1)", (2, True), 1, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_lane_groups_equal_loop(
    name: str, layout: tuple[int, bool], local_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
        lambda population, n_clients: Layout(*layout),
    )
    setting = setting_of(name, participation_rate=1.0, local_epochs=local_epochs)
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile="trace")),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.slow
@pytest.mark.parametrize("name", [m for m in METHODS if m not in SOME])
def test_every_traced_cohort_equals_loop(name: str) -> None:
    setting = setting_of(spelt(name))
    cohort = play(setting, CohortEngine(setting.work, compile="trace"))
    assert_equal(states(cohort), states(finished_run(spelt(name))))


@pytest.mark.slow
def test_compiled_cohort_equals_loop() -> None:
    setting = setting_of("map", model="lenet_map", dataset="tiny(size=28)")
    compiled, loop = (
        play(setting, engine)
        for engine in (CohortEngine(setting.work, compile="inductor"), LoopEngine(setting.work))
    )
    assert_equal(states(compiled), states(loop))


@pytest.mark.slow
def test_steps_that_differ_in_numbers_alone_share_a_graph() -> None:
    COMPILED.clear()
    one = setting_of("persfl(lambdas=(0.25,), temperatures=(1.0,), epochs=1)")
    play(one, CohortEngine(one.work, compile="trace"))
    graphs = dict(COMPILED)
    assert len(graphs) >= 3  # local training, validation, distillation
    other = setting_of("persfl(lambdas=(0.5,), temperatures=(5.0,), epochs=1)")
    play(other, CohortEngine(other.work, compile="trace"))
    assert graphs == COMPILED


def test_graphs_are_kept_over_runs() -> None:
    setting = setting_of("fedavg")
    one_round(setting, CohortEngine(setting.work, compile="trace"))
    before = dict(COMPILED)
    again = replace(setting, method=read_method("fedavg"))
    one_round(again, CohortEngine(again.work, compile="trace"))
    assert before == COMPILED


@pytest.mark.parametrize("compile", ["none", pytest.param("trace", marks=pytest.mark.slow)])
def test_chunks_shrink_until_they_fit(compile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, compute = setting_of("map"), cohort_module.round_of_group
    sizes = []

    def with_little_memory(*arguments: Any) -> Any:
        sizes.append(len(arguments[4]))
        if len(arguments[4]) > 2:
            raise torch.OutOfMemoryError("no room")
        return compute(*arguments)

    expected = one_round(setting, LoopEngine(setting.work))
    monkeypatch.setattr(cohort_module, "round_of_group", with_little_memory)
    engine = CohortEngine(setting.work, compile=compile)
    assert_equal(one_round(setting, engine), expected)
    assert sizes[:2] == [6, 3] and set(sizes[2:]) == {1}
    assert engine.chunk == 1


def test_client_that_does_not_fit_is_a_mistake_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_memory(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(cohort_module, "round_of_group", without_memory)
    setting = setting_of("fedavg")
    with pytest.raises(UserError, match="one client alone does not fit"):
        one_round(setting, CohortEngine(setting.work))


def test_what_cannot_be_batched_runs_client_by_client_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*arguments: Any) -> Any:
        raise RuntimeError("vmap: not this one")

    setting = setting_of("map")
    monkeypatch.setattr(cohort_module, "round_of_group", cannot)
    engine = CohortEngine(setting.work)
    with pytest.warns(UserWarning, match="client by client, it cannot be batched: vmap: not this one"):
        found = one_round(setting, engine)
    assert_equal(found, one_round(setting, LoopEngine(setting.work)))
    one_round(setting, engine)  # says it once


def test_stage_that_cannot_be_traced_is_vmapped_and_says_so() -> None:
    def loss(inner: Loss, view: View) -> Loss:
        def total(params: Tree, batch: Batch, out: Out) -> Tensor:
            return inner(params, batch, out) * (2.0 if view.clock.round < 5 else 1.0)

        return total

    setting = setting_of("fedavg")
    setting = replace(setting, method=chain(average(), Part("by_round", loss=loss)))
    engine = CohortEngine(setting.work, compile="trace")
    with pytest.warns(UserWarning, match="stage main of average . by_round runs uncompiled"):
        found = one_round(setting, engine)
    assert_equal(found, one_round(setting, LoopEngine(setting.work)))
    one_round(setting, engine)  # says it once


def test_step_that_inductor_cannot_compile_is_traced_and_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it goes wrong on a GPU: the log has pages, and the error comes wrapped in others."""

    def cannot(*arguments: Any) -> Any:
        error = ValueError("Scalar 5000000000 is out of range for type int32\n\nat 12:3: the kernel's source")
        kernels = logging.getLogger("torch._inductor.runtime.triton_heuristics")
        kernels.error("Triton compilation failed: %s", "page after page\n" * 99, exc_info=error)
        raise error

    logged = BufferingHandler(99)
    monkeypatch.setattr(logging.getLogger("torch._inductor"), "handlers", [logged])
    monkeypatch.setattr("torch._inductor.graph.GraphLowering.run", cannot)
    setting = setting_of("fedavg", model="mlpnet(hidden=4)")
    engine = CohortEngine(setting.work, compile="inductor")
    with (
        warnings.catch_warnings(record=True) as said,
        torch._inductor.config.patch(force_disable_caches=True),
    ):
        warnings.simplefilter("always")
        found = one_round(setting, engine)
        one_round(setting, engine)  # says it once
    (warning,) = said
    text = warnings.formatwarning(
        warning.message, warning.category, warning.filename, warning.lineno, warning.line
    )
    sentence = "a step runs without inductor: Scalar 5000000000 is out of range for type int32"
    assert text == f"idiolect:1: UserWarning: {sentence}\n"
    assert not logged.buffer
    assert_equal(found, one_round(setting, LoopEngine(setting.work)))


def test_plans_made_ahead_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of("superfed_mm")
    plain, ahead = (CohortEngine(setting.work, compile="trace") for _ in range(2))
    expected = one_round(setting, plain)
    for round in (1, 0):
        ahead.look_ahead(setting.program(round), list(range(6)))
    monkeypatch.delattr(Planner, "make")  # what was planned is used
    assert_equal(one_round(setting, ahead), expected)


def test_plans_of_past_rounds_are_forgotten() -> None:
    setting = setting_of("superfed_mm")
    planner, group = Planner(setting.work), list(range(6))
    for round in range(3):
        planner.look_ahead(setting.program(round), group)
    program = setting.program(1)
    stage = program.method.plan(program.scene, program.clock).before[0]
    plan = planner.plan(setting.work, program, stage, group)
    assert torch.equal(plan.table, Planner(setting.work).make(program, stage, group).table)
    assert {round for round, _, _ in planner._ahead} == {2}


def stop_after(asked: int) -> Callable[[], bool]:
    answers = iter([False] * asked + [True])
    return lambda: next(answers)


@pytest.mark.parametrize("planned", [0, 1, 5])
@pytest.mark.parametrize(
    ("knew_keys", "needs_keys"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_a_plan_that_was_stopped_is_finished(
    planned: int, knew_keys: bool, needs_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_of("superfed_mm")
    planner, fresh, group = Planner(setting.work), Planner(setting.work), list(range(6))
    program = setting.program(1)
    stage = program.method.plan(program.scene, program.clock).before[0]
    planner.reads_keys[stage.name] = knew_keys
    planner.look_ahead(program, group, stop_after(planned // 2))
    planner.look_ahead(program, group, stop_after(planned - planned // 2))
    planner.reads_keys[stage.name] = fresh.reads_keys[stage.name] = needs_keys
    expected = fresh.make(program, stage, group)
    made, plan = [], Workload.plan
    monkeypatch.setattr(Workload, "plan", lambda *given: made.append(given[3]) or plan(*given))
    found = planner.plan(setting.work, program, stage, group)
    assert torch.equal(found.table, expected.table) and found.with_keys == needs_keys
    assert found.draws.keys() == expected.draws.keys() != set()
    assert all(torch.equal(drawn, expected.draws[part]) for part, drawn in found.draws.items())
    assert made == (group if needs_keys and not knew_keys else group[planned:])
    assert not planner._begun


def test_what_was_begun_of_past_rounds_is_forgotten() -> None:
    setting = setting_of("fedavg")
    planner, group = Planner(setting.work), list(range(6))
    for round in (0, 1, 2):
        planner.look_ahead(setting.program(round), group, stop_after(2))
    program = setting.program(1)
    stage = program.method.plan(program.scene, program.clock).before[0]
    planner.plan(setting.work, program, stage, group)
    assert {round for round, _, _ in planner._begun} == {2}
    planner.forget()
    assert not planner._begun


def test_cohort_plans_nothing_where_the_host_has_something_else_to_do() -> None:
    setting = setting_of("fedavg")
    engine = CohortEngine(setting.work, compile="trace")
    engine.look_ahead(setting.program(0), list(range(6)), lambda: True)
    planner = engine._compiled._planner
    assert not planner._ahead and not any(begun.own for begun in planner._begun.values())
    engine.look_ahead(setting.program(0), list(range(6)))
    assert planner._ahead


@pytest.mark.parametrize(("busy_for", "planned"), [(0, []), (2, [1, 2]), (99, [1, 2, 3, 4])])
def test_rounds_are_planned_while_the_device_is_busy(
    busy_for: int, planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no further than the run goes."""
    looks = iter([False] * busy_for + [True])
    event = SimpleNamespace(query=lambda: next(looks))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(record_event=lambda: event))
    setting = setting_of("fedavg", rounds=5)
    engine, found = CohortEngine(setting.work), []
    monkeypatch.setattr(
        CohortEngine,
        "look_ahead",
        lambda _, program, clients, stop: found.append((program.clock.round, stop)),
    )
    clients = Simulation.start(setting, engine).participants
    engine._plan_while_busy(clients.upcoming(setting.program(0)))
    assert found == [(round, event.query) for round in planned]


def test_plans_ahead_hold_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of("fedavg")
    planner, group = Planner(setting.work), list(range(6))
    monkeypatch.setattr("idiolect.engines.cohort.cuda.lane_batch_plans.AHEAD_BYTES", 1)
    for round in range(3):
        planner.look_ahead(setting.program(round), group)
    assert {round for round, _, _ in planner._ahead} == {0}


def test_without_memory_a_round_is_not_planned_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of("fedavg")
    engine = CohortEngine(setting.work, compile="trace")

    def runs_out(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(Planner, "make", runs_out)
        engine.look_ahead(setting.program(0), list(range(6)))
    assert_equal(one_round(setting, engine), one_round(setting, LoopEngine(setting.work)))


def test_a_group_of_more_steps_than_expected_finds_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layout, "most_steps", lambda *_: 0)
    monkeypatch.setattr("idiolect.engines.cohort.cuda.cuda_graphs.TRIALS", 1)
    monkeypatch.setattr(
        "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
        lambda population, n_clients: Layout(2, True),
    )
    setting = setting_of("fedavg", dataset="tiny", participation_rate=0.5, rounds=4)
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile="trace")),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.slow
def test_keys_reach_the_step_that_reads_them() -> None:
    """A network with dropout, after one without in the same engine's memory of the stage."""
    setting = setting_of("fedavg", model="vgg11_fc", dataset="tiny(channels=3, size=32)", local_epochs=0.5)
    engine = CohortEngine(setting.work, compile="trace")
    assert engine._compiled is not None
    engine._compiled._planner.reads_keys["main"] = False
    assert_equal(one_round(setting, engine), one_round(setting, LoopEngine(setting.work)))
