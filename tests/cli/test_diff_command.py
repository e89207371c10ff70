"""`idiolect diff`: exit codes as those of diff, and one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ..small_records import write_run


def test_exit_code_and_document_say_whether_numbers_differ(idiolect, tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", "fedavg"), write_run(tmp_path / "b", "fedavg")
    other = write_run(tmp_path / "c", "fedavg", shift=0.01)
    assert idiolect("diff", str(a), str(b)).code == 0
    answer = idiolect("diff", str(a), str(other))
    assert answer.code == 1
    assert "they part in round 3" in answer.out and "+0.01" in answer.out and "loss" in answer.out
    answer = idiolect("diff", str(a), str(other), "--json")
    document = json.loads(answer.out)
    assert answer.code == 1 and document["same"] is False and document["pairs"][0]["first"]["round"] == 3
    assert {"predictor", "a", "b", "difference"} < set(document["pairs"][0]["numbers"][0])


def test_place_without_a_run_is_trouble(idiolect, refused: Callable, tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", "fedavg")
    refused(idiolect("diff", str(a), str(tmp_path / "nowhere")), "nowhere is not a folder")
