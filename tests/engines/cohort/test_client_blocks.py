"""Blocks of a group: every step of every client once, in its order, and each state back in its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from idiolect.core import Context, Facts, State
from idiolect.engines.cohort.batches import (
    LARGEST,
    ClientBlock,
    blocks_of,
    few_sizes,
    one_size,
    run_blocks,
)

SIZES = pytest.mark.parametrize("sizes", [one_size, few_sizes])


@SIZES
@given(steps=st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_blocks_hold_every_step_of_every_client_in_its_order(
    sizes: Callable[[int], list[int]], steps: list[int]
) -> None:
    steps = sorted(steps, reverse=True)
    made: list[list[int]] = [[] for _ in steps]
    for rows, start, stop in blocks_of(steps, sizes):
        for client in range(rows.start, rows.stop):
            made[client] += range(start, stop)
        if sizes is few_sizes:
            assert rows.stop - rows.start in [1 << n for n in range(LARGEST.bit_length())]
    assert made == [list(range(count)) for count in steps]


def _context(samples: torch.Tensor) -> Context:
    return Context({"w": torch.ones(3)}, {"name": samples}, Facts(samples, samples, samples), {})


def _state(start: torch.Tensor) -> State:
    return State({"new": start}, {}, {}, {"before": torch.zeros_like(start)}, *torch.zeros(2, len(start)), {})


@SIZES
def test_states_go_back_to_their_places_and_nothing_given_is_written_to(
    sizes: Callable[[int], list[int]],
) -> None:
    name = torch.tensor([10.0, 20.0, 30.0, 40.0])
    steps, order = [5, 4, 2, 1], [1, 3, 0, 2]  # client 1 makes 5 steps, client 3 makes 4, ...
    context, state = _context(name), _state(torch.zeros(4))

    def run(block: ClientBlock, context: Context, state: State) -> State:
        for _ in range(block.start, block.stop):
            now = state.params["new"]
            state = state._replace(params={"new": now + context.private["name"]}, carry={"before": now})
        return state

    found = run_blocks(blocks_of(steps, sizes), order, context, state, run)
    made = torch.tensor([2.0, 5.0, 1.0, 4.0])
    torch.testing.assert_close(found.params["new"], name * made)
    torch.testing.assert_close(found.carry["before"], name * (made - 1))
    assert not state.params["new"].any()
