"""PersFL's DS-2: a Dirichlet mixture of clients for each class."""

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import dirichlet_class


def test_unequal_classes_are_given_out_nearly_whole():
    labels = np.repeat([0, 1, 2], [100, 5000, 1000])
    made = dirichlet_class(labels, 10, seed=0)
    held = np.bincount(labels[np.concatenate(made.clients)])
    assert (held >= np.array([100, 5000, 1000]) - 5).all()  # each of 10 roundings loses at most half a row


def test_proportions_follow_alpha():
    labels = np.repeat(np.arange(10), 1000)
    alike = [rows.size for rows in dirichlet_class(labels, 10, seed=0, alpha=1e6).clients]
    uneven = [rows.size for rows in dirichlet_class(labels, 10, seed=0).clients]
    assert max(alike) - min(alike) < 30
    assert max(uneven) - min(uneven) > 200


def test_proportions_differ_between_classes():
    labels = np.repeat([0, 1], 1000)
    shares = np.array(
        [np.bincount(labels[rows], minlength=2) for rows in dirichlet_class(labels, 5, seed=0).clients]
    )
    assert np.abs(shares[:, 0] - shares[:, 1]).max() > 50


def test_rows_of_a_class_are_shuffled():
    made = dirichlet_class(np.zeros(100, dtype=int), 2, seed=0)
    first = made.clients[0]
    assert first.tolist() != list(range(first.size))


def test_client_without_rows_is_refused_by_name():
    with pytest.raises(UserError, match=r"client \d+ drew 0 samples, fewer than min_samples=1; raise alpha"):
        dirichlet_class(np.zeros(50, dtype=int), 20, seed=0, alpha=0.01)


def test_min_samples_refuses_the_client_below_it():
    labels = np.repeat([0, 1], 100)
    sizes = [rows.size for rows in dirichlet_class(labels, 4, seed=1).clients]
    smallest = min(sizes)
    dirichlet_class(labels, 4, seed=1, min_samples=smallest)
    with pytest.raises(UserError, match=f"client {sizes.index(smallest)} drew {smallest} samples"):
        dirichlet_class(labels, 4, seed=1, min_samples=smallest + 1)


@pytest.mark.parametrize(("option", "value"), [("alpha", 0), ("alpha", -2.0), ("min_samples", 0)])
def test_wrong_option_is_refused_by_value(option, value):
    with pytest.raises(UserError, match=f"dirichlet_class: {option}={value!r} must be a"):
        dirichlet_class(np.repeat([0, 1], 100), 4, seed=0, **{option: value})
