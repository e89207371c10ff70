"""Differences of runs and of folders, on small records that were never trained."""

from __future__ import annotations

from pathlib import Path

import pytest

import idiolect
from idiolect.errors import UserError

from ..small_records import write_run


def test_equal_runs_are_the_same_whatever_machine_and_versions(tmp_path):
    a, b = write_run(tmp_path / "a", "fedavg"), write_run(tmp_path / "b", "fedavg", torch="3")
    found = idiolect.diff(a, b)
    assert found.same and found.pairs[0].first is None
    assert found.pairs[0].facts["versions"] == {"versions.torch": ("2", "3")}
    assert f"{a} and {b}: the numbers are equal bit for bit" in repr(found)
    assert "versions: versions.torch 2 and 3" in repr(found)


def test_runs_that_part_name_the_first_number_and_every_setting(tmp_path):
    a = write_run(tmp_path, "map(alpha=0.5)", learning_rate=0.1)
    b = write_run(tmp_path, "map(alpha=0.9)", learning_rate=0.2, shift=1e-12)
    found = idiolect.diff(a, b)
    (pair,) = found.pairs
    assert not found.same and not pair.same
    settings = {
        "method": ("map(alpha=0.5)", "map(alpha=0.9)"),
        "learning_rate": (0.1, 0.2),
        "map.alpha": (0.5, 0.9),
    }
    assert pair.facts["settings"] == settings
    first = pair.first
    assert (first.round, first.client, first.predictor, first.metric) == (3, 0, "companion", "accuracy")
    assert first.b - first.a == pytest.approx(1e-12, rel=0.1)
    (judged,) = [one for one in pair.numbers if (one.predictor, one.metric) == ("companion", "accuracy")]
    assert judged.a == 0.6 and judged.difference == pytest.approx(
        5e-13, rel=0.1
    )  # the end's, where one of two moved


def test_numbers_that_only_one_side_has_are_a_difference(tmp_path):
    found = idiolect.diff(write_run(tmp_path, "fedavg"), write_run(tmp_path, "map(alpha=0.5)"))
    first = found.pairs[0].first
    assert (first.round, first.client, first.metric) == (1, 0, "accuracy") and None in (first.a, first.b)
    assert "nothing" in repr(found)
    (own,) = [one for one in found.pairs[0].numbers if one.predictor == "companion" and one.metric == "loss"]
    assert own.a is None and own.b is not None and own.difference is None


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with FedAvg of two seeds, one of them other, and MAP with another rate; each has one run alone."""
    a, b = tmp_path / "a", tmp_path / "b"
    for seed in (0, 1):
        write_run(a, "fedavg", seed)
        write_run(b / "deeper", "fedavg", seed, shift=0.01 * seed)
    write_run(a, "map(alpha=0.5)", learning_rate=0.1)
    write_run(b, "map(alpha=0.5)", learning_rate=0.2)
    write_run(a, "map(alpha=0.9)")
    write_run(b, "fedavg", 7)
    return a, b


def test_folders_are_paired_by_scene_method_and_seeds(folders):
    found = idiolect.diff(*folders)
    assert [(pair.method, pair.seed, pair.same) for pair in found.pairs] == [
        ("fedavg", 0, True),
        ("fedavg", 1, False),
        ("map(alpha=0.5)", 0, True),
    ]
    assert [name.partition("-")[0] for name in (*found.only_a, *found.only_b)] == ["map", "fedavg"]
    assert found.only_b[0].endswith("-s7") and not found.same
    assert ("settings", "learning_rate 0.1 and 0.2 (1 of 3 runs)") in found.differing_facts()


def test_folder_without_runs_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no finished run in .*empty"):
        idiolect.diff(write_run(tmp_path / "a", "fedavg"), tmp_path / "empty")
