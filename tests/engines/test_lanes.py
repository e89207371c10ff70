"""Clients on lanes: everybody works, nobody twice at once, and nobody waits without need."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.engines.lanes import assign, count_lanes


@pytest.mark.parametrize("n_lanes", [1, 2, 3, 7, 12])
def test_every_step_of_every_client_has_its_place(n_lanes):
    steps = [4, 0, 7, 1, 1, 3, 9, 2]
    jobs = assign(steps, n_lanes)
    assert {job.client: job.stop - job.start for job in jobs} == {c: n for c, n in enumerate(steps) if n}
    taken = [(job.lane, t) for job in jobs for t in range(job.start, job.stop)]
    assert len(set(taken)) == len(taken) == sum(steps)
    assert all(0 <= job.lane < max(n_lanes, len(steps)) for job in jobs)


def test_longest_client_never_waits():
    jobs = assign([2, 2, 2, 2, 9], 2)
    assert max(job.stop for job in jobs) == 9


def test_clients_with_lanes_enough_keep_their_numbers():
    assert [tuple(job) for job in assign([3, 0, 5], 4)] == [(0, 0, 0, 3), (2, 2, 0, 5)]


def test_equal_clients_have_a_lane_each_and_unequal_ones_fewer():
    assert count_lanes([7] * 100, 20) == 20
    assert count_lanes([7] * 90 + [6] * 10, 20) == 20
    sizes = np.exp(np.random.default_rng(0).standard_normal(100) - 0.5)
    steps = np.maximum(7 * sizes, 1).round().astype(int)
    lanes = count_lanes(steps, 100)
    jobs = assign(steps, lanes)
    busy = steps.sum() / (lanes * max(job.stop for job in jobs))
    assert lanes < 30 and busy > 0.85


def test_lanes_do_not_depend_on_who_is_drawn():
    population = [1, 2, 3, 50]
    assert count_lanes(population, 2) == count_lanes(population[::-1], 2)
