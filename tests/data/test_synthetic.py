from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.data import synthetic
from idiolect.data.synthetic_clients import labelling_models
from idiolect.errors import UserError

SEEDS = st.integers(0, 2**32)


def agreement(skew: float, seed: int) -> float:
    """The share of points, drawn alike for all, that two clients label alike, averaged over pairs."""
    weights, biases = labelling_models(8, 10, 60, skew, seed)
    points = np.random.default_rng(1).standard_normal((200, 60)) * np.arange(1, 61) ** -0.6
    labels = (np.einsum("nf,ckf->cnk", points, weights) + biases[:, None]).argmax(axis=2)
    pairs = [(labels[i] == labels[j]).mean() for i in range(8) for j in range(i)]
    return float(np.mean(pairs))


@settings(max_examples=20, deadline=None)
@given(
    n_clients=st.integers(1, 5),
    samples=st.integers(1, 12),
    n_classes=st.integers(2, 6),
    n_features=st.integers(1, 9),
    skew=st.floats(0, 5),
    seed=SEEDS,
)
def test_synthetic_has_the_asked_sizes_and_is_deterministic(
    n_clients: int, samples: int, n_classes: int, n_features: int, skew: float, seed: int
) -> None:
    options: dict[str, Any] = {"n_clients": n_clients, "samples_per_client": samples, "n_classes": n_classes}
    options |= {"n_features": n_features, "skew": skew, "seed": seed}
    first, second = synthetic(**options), synthetic(**options)
    assert first.train_x.shape == (n_clients * samples, 1, 1, n_features)
    assert first.train_ids is not None
    assert np.bincount(first.train_ids).tolist() == [samples] * n_clients
    assert first.manifest == second.manifest
    for part in ("train_x", "train_y", "test_x", "test_y", "train_ids"):
        np.testing.assert_array_equal(getattr(first, part), getattr(second, part))


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.floats(0, 3))
def test_synthetic_labels_are_those_of_each_clients_model(seed: int, skew: float) -> None:
    dataset = synthetic(n_clients=4, samples_per_client=20, skew=skew, seed=seed)
    weights, biases = labelling_models(4, 10, 60, skew, seed)
    assert dataset.train_ids is not None
    for x, y, client in zip(dataset.train_x[:, 0, 0], dataset.train_y, dataset.train_ids, strict=True):
        assert y == np.argmax(weights[client] @ x.astype(np.float64) + biases[client])


@given(SEEDS)
def test_synthetic_without_skew_has_one_labelling_function(seed: int) -> None:
    weights, biases = labelling_models(6, 10, 12, 0.0, seed)
    np.testing.assert_array_equal(weights, np.broadcast_to(weights[0], weights.shape))
    np.testing.assert_array_equal(biases, np.broadcast_to(biases[0], biases.shape))


def test_synthetic_without_skew_has_one_input_distribution() -> None:
    def centres(skew: float) -> Any:
        dataset = synthetic(n_clients=5, samples_per_client=4_000, n_features=6, skew=skew)
        return dataset.train_x.reshape(5, 4_000, 6).mean(axis=1)

    assert np.abs(centres(0.0)).max() < 0.1  # standard error of the widest feature: 0.016
    assert np.abs(centres(1.0)).max() > 1.0


def test_synthetic_clients_draw_different_rows() -> None:
    rows = synthetic(n_clients=2, samples_per_client=5, skew=0.0).train_x
    assert not np.isin(rows[:5], rows[5:]).any()


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_synthetic_more_skew_means_less_agreement(seed: int) -> None:
    found = [agreement(skew, seed) for skew in (0.0, 0.3, 1.0, 10.0)]
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert found[0] - found[-1] > 0.5


def test_synthetic_client_does_not_depend_on_how_many_there_are() -> None:
    few, many = (synthetic(n_clients=n, samples_per_client=7, skew=1.0, seed=3) for n in (2, 5))
    np.testing.assert_array_equal(few.train_x, many.train_x[:14])
    np.testing.assert_array_equal(few.train_y, many.train_y[:14])


def test_synthetic_seeds_differ() -> None:
    assert not np.array_equal(synthetic(seed=0).train_x, synthetic(seed=1).train_x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 0}, "n_clients must be a whole number of at least 1, not 0"),
        ({"samples_per_client": 2.5}, "samples_per_client must be a whole number"),
        ({"n_classes": 1}, "n_classes must be a whole number of at least 2"),
        ({"n_features": True}, "n_features must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"skew": -0.1}, "skew must be a number of at least 0, not -0.1"),
        ({"skew": float("nan")}, "skew must be a number"),
        ({"skew": "much"}, "skew must be a number"),
    ],
)
def test_synthetic_wrong_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        synthetic(**options)
