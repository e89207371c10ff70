"""MAP's random class sets, and the end it shares with the Dirichlet scenes."""

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import dirichlet_client, map_incomplete
from idiolect.partition.class_proportions import partition_by_proportions
from idiolect.partition.labelled_rows import open_pool

CIFAR10 = np.repeat(np.arange(10), 5000)


def classes_held(labels, made):
    return np.array([np.unique(labels[rows]).size for rows in made.clients])


@pytest.mark.parametrize("seed", range(3))
def test_map_sizes_on_cifar10_are_those_of_the_paper_scene(seed):
    sizes = np.array([rows.size for rows in map_incomplete(CIFAR10, 100, seed=seed).clients])
    assert sizes.size == 100
    assert 130 < sizes.min() < 330
    assert 440 < np.median(sizes) < 540
    assert 750 < sizes.max() < 1600


def test_map_number_of_classes_is_uniform_from_two_to_all():
    held = np.concatenate(
        [classes_held(CIFAR10, map_incomplete(CIFAR10, 100, seed=seed)) for seed in range(10)]
    )
    frequencies = np.bincount(held, minlength=11) / held.size
    assert held.min() == 2
    assert held.max() == 10
    assert np.abs(frequencies[2:] - 1 / 9).max() < 0.04


def test_map_without_size_spread_gives_holders_shares_of_one_over_their_classes():
    made = map_incomplete(CIFAR10, 100, seed=0, sigma=0)
    held = classes_held(CIFAR10, made)
    of_class_0 = np.array([(CIFAR10[rows] == 0).sum() for rows in made.clients])
    holders = of_class_0 > 0
    wish = np.where(holders, 1 / held, 0)
    exact = 5000 * wish / wish.sum()
    assert np.abs(of_class_0 - exact)[:-1].max() <= 0.5  # the last client bears the cut at the class end


def test_map_gives_out_a_class_consecutively_in_client_order():
    labels = np.random.default_rng(0).permutation(CIFAR10)
    made = map_incomplete(labels, 30, seed=0)
    of_class_3 = np.concatenate([rows[labels[rows] == 3] for rows in made.clients])
    assert of_class_3.size > 4900
    assert of_class_3.tolist() == np.flatnonzero(labels == 3)[: of_class_3.size].tolist()


def test_tiny_client_is_removed_and_listed():
    labels = np.repeat(np.arange(4), 100)
    pool = open_pool("map_incomplete", labels, 3, 0)
    wishes = np.array([[0.97] * 4, [0.01] * 4, [0.02] * 4])
    made = partition_by_proportions(pool, lambda: wishes.copy(), sigma=0, min_samples=5)
    assert made.report(labels) == {
        "n_rows": 400,
        "n_clients": 2,
        "samples_per_client": {"min": 8, "median": 198.0, "max": 388},
        "classes_per_client": {"min": 4, "median": 4.0, "max": 4},
        "dropped": {"client below 5 samples": 4},
        "removed_clients": [{"client": 1, "samples": 4}],
    }


def test_rounding_leftover_is_dropped_with_its_reason():
    pool = open_pool("map_incomplete", np.zeros(10, dtype=int), 3, 0)
    made = partition_by_proportions(pool, lambda: np.ones((3, 1)), sigma=0, min_samples=1)
    assert [rows.tolist() for rows in made.clients] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert {reason: rows.tolist() for reason, rows in made.dropped.items()} == {
        "leftover of rounded shares": [9]
    }


def test_rounding_overrun_is_cut_off_at_the_class_end():
    pool = open_pool("map_incomplete", np.zeros(11, dtype=int), 3, 0)
    made = partition_by_proportions(pool, lambda: np.ones((3, 1)), sigma=0, min_samples=1)
    assert [rows.size for rows in made.clients] == [4, 4, 3]
    assert made.dropped == {}


def test_class_nobody_wishes_for_is_redrawn_then_given_to_one_client():
    labels = np.repeat([0, 1], 50)
    pool = open_pool("map_incomplete", labels, 4, 0)
    draws = []

    def draw():
        draws.append(1)
        return np.tile([1.0, 0.0], (4, 1))

    made = partition_by_proportions(pool, draw, sigma=0, min_samples=1)
    assert len(draws) == 100
    assert sorted(int((labels[rows] == 1).sum()) for rows in made.clients) == [0, 0, 0, 50]


def test_redraw_stops_at_the_first_draw_that_covers_every_class():
    pool = open_pool("map_incomplete", np.repeat([0, 1], 50), 2, 0)
    draws = iter([np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(2)])
    made = partition_by_proportions(pool, lambda: next(draws), sigma=0, min_samples=1)
    assert [rows.tolist() for rows in made.clients] == [list(range(50)), list(range(50, 100))]


def test_single_client_receives_every_class():
    labels = np.repeat(np.arange(40), 5)
    assert map_incomplete(labels, 1, seed=0).clients[0].size == 200


def test_all_clients_tiny_is_refused_with_what_to_change():
    with pytest.raises(
        UserError, match="each of the 10 clients has fewer than min_samples=5 samples; use fewer"
    ):
        map_incomplete(np.repeat([0, 1], 5), 10, seed=0)


def test_single_class_is_refused_by_map():
    with pytest.raises(UserError, match="single class; at least 2"):
        map_incomplete(np.zeros(50, dtype=int), 2, seed=0)


@pytest.mark.parametrize("function", [map_incomplete, dirichlet_client])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("sigma", -0.1, "sigma=-0.1 must be a number from 0 to 10"),
        ("sigma", 11, "sigma=11 must be a number from 0 to 10"),
        ("min_samples", 0, "min_samples=0 must be a whole number of at least 1"),
        ("min_samples", 1.5, "min_samples=1.5 must be a whole number of at least 1"),
    ],
)
def test_wrong_option_of_the_common_end_is_refused(function, option, value, message):
    with pytest.raises(UserError, match=message):
        function(CIFAR10, 10, seed=0, **{option: value})
