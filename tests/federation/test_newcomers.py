"""Clients held out as newcomers: drawn by the seed, numbered last, not of the population."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.federation import SplitRules, federate, newcomers_last
from idiolect.partition import Partition


@given(st.integers(1, 30), st.data(), st.integers(0, 99))
def test_everyone_is_numbered_once_and_each_group_in_order(n_clients, data, seed):
    count = data.draw(st.integers(0, n_clients - 1))
    order = newcomers_last(n_clients, count, seed=seed)
    assert sorted(order) == list(range(n_clients))
    members, newcomers = order[: n_clients - count], order[n_clients - count :]
    assert members == sorted(members) and newcomers == sorted(newcomers)
    assert order == newcomers_last(n_clients, count, seed=seed)


def test_seed_decides_and_every_client_can_be_one():
    drawn = [tuple(newcomers_last(6, 2, seed=seed)[4:]) for seed in range(200)]
    counts = np.bincount(np.ravel(drawn), minlength=6)
    assert counts.min() > 40  # 200 * 2 / 6 is 67
    assert len(set(drawn)) == 15


@pytest.mark.parametrize("count", [-1, 3, 7])
def test_somebody_must_be_left_to_train(count):
    with pytest.raises(UserError, match=f"newcomers is {count} but there are 3 clients"):
        newcomers_last(3, count, seed=0)


def test_federation_keeps_each_clients_split_under_its_new_number():
    labels = np.arange(40) % 2
    images = np.zeros((40, 1, 2, 2), np.uint8)
    dataset = Dataset("toy", images, labels, images[:4], labels[:4], 2, (0.0,), (1.0,), {})
    partition = Partition(tuple(np.arange(10 * k, 10 * k + 10) for k in range(4)), {})
    plain = federate(dataset, partition, SplitRules(valid=0.2, test=0.2), seed=1)
    made = federate(dataset, partition, SplitRules(valid=0.2, test=0.2, newcomers=2), seed=1)
    assert (plain.population, plain.newcomers) == (4, ())
    assert (made.population, len(made.clients), len(made.newcomers)) == (2, 4, 2)
    order = newcomers_last(4, 2, seed=1)
    assert made.newcomers == tuple(order[2:]) and order != [0, 1, 2, 3]
    for number, client in enumerate(order):
        for found, wanted in zip(made.clients[number], plain.clients[client], strict=True):
            np.testing.assert_array_equal(found, wanted)
