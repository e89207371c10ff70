"""Partitions by name."""

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import describe, label_k, names, partition

LABELS = np.repeat(np.arange(5), 100)


def test_call_passes_its_options_on():
    made = partition("label_k(k=2, within_client_skew=0.3)", LABELS, 10, 7)
    expected = label_k(LABELS, 10, seed=7, k=2, within_client_skew=0.3)
    assert [rows.tolist() for rows in made.clients] == [rows.tolist() for rows in expected.clients]


def test_bare_name_means_the_defaults():
    assert partition("label_k", LABELS, 10, 0).report(LABELS)["classes_per_client"]["max"] == 5


def test_by_id_receives_the_ids():
    made = partition("by_id", LABELS, 2, 0, ids=np.arange(500) % 2)
    assert made.clients[1].tolist() == list(range(1, 500, 2))


def test_natural_is_another_name_of_by_id():
    ids = np.arange(500) % 7
    named, own = (
        partition(f"{name}(min_samples=72)", LABELS, 2, 3, ids=ids) for name in ("natural", "by_id")
    )
    assert [rows.tolist() for rows in named.clients] == [rows.tolist() for rows in own.clients]
    assert named.ids == own.ids
    with pytest.raises(UserError, match="unknown partition 'naturel'; did you mean natural"):
        partition("naturel", LABELS, 2, 0, ids=ids)


def test_other_partitions_ignore_ids():
    with_ids, without = (partition("iid", LABELS, 2, 0, ids=ids) for ids in (np.arange(500), None))
    assert np.array_equal(with_ids.clients[0], without.clients[0])


def test_misspelt_name_lists_near_matches():
    with pytest.raises(UserError, match="unknown partition 'dirichlet_clent'; did you mean dirichlet_client"):
        partition("dirichlet_clent", LABELS, 2, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "dirichlet_class(beta=1)",
            "dirichlet_class has no option 'beta'; its options: alpha=0.9, min_samples=1",
        ),
        ("iid(k=1)", "iid has no option 'k'; its options: none"),
        ("iid(seed=1)", "iid has no option 'seed'"),
        ("by_id(ids=a)", "by_id has no option 'ids'"),
        ("label_k(k=two)", "label_k: k='two' must be a whole number from 1 to 5"),
        ("label_k(2)", "option without a name"),
    ],
)
def test_wrong_option_is_refused_by_name(spec, message):
    with pytest.raises(UserError, match=message):
        partition(spec, LABELS, 5, 0)


def test_description_holds_idea_and_defaults():
    rows = {row.name: row for row in describe()}
    assert tuple(name for name in rows if name != "natural") == names()
    assert rows["natural"].idea == "Another name of by_id."
    assert rows["natural"].options == rows["by_id"].options
    assert all(row.idea.endswith(".") and "\n" not in row.idea for row in rows.values())
    assert rows["map_incomplete"].options == {"sigma": 0.3, "min_samples": 5}
    assert rows["dirichlet_client"].options == {"alpha": 0.5, "sigma": 0.3, "min_samples": 5}
    assert rows["pathological_shards"].options == {"shards_per_client": 2, "deterministic": False}
    assert rows["by_id"].options == {"min_samples": 1, "max_samples": None}
    assert rows["semantic_emnist"].options == {"clusters": 5, "low": 100, "high": 800}
    assert rows["semantic_tiny"].options == {"groups": 10, "low": 100, "high": 400}
