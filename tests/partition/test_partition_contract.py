"""What every partition promises, whatever the labels."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.partition import names, partition

QUICK = settings(max_examples=40, deadline=timedelta(seconds=2))
SPECS = [
    "iid",
    "label_k(k=2)",
    "label_k(k=3, allow_duplicates=True)",
    "label_k(k=2, within_client_skew=0.5)",
    "map_incomplete",
    "map_incomplete(sigma=10, min_samples=1)",
    "dirichlet_client",
    "dirichlet_client(alpha=0.0001, sigma=0, min_samples=1)",
    "dirichlet_class",
    "dirichlet_class(alpha=1000000)",
    "lognormal_2class(extra_low=0, extra_high=5)",
    "pathological_shards",
    "pathological_shards(shards_per_client=3, deterministic=True)",
    "semantic_emnist(clusters=2, low=20, high=60)",
    "semantic_tiny(groups=3, low=20, high=60)",
    "two_client_demo",
    "by_id",
    "by_id(min_samples=2, max_samples=900)",
]
UNRANDOM = ("two_client_demo", "by_id", "by_id(min_samples=2, max_samples=900)")
RANDOM = [spec for spec in SPECS if spec not in UNRANDOM and "deterministic" not in spec]
FROM_DATA = ("by_id", "semantic_emnist", "semantic_tiny")  # as many clients as the data have
AMPLE = np.repeat(np.arange(6), 200)


def ids_of(labels):
    """Nine ids, whatever the number of rows."""
    return np.arange(labels.size) % 9


def clients_for(spec):
    return {"two_client_demo": 2, "by_id": 9}.get(spec.partition("(")[0], 8)


@st.composite
def some_labels(draw):
    """One to eight classes of one to sixty rows each, in random order, not numbered from 0."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    labels = np.repeat(3 + 2 * np.arange(len(sizes)), sizes)
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(labels)


def same(first, second):
    return len(first.clients) == len(second.clients) and all(
        np.array_equal(a, b) for a, b in zip(first.clients, second.clients, strict=True)
    )


def test_every_name_of_the_catalogue_is_under_contract():
    assert {spec.partition("(")[0] for spec in SPECS} == set(names())


@pytest.mark.parametrize("spec", SPECS)
@QUICK
@given(labels=some_labels(), n_clients=st.integers(1, 20), seed=st.integers(0, 2**70))
def test_rows_are_held_once_or_dropped_with_a_reason(spec, labels, n_clients, seed):
    try:
        made = partition(spec, labels, n_clients, seed, ids=ids_of(labels))
    except UserError as refusal:
        if not str(refusal).startswith(spec.partition("(")[0] + ": "):
            raise
        return
    everything = np.concatenate([*made.clients, *made.dropped.values()])
    assert sorted(everything.tolist()) == list(range(labels.size))
    assert all(rows.size > 0 for rows in made.clients)
    assert len(made.clients) + len(made.removed) == n_clients
    assert all(reason and rows.size > 0 for reason, rows in made.dropped.items())


@pytest.mark.parametrize("spec", SPECS)
@QUICK
@given(seed=st.integers(0, 2**32))
def test_ample_data_are_partitioned_the_same_way_twice(spec, seed):
    first, second = (partition(spec, AMPLE, clients_for(spec), seed, ids=ids_of(AMPLE)) for _ in range(2))
    assert same(first, second)
    assert first.report(AMPLE) == second.report(AMPLE)


@pytest.mark.parametrize("spec", RANDOM)
def test_another_seed_gives_another_partition(spec):
    first, second = (partition(spec, AMPLE, clients_for(spec), seed) for seed in (0, 1))
    assert not same(first, second)


@pytest.mark.parametrize("spec", SPECS)
def test_labels_are_left_untouched(spec):
    labels = AMPLE.copy()
    labels.setflags(write=False)
    partition(spec, labels, clients_for(spec), 0, ids=ids_of(labels))
    assert np.array_equal(labels, AMPLE)


@pytest.mark.parametrize(
    ("name", "n_clients"),
    [
        (name, number)
        for name in names()
        for number in (0, -1, 1201, 2.0, "3", True, None)
        if number != 0 or name not in FROM_DATA
    ],
)
def test_wrong_number_of_clients_is_refused_by_value(name, n_clients):
    with pytest.raises(UserError, match=f"{name}: n_clients={n_clients!r} must be a whole number"):
        partition(name, AMPLE, n_clients, 0, ids=ids_of(AMPLE))


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.partition("(")[0] in FROM_DATA])
def test_no_number_of_clients_takes_all_there_are(spec):
    made = partition(spec, AMPLE, 0, 0, ids=ids_of(AMPLE))
    assert made.dropped == {}
    with pytest.raises(UserError, match=rf"from 1 to {len(made.clients)} \(the number of .*; 0 takes all"):
        partition(spec, AMPLE, len(made.clients) + 1, 0, ids=ids_of(AMPLE))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_wrong_seed_is_refused_by_value(name, seed):
    with pytest.raises(UserError, match=f"{name}: seed={seed!r} must be a whole number of at least 0"):
        partition(name, AMPLE, 2, seed, ids=ids_of(AMPLE))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("labels", [[], [[0, 1], [1, 0]], [0.5, 1.0, 2.0], ["a", "b", "c"]])
def test_wrong_labels_are_refused_by_shape(name, labels):
    with pytest.raises(UserError, match=f"{name}: labels must be a flat, non-empty array of whole numbers"):
        partition(name, labels, 2, 0)
