"""A traced step computes what the step computes, in place, with numbers as inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core import Tree
from idiolect.core.trees import flatten, tree_leaves
from idiolect.engines.cohort.cuda.traced_step import StepGraph, step_graph
from idiolect.engines.cohort.tracing import graph_of

SHIFT = torch.tensor([1.0, 2.0, 3.0])


def step_with(rate: float, by: Tensor = SHIFT):  # type: ignore[no-untyped-def]
    def step(context: dict[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
        moved = state["w"] - rate * (context["x"] + by) / 0.25
        return {"w": moved, "kept": state["kept"], "count": state["count"] + 1}

    return step


def graph_on(step: Callable[..., Tree], context: Tree, state: Tree) -> StepGraph:
    leaves, takes = flatten((context, state))
    return step_graph(graph_of(step, leaves, takes).graph, leaves, len(tree_leaves(context)))


def traced(rate: float, by: Tensor = SHIFT, extra: int = 0) -> StepGraph:
    unused = {f"unused {i}": torch.zeros(2) for i in range(extra)}
    context = {**unused, "x": torch.ones(3), "late": torch.zeros(4)}
    return graph_on(
        step_with(rate, by), context, {"w": torch.zeros(3), "kept": torch.ones(1), "count": torch.zeros(())}
    )


def test_state_is_changed_in_place_and_the_rest_is_not_read():
    found = traced(0.5)
    x, w, count = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]), torch.tensor(3.0)
    expected = w - 0.5 * (x + SHIFT) / 0.25
    assert found.used == (0, 2, 4)  # not "late", not "kept"
    assert found.changed == (1, 2)
    found.module(x, w, count, *found.constants)
    torch.testing.assert_close(w, expected)
    assert float(count) == 4


def test_numbers_and_tensors_of_a_step_are_inputs_of_one_graph():
    one, other = traced(0.5), traced(2.0, torch.tensor([0.0, 0.0, 9.0]))
    assert one.text == other.text
    w = torch.zeros(3)
    one.module(torch.ones(3), w, torch.zeros(()), *other.constants)
    torch.testing.assert_close(w, -2.0 * torch.tensor([1.0, 1.0, 10.0]) / 0.25)


def test_text_depends_neither_on_what_is_not_read_nor_on_its_number():
    assert traced(0.5).text == traced(0.5, extra=3).text
    assert traced(0.5, extra=3).used == (3, 5, 7)


def test_text_depends_on_shapes_and_operations():
    def doubled(context: dict[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"w": state["w"] * context["x"]}

    texts = {graph_on(doubled, {"x": torch.ones(n)}, {"w": torch.zeros(n)}).text for n in (2, 3)}
    assert len({*texts, traced(0.5).text}) == 3
