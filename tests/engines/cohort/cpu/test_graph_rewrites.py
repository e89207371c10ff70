"""A graph that is simplified and works in place computes what it computed, and touches nothing but its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from idiolect.core import Tree
from idiolect.core.trees import flatten
from idiolect.engines.cohort.cpu.graph_rewrites import (
    PLAIN,
    call_plainly,
    own_memory,
    row_major,
    simplify,
    write_over,
)
from idiolect.engines.cohort.tracing import graph_of

aten = torch.ops.aten
Step = Callable[[dict[str, Tensor], dict[str, Tensor]], dict[str, Tensor]]


def rewritten(step: Step, state: dict[str, Tensor], given: dict[str, Tensor]) -> fx.GraphModule:
    leaves, takes = flatten((state, given))
    module, gives = graph_of(step, leaves, takes)
    assert gives == flatten(state)[1]
    simplify(module)
    places = module.graph.find_nodes(op="placeholder")[: len(state)]
    own_memory(module.graph, places)
    write_over(module.graph, places)
    module.graph.lint()
    module.recompile()
    return module


def operations(module: fx.GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def moved(state: Tree, given: Tree) -> Tree:
    gradient = torch.bmm(given["a"].mT, given["b"]).mT.mT
    velocity = torch.add(gradient, state["v"], alpha=0.9)
    return {"p": torch.addcmul(state["p"], velocity, given["rate"], value=-1), "v": velocity}


def shared(state: Tree, given: Tree) -> Tree:
    new = state["p"] + given["b"]
    return {"p": new, "v": new}


def swapped(state: Tree, given: Tree) -> Tree:
    return {"p": state["v"], "v": state["p"] + given["b"]}


def looked_at_later(state: Tree, given: Tree) -> Tree:
    new = state["p"] + given["b"]
    return {"p": new, "v": state["p"].mT.mT * new}


def viewed(state: Tree, given: Tree) -> Tree:
    new = state["p"] * 2
    return {"p": new, "v": new.flatten().view_as(new)}


def from_itself(state: Tree, given: Tree) -> Tree:
    return {"p": torch.baddbmm(state["p"], state["p"].mT, state["p"]), "v": state["v"]}


def a_constant(state: Tree, given: Tree) -> Tree:
    return {"p": state["p"] + given["b"], "v": torch.ones(2, 3, 3)}


def written_to(state: Tree, given: Tree) -> Tree:
    one, other = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)
    one.add_(given["b"])
    return {"p": state["p"] + one, "v": state["v"] + other}


def seen_twice(state: Tree, given: Tree) -> Tree:
    p, v = state["p"] + given["b"], state["v"] * 3
    transposed = (p * v.view(2, 3, 3)).mT
    return {"p": transposed.contiguous(), "v": transposed.reshape(2, 9)}


STEPS = [seen_twice, moved, shared, swapped, looked_at_later, viewed, from_itself, a_constant, written_to]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_steps_one_after_the_other_equal_the_function(step: Step) -> None:
    torch.manual_seed(0)
    state = {name: torch.randn(2, 3, 3) for name in ("p", "v")}
    given = {"a": torch.randn(2, 4, 3), "b": torch.randn(2, 3, 3), "rate": torch.tensor(0.1)}
    given["b"] = given["b"] if step is not moved else torch.randn(2, 4, 3)
    state["v"] = state["v"] if step is not seen_twice else torch.randn(2, 9)
    before = {name: leaf.clone() for name, leaf in given.items()}
    graph = rewritten(step, state, given)
    held = [leaf.clone() for leaf in state.values()]
    for _ in range(3):
        state = step(state, given)
        held = graph(*held, *given.values())
        torch.testing.assert_close(held, list(state.values()))
        assert held[0].data_ptr() != held[1].data_ptr()
    torch.testing.assert_close(given, before, rtol=0, atol=0)


def test_momentum_is_one_product_that_writes_over_the_velocity() -> None:
    state = {name: torch.randn(2, 3, 3) for name in ("p", "v")}
    given = {"a": torch.randn(2, 4, 3), "b": torch.randn(2, 4, 3), "rate": torch.tensor(0.1)}
    found = operations(rewritten(moved, state, given))
    assert found == [aten.transpose.int, aten.baddbmm_.default, aten.addcmul_.default]


def test_what_is_the_same_is_computed_once_and_constants_never() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        constant = torch.zeros(()) + 1
        return {"p": state["p"] + given["b"].exp() + given["b"].exp() * constant}

    found = operations(rewritten(step, {"p": torch.ones(2)}, {"b": torch.ones(2)}))
    assert found.count(aten.exp.default) == 1
    assert aten.zeros.default not in found


def test_draws_stay_apart() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        return {"p": state["p"] + torch.rand(2) - torch.rand(2)}

    assert (
        operations(rewritten(step, {"p": torch.ones(2)}, {"b": torch.ones(2)})).count(aten.rand.default) == 2
    )


@pytest.mark.parametrize(
    ("rows", "classes", "is_transposed"), [(64, 10, True), (64, 40, False), (8, 10, False)]
)
@pytest.mark.parametrize("softmax", [torch.log_softmax, torch.softmax])
def test_softmax_over_few_classes_is_transposed_and_stays_the_same(
    softmax: Callable[..., Tensor], rows: int, classes: int, is_transposed: bool
) -> None:
    def gradient(state: Tree, given: Tree) -> Tree:
        def total(x: Tensor) -> Tensor:
            return (softmax(x, -1) * given["g"]).sum()

        return {"x": state["x"] + torch.func.grad(total)(state["x"])}

    state = {"x": torch.randn(3, rows, classes)}
    check_transposed(gradient, state, {"g": torch.randn(3, rows, classes)}, is_transposed)


@pytest.mark.parametrize(
    ("rows", "columns", "is_transposed"), [(64, 100, True), (64, 96, False), (50, 100, False)]
)
def test_a_product_of_odd_columns_is_transposed_and_stays_the_same(
    rows: int, columns: int, is_transposed: bool
) -> None:
    def step(state: Tree, given: Tree) -> Tree:
        return {"x": state["x"] + torch.bmm(given["a"], given["b"].mT).relu().sum()}

    given = {"a": torch.randn(3, rows, 20), "b": torch.randn(3, columns, 20)}
    check_transposed(step, {"x": torch.randn(2)}, given, is_transposed)


def test_what_a_step_gives_lies_in_memory_as_it_did() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        return {"x": torch.bmm(given["a"], state["x"])}

    check_transposed(step, {"x": torch.randn(3, 64, 100)}, {"a": torch.randn(3, 64, 64)}, False)


def test_a_view_of_rows_that_follow_each_other_keeps_them_so() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        return {"x": state["x"] + torch.bmm(given["a"], given["b"]).view(-1).sum()}

    check_transposed(
        step, {"x": torch.randn(2)}, {"a": torch.randn(3, 64, 5), "b": torch.randn(3, 5, 9)}, False
    )


def check_transposed(step: Step, state: Tree, given: Tree, is_transposed: bool) -> None:
    leaves, takes = flatten((state, given))
    module, _ = graph_of(step, leaves, takes)
    expected = module(*leaves)
    found = row_major(module)
    found.graph.lint()
    found.recompile()
    assert (operations(found) != operations(module)) == is_transposed
    torch.testing.assert_close(found(*leaves), expected)
    assert [leaf.stride() for leaf in found(*leaves)] == [leaf.stride() for leaf in expected]


def test_memory_that_is_looked_at_by_strides_stays_as_it_is() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        seen = torch.bmm(given["a"], given["b"]).as_strided((3, 64, 9), (576, 9, 1))
        return {"x": state["x"] + (seen * torch.arange(9)).sum()}

    check_transposed(
        step, {"x": torch.randn(2)}, {"a": torch.randn(3, 64, 5), "b": torch.randn(3, 5, 9)}, False
    )


def test_a_product_that_must_stay_lets_a_softmax_be_transposed() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        chances = given["x"].softmax(-1).sum()
        return {"x": torch.bmm(given["a"], state["x"]) + chances}

    given = {"a": torch.randn(3, 64, 64), "x": torch.randn(3, 64, 10)}
    check_transposed(step, {"x": torch.randn(3, 64, 100)}, given, True)


def test_large_constants_are_made_anew() -> None:
    def step(state: Tree, given: Tree) -> Tree:
        return {"p": state["p"] + torch.zeros_like(given["b"]).cumsum(0)}

    found = operations(rewritten(step, {"p": torch.ones(2)}, {"b": torch.ones(2)}))
    assert found == [aten.add_.Tensor]
    found = operations(rewritten(step, {"p": torch.ones(1 << 17)}, {"b": torch.ones(1 << 17)}))
    assert aten.zeros_like.default in found


A, B, C = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 4, 5)
PLACES = torch.randint(4, (2, 3, 1))
CALLS: dict[Any, tuple[list[Any], dict[str, Any]]] = {
    aten._log_softmax.default: ([A, 1, False], {}),
    aten._log_softmax_backward_data.default: ([A, B, 1, torch.float32], {}),
    aten.add.Tensor: ([A, B], {"alpha": 0.9}),
    aten.add_.Tensor: ([A, B], {}),
    aten.addcmul_.default: ([A, B, torch.tensor(0.5)], {"value": -1}),
    aten.baddbmm_.default: ([torch.randn(2, 3, 5), A, C], {"beta": 0.9}),
    aten.bmm.default: ([A, C], {}),
    aten.clamp.default: ([A, 0.1], {}),
    aten.clone.default: ([A.mT], {"memory_format": torch.contiguous_format}),
    aten.div.Tensor: ([A, B], {}),
    aten.expand.default: ([A[:, :1], [2, 3, 4]], {}),
    aten.gather.default: ([A, 2, PLACES], {}),
    aten.gt.Scalar: ([A, 0], {}),
    aten.mul.Tensor: ([A, B], {}),
    aten.neg.default: ([A], {}),
    aten.relu.default: ([A], {}),
    aten.scatter_add.default: ([A, 2, PLACES, B[..., :1]], {}),
    aten.select.int: ([A, 2, 1], {}),
    aten.squeeze.dims: ([A[..., :1], [2]], {}),
    aten.sub.Tensor: ([A, B], {}),
    aten.sum.dim_IntList: ([A, [1], True], {}),
    aten.transpose.int: ([A, -2, -1], {}),
    aten.unsqueeze.default: ([A, 2], {}),
    aten.view.default: ([A, [2, 12]], {}),
    aten.where.self: ([A > 0, A, torch.tensor(0.0)], {}),
}


@pytest.mark.parametrize("operation", PLAIN, ids=str)
def test_plain_calls_give_the_same(operation: Any) -> None:
    graph = fx.Graph()
    given, options = CALLS[operation]
    inputs = [graph.placeholder(f"x{n}") if isinstance(x, Tensor) else x for n, x in enumerate(given)]
    graph.output(graph.call_function(operation, tuple(inputs), options))
    call_plainly(graph)
    assert operation not in [node.target for node in graph.nodes]

    def copies() -> list[Any]:
        return [x.clone() if isinstance(x, Tensor) else x for x in given]

    found = fx.GraphModule({}, graph)(*(x for x in copies() if isinstance(x, Tensor)))
    torch.testing.assert_close(found, operation(*copies(), **options), rtol=0, atol=0)
