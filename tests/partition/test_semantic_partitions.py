"""SuPerFed's partitions: disjoint clusters of classes, clients of random size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.partition import semantic_emnist, semantic_tiny

KINDS = ((0, 10, 402_953), (10, 36, 220_304), (36, 62, 190_998))  # of EMNIST byclass, train and test together
EMNIST_TRAIN = 697_932
TINY = np.repeat(np.arange(200), 500)


@pytest.fixture(scope="module")
def emnist() -> np.ndarray:
    """As many labels as EMNIST byclass has for training, digits, capitals and small letters in proportion."""
    total = sum(count for _, _, count in KINDS)
    random = np.random.default_rng(0)
    sizes = [round(count * EMNIST_TRAIN / total) for _, _, count in KINDS]
    parts = [random.integers(low, high, size) for (low, high, _), size in zip(KINDS, sizes, strict=True)]
    labels = np.concatenate(parts)
    assert labels.size == EMNIST_TRAIN
    return labels


def sizes_of(made):
    return np.array([rows.size for rows in made.clients])


@pytest.mark.parametrize("seed", range(3))
def test_emnist_gives_the_papers_numbers(emnist, seed):
    """The paper's 1,543 clients of 452 +- 203; by chance their number has a deviation of about 18."""
    sizes = sizes_of(semantic_emnist(emnist, seed=seed))
    assert abs(sizes.size - 1543) < 4 * 18
    assert abs(sizes.mean() - 452) < 4 * 5.3
    assert abs(sizes.std() - 203) < 6
    assert sizes.sum() == EMNIST_TRAIN


@pytest.mark.parametrize("seed", range(3))
def test_tiny_gives_the_papers_numbers(seed):
    """The paper's 390 clients of 252 +- 88; by chance their number has a deviation of about 7."""
    sizes = sizes_of(semantic_tiny(TINY, seed=seed))
    assert abs(sizes.size - 390) < 5 * 7
    assert abs(sizes.mean() - 252) < 5 * 4.5
    assert abs(sizes.std() - 88) < 6
    assert sizes.sum() == 100_000


@pytest.mark.parametrize("seed", range(5))
def test_emnist_clusters_hold_two_digits_and_five_or_six_letters_of_each_case(emnist, seed):
    made = semantic_emnist(emnist, seed=seed)
    held = [frozenset(np.unique(emnist[rows])) for rows in made.clients]
    clusters = [cluster for cluster in set(held) if not any(cluster < other for other in held)]
    assert len(clusters) == 5
    assert sorted(label for cluster in clusters for label in cluster) == list(range(62))
    for low, high, allowed in ((0, 10, {2}), (10, 36, {5, 6}), (36, 62, {5, 6})):
        assert {sum(low <= label < high for label in cluster) for cluster in clusters} == allowed


def test_tiny_groups_are_twenty_classes_and_disjoint():
    made = semantic_tiny(TINY, seed=1)
    groups = {}
    for rows in made.clients:
        for label in np.unique(TINY[rows]):
            groups.setdefault(int(label), set()).update(np.unique(TINY[rows]).tolist())
    assert len({frozenset(group) for group in groups.values()}) == 10
    assert {len(group) for group in groups.values()} == {20}
    assert groups[0] != set(range(20))


@settings(max_examples=60, deadline=2000)
@given(per_class=st.integers(1, 60), low=st.integers(1, 30), more=st.integers(0, 30), seed=st.integers(0, 99))
def test_sizes_are_in_bounds_but_for_one_client_of_each_group(per_class, low, more, seed):
    labels = np.repeat(np.arange(6), per_class)
    made = semantic_tiny(labels, seed=seed, groups=3, low=low, high=low + more)
    assert made.dropped == {}
    sizes = sizes_of(made)
    assert (sizes >= min(low, 2 * per_class)).all()
    assert (sizes > low + more).sum() <= 3
    assert sizes.max() < 2 * low + more


def test_fewer_clients_are_drawn_and_the_others_dropped():
    everyone, some = (semantic_tiny(TINY, n, seed=4) for n in (0, 30))
    assert len(some.clients) == 30
    whole = {tuple(rows) for rows in everyone.clients}
    assert all(tuple(rows) in whole for rows in some.clients)
    assert some.report(TINY)["dropped"] == {"client not drawn": 100_000 - sizes_of(some).sum()}


def test_more_clients_than_there_are_is_refused_with_their_number():
    there_are = len(semantic_tiny(TINY, seed=0).clients)
    with pytest.raises(
        UserError, match=rf"n_clients=5000 must be .* from 1 to {there_are} \(the number of cl"
    ):
        semantic_tiny(TINY, 5000, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "semantic_emnist: clusters=0 must be a whole number from 1 to 62"),
        ({"clusters": 63}, "semantic_emnist: clusters=63 must be a whole number from 1 to 62"),
        ({"clusters": 30}, "the 62 classes of this data do not fill 30 clusters; use fewer clusters"),
        ({"low": 0}, "semantic_emnist: low=0 must be a whole number from 1"),
        ({"low": 9, "high": 8}, "semantic_emnist: high=8 must be a whole number from 9"),
    ],
)
def test_wrong_option_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        semantic_emnist(np.arange(62), seed=0, **options)


@pytest.mark.parametrize("labels", [np.arange(63), np.arange(-1, 30)])
def test_labels_that_are_no_letters_are_refused(labels):
    with pytest.raises(UserError, match=r"labels go from -?\d+ to \d+ but must lie in 0..61"):
        semantic_emnist(labels, seed=0)
