"""Clients on lanes: everybody works, nobody twice at once, and nobody waits without need."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.engines.cohort.cuda.lane_assignment import Layout, assign, choose_layout

LAYOUTS = [Layout(n_lanes, apart) for n_lanes in (1, 2, 3, 7, 12) for apart in (False, True)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_step_of_every_client_has_its_place(layout):
    steps = [4, 0, 7, 1, 1, 3, 9, 2]
    jobs = assign(steps, layout)
    assert {job.client: job.stop - job.start for job in jobs} == {c: n for c, n in enumerate(steps) if n}
    taken = [(job.lane, t) for job in jobs for t in range(job.start, job.stop)]
    assert len(set(taken)) == len(taken) == sum(steps)
    assert all(0 <= job.lane < layout.n_lanes for job in jobs)


@pytest.mark.parametrize("layout", [(2, False), (2, True)])
def test_longest_client_never_waits(layout):
    jobs = assign([2, 2, 2, 2, 9], Layout(*layout))
    assert max(job.stop for job in jobs) == 9


def test_clients_with_lanes_enough_keep_their_numbers_in_step_and_stand_longest_first_apart():
    assert [tuple(job) for job in assign([3, 0, 5], Layout(4, apart=False))] == [(0, 0, 0, 3), (2, 2, 0, 5)]
    assert [tuple(job) for job in assign([3, 0, 5], Layout(3, apart=True))] == [(2, 0, 0, 5), (0, 1, 0, 3)]


def log_normal(sigma: float) -> np.ndarray:
    sizes = np.exp(sigma * np.random.default_rng(0).standard_normal(100) - sigma**2 / 2)
    return np.maximum(7 * sizes, 1).round().astype(int)


def test_equal_clients_have_a_lane_each_in_step():
    assert choose_layout([7] * 100, 20) == (20, False)
    assert choose_layout([7] * 90 + [6] * 10, 20) == (20, False)
    assert choose_layout([7] * 90 + [9] * 10, 20) == (20, False)
    assert choose_layout([7] * 90 + [12] * 10, 20) == (20, True)
    assert [choose_layout([10] * 100, n) for n in range(1, 8)] == [(n, False) for n in range(1, 8)]


def test_a_little_unequal_clients_have_fewer_lanes_in_step():
    steps = log_normal(0.3)
    layout = choose_layout(steps, 100)
    assert not layout.apart
    jobs = assign(steps, layout)
    assert steps.sum() / (layout.n_lanes * max(job.stop for job in jobs)) > 0.75


@pytest.mark.parametrize("n_clients", [20, 100])
def test_very_unequal_clients_have_lanes_apart_that_end_with_the_longest_of_them(n_clients):
    steps = [*log_normal(1.0)[1:], 150]
    layout = choose_layout(steps, n_clients)
    assert layout.apart and layout.n_lanes <= n_clients
    assert max(job.stop for job in assign(steps, layout)) == 150


def test_one_client_has_one_lane():
    assert choose_layout([5, 50], 1) == (1, False)


def test_the_layout_does_not_depend_on_who_is_drawn():
    population = [1, 2, 3, 50]
    assert choose_layout(population, 2) == choose_layout(population[::-1], 2)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_group_makes_more_steps_than_there_is_room_for(layout):
    population = [4, 0, 7, 1, 1, 3, 9, 2, 30]
    for n_clients in range(1, len(population) + 1):
        for group in (population[:n_clients], population[-n_clients:]):
            made: dict[int, int] = {}
            for job in assign(group, layout):
                program = job.lane if layout.apart else 0
                made[program] = max(made.get(program, 0), job.stop)
            assert sum(made.values()) <= layout.most_steps(population, n_clients)
