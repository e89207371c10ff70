"""Partitioners of flwr-datasets as partitions: rows as they give them, and what they leave out."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import catalogue, from_flower
from idiolect.partition.flower_partitioners import LEFT_OUT

LABELS = np.array([0, 1, 0, 1, 2, 2, 0, 1])


class Halves:
    """Stands for a partitioner: even rows, odd rows, and the last row for nobody."""

    num_partitions = 2
    dataset = None

    def load_partition(self, number):
        return {"row": [row for row in self.dataset["row"][:-1] if row % 2 == number]}


def test_rows_are_those_of_the_partitioner(monkeypatch):
    plain = SimpleNamespace(Dataset=SimpleNamespace(from_dict=dict))
    monkeypatch.setitem(sys.modules, "datasets", plain)
    made = Halves()
    found = from_flower(made, LABELS, ids=list("aabbccdd"))
    assert [rows.tolist() for rows in found.clients] == [[0, 2, 4, 6], [1, 3, 5]]
    assert found.dropped[LEFT_OUT].tolist() == [7]
    assert made.dataset["label"].tolist() == LABELS.tolist() and made.dataset["client"].tolist() == list(
        "aabbccdd"
    )


def test_a_client_without_rows_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=SimpleNamespace(from_dict=dict)))
    with pytest.raises(UserError, match="gives client 1 no rows"):
        from_flower(Halves(), [3, 3])


def test_the_packages_own_partitioners(tmp_path):
    partitioner = pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is not installed")
    made = partitioner.DirichletPartitioner(4, partition_by="label", alpha=0.5, min_partition_size=1, seed=3)
    found = from_flower(made, np.arange(200) % 5)
    assert sum(map(len, found.clients)) == 200 and len(found.clients) == 4
    owners = partitioner.NaturalIdPartitioner(partition_by="client")
    found = from_flower(owners, LABELS, ids=list("aabbccdd"))
    assert [rows.tolist() for rows in found.clients] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_example_of_the_documentation_runs(monkeypatch):
    """The block of the docstring, which the site shows, registers a partition that shares out the rows."""
    pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is not installed")
    monkeypatch.setattr(catalogue, "PARTITIONS", dict(catalogue.PARTITIONS))
    lines = from_flower.__doc__.partition("Args:")[0].splitlines()
    exec("\n".join(line[8:] for line in lines if line.startswith(" " * 8)), {})
    found = catalogue.partition("flower_dirichlet(alpha=5.0)", np.arange(400) % 5, 4, seed=1)
    assert len(found.clients) == 4 and sum(map(len, found.clients)) == 400


def test_without_the_package_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="pip install flwr-datasets"):
        from_flower(Halves(), LABELS)
