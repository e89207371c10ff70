"""The value all partitions return checks itself."""

import json

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import Partition


def rows(*numbers):
    return np.array(numbers, dtype=np.int64)


def test_rows_are_sorted_and_read_only():
    source = rows(2, 0)
    made = Partition((source, rows(1)), {})
    assert made.clients[0].tolist() == [0, 2]
    assert made.clients[0].dtype == np.int64
    assert source.tolist() == [2, 0]
    with pytest.raises(ValueError, match="read-only"):
        made.clients[0][0] = 7


@pytest.mark.parametrize(
    ("clients", "dropped", "message"),
    [
        ((rows(0, 1), rows(1, 2)), {}, "row 1 is there twice"),
        ((rows(0, 1),), {"why": rows(1)}, "row 1 is there twice"),
        ((rows(0, 2),), {}, "row 1 is in none"),
        ((rows(-1, 0),), {}, "row -1 is negative"),
        ((rows(0), rows()), {}, "client 1 of the partition holds no rows"),
        ((), {"all": rows(0)}, "at least one client"),
        ((np.array([0.0, 1.0]),), {}, "client 0 of a partition must be a flat array"),
        ((np.array([[0, 1]]),), {}, "client 0 of a partition must be a flat array"),
    ],
)
def test_broken_partition_is_refused_naming_the_place(clients, dropped, message):
    with pytest.raises(UserError, match=message):
        Partition(clients, dropped)


def test_report_counts_sizes_classes_drops_and_removed_clients():
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    made = Partition(
        (rows(0, 2, 4), rows(1)),
        {"client below 3 samples": rows(3, 5), "other": rows(6), "no": rows()},
        {1: 2},
    )
    report = made.report(labels)
    assert report == {
        "n_rows": 7,
        "n_clients": 2,
        "samples_per_client": {"min": 1, "median": 2.0, "max": 3},
        "classes_per_client": {"min": 1, "median": 2.0, "max": 3},
        "dropped": {"client below 3 samples": 2, "other": 1},
        "removed_clients": [{"client": 1, "samples": 2}],
    }
    assert json.loads(json.dumps(report)) == report


def test_report_with_other_labels_is_refused():
    with pytest.raises(UserError, match="covers 2 rows"):
        Partition((rows(0, 1),), {}).report(np.zeros(3, dtype=int))


def test_ids_must_be_as_many_as_clients():
    with pytest.raises(UserError, match="a partition of 2 clients has 1 ids"):
        Partition((np.arange(2), np.arange(2, 4)), ids=("a",))
