"""Partitions that draw little: iid, shards, the two-client demonstration, one client per id."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.partition import by_id, iid, pathological_shards, two_client_demo

CIFAR10 = np.repeat(np.arange(10), 5000)


@settings(max_examples=40, deadline=2000)
@given(n_rows=st.integers(1, 200), data=st.data())
def test_iid_sizes_differ_by_at_most_one_and_nothing_is_dropped(n_rows, data):
    n_clients = data.draw(st.integers(1, n_rows))
    made = iid(np.zeros(n_rows, dtype=int), n_clients, seed=0)
    sizes = [rows.size for rows in made.clients]
    assert max(sizes) - min(sizes) <= 1
    assert made.dropped == {}


def test_iid_clients_hold_all_classes_alike():
    made = iid(CIFAR10, 10, seed=0)
    counts = np.array([np.bincount(CIFAR10[rows], minlength=10) for rows in made.clients])
    assert counts.min() > 400
    assert counts.max() < 600


def test_shards_of_cifar10_are_250_rows_of_one_class():
    made = pathological_shards(CIFAR10, 100, seed=0)
    for rows in made.clients:
        counts = np.bincount(CIFAR10[rows], minlength=10)
        assert set(counts) <= {0, 250, 500}
        assert counts.sum() == 500


def test_shards_are_taken_from_data_sorted_by_label():
    shuffled = np.random.default_rng(0).permutation(CIFAR10)
    made = pathological_shards(shuffled, 100, seed=0)
    assert max(np.unique(shuffled[rows]).size for rows in made.clients) == 2


def test_deterministic_client_gets_shards_k_and_k_plus_number_of_clients():
    made = pathological_shards(CIFAR10, 100, seed=0, deterministic=True)
    for client, rows in enumerate(made.clients):
        expected = [
            *range(client * 250, client * 250 + 250),
            *range((client + 100) * 250, (client + 101) * 250),
        ]
        assert rows.tolist() == expected


def test_deterministic_shards_know_five_pairs_and_random_ones_more():
    def pairs(deterministic):
        made = pathological_shards(CIFAR10, 100, seed=0, deterministic=deterministic)
        return {tuple(np.unique(CIFAR10[rows])) for rows in made.clients}

    assert pairs(True) == {(c, c + 5) for c in range(5)}
    assert len(pairs(False)) > 20


def test_uneven_shards_keep_every_row():
    labels = np.repeat(np.arange(10), 180)[:1797]
    made = pathological_shards(labels, 100, seed=0)
    assert made.dropped == {}
    assert {rows.size for rows in made.clients} <= {16, 17, 18}
    assert np.unique(labels[np.concatenate(made.clients)]).size == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards_per_client": 0}, "shards_per_client=0 must be a whole number of at least 1"),
        (
            {"shards_per_client": 501},
            "makes 50100 shards of 50000 samples; the product must be at most 50000",
        ),
        ({"deterministic": "yes"}, "deterministic='yes' must be True or False"),
    ],
)
def test_wrong_shard_option_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        pathological_shards(CIFAR10, 100, seed=0, **options)


def test_two_clients_split_the_digits_in_the_middle():
    labels = np.random.default_rng(0).integers(0, 10, 500)
    first, second = two_client_demo(labels).clients
    assert set(labels[first]) == {0, 1, 2, 3, 4}
    assert set(labels[second]) == {5, 6, 7, 8, 9}


def test_two_client_demo_refuses_other_numbers_and_a_single_class():
    with pytest.raises(UserError, match="n_clients=3 must be a whole number from 2 to 2"):
        two_client_demo(CIFAR10, 3)
    with pytest.raises(UserError, match="single class"):
        two_client_demo(np.zeros(5, dtype=int))


@pytest.mark.parametrize("as_ids", [np.array, lambda names: np.array(names, dtype=object), list])
def test_every_id_is_one_client_in_ascending_order(as_ids):
    made = by_id(np.zeros(5, dtype=int), 3, seed=0, ids=as_ids(["b", "a", "c", "a", "b"]))
    assert [rows.tolist() for rows in made.clients] == [[1, 3], [0, 4], [2]]
    assert made.dropped == {}


def test_fewer_clients_than_ids_draws_ids_and_drops_the_others():
    ids = np.repeat(np.arange(20), 5)
    draws = [by_id(ids, 6, seed=seed, ids=ids) for seed in range(2)]
    chosen = [[int(ids[rows[0]]) for rows in made.clients] for made in draws]
    assert chosen[0] != chosen[1]
    assert all(numbers == sorted(set(numbers)) for numbers in chosen)
    assert draws[0].report(ids)["dropped"] == {"id not drawn": 70}


def test_no_number_takes_every_id_and_names_it():
    made = by_id(np.zeros(5, dtype=int), seed=0, ids=["b", "a", "c", "a", "b"])
    assert made.ids == ("a", "b", "c")
    assert made.report(np.zeros(5, dtype=int))["ids"] == ["a", "b", "c"]


def test_drawn_clients_keep_their_own_ids():
    ids = np.repeat(np.arange(100, 120), 5)
    made = by_id(ids, 6, seed=0, ids=ids)
    assert made.ids == tuple(int(ids[rows[0]]) for rows in made.clients)
    assert all(type(name) is int for name in made.ids)


def test_ids_outside_the_range_of_sizes_are_left_out_before_any_is_drawn():
    ids = np.repeat(np.arange(6), [1, 2, 3, 4, 5, 6])
    for seed in range(8):
        made = by_id(ids, 2, seed=seed, ids=ids, min_samples=3, max_samples=5)
        assert set(made.ids) < {2, 3, 4}
        assert all(3 <= rows.size <= 5 for rows in made.clients)
        dropped = made.report(ids)["dropped"]
        assert dropped["id with fewer than 3 samples"] == 3
        assert dropped["id with more than 5 samples"] == 6
    assert by_id(ids, seed=0, ids=ids, min_samples=3, max_samples=5).ids == (2, 3, 4)


def test_range_of_sizes_that_no_id_fits_is_refused():
    ids = np.repeat(np.arange(2), 4)
    with pytest.raises(UserError, match="none of the 2 ids has from min_samples=5 to max_samples=9 samples"):
        by_id(ids, seed=0, ids=ids, min_samples=5, max_samples=9)
    with pytest.raises(UserError, match="max_samples=4 must be a whole number of at least 5"):
        by_id(ids, seed=0, ids=ids, min_samples=5, max_samples=4)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (None, "by_id: this data has no ids"),
        ([1, 2], "by_id: ids must be 3 whole numbers or strings, one per row"),
        ([0.5, 1.0, 2.0], "by_id: ids must be 3 whole numbers or strings"),
        (np.array(["a", 1, None], dtype=object), "by_id: ids must be 3 whole numbers or strings"),
        (
            ["a", "a", "a"],
            r"by_id: n_clients=2 must be a whole number from 1 to 1 \(the number of ids; 0 takes",
        ),
    ],
)
def test_wrong_ids_are_refused(ids, message):
    with pytest.raises(UserError, match=message):
        by_id(np.zeros(3, dtype=int), 2, seed=0, ids=ids)
