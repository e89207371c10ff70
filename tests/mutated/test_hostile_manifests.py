"""A manifest that is wrong in any way leaves its run out, by name, and the report of the others stands."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import idiolect
from idiolect.cli import main
from idiolect.errors import UserError
from idiolect.records.manifest import checksum_of
from idiolect.reports.run_difference import diff

from .mutations import hostile

SETTINGS: dict[str, Any] = {
    "dataset": "synthetic(n_clients=3, samples_per_client=20, n_features=4, n_classes=2)",
    "partition": "by_id",
    "clients": 3,
    "model": "mlpnet(hidden=4)",
    "rounds": 1,
    "participation_rate": 1.0,
    "engine": "loop",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sound run, `fedavg`, and another, `map`, whose manifest is about to change."""
    out = tmp_path_factory.mktemp("hostile")
    for method in ("fedavg", "map"):
        made = idiolect.run(method, out=out / "made", quiet=True, **SETTINGS)
        shutil.move(made.folder, out / "runs" / method)
    return out / "runs"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="idiolect")
    return caplog


def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["idiolect", *map(str, words)])
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


def check(
    runs: Path,
    seed: int,
    said: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    out: Path | None,
) -> bool:
    """Reads a hostile manifest, into a report too where there is a folder; returns whether its run is left out."""
    path = runs / "map" / "manifest.json"
    whole = path.read_text()
    changed = hostile(json.loads(whole), Random(seed))
    if Random(seed).randrange(10):  # most are sealed anew, so that what they say is looked at
        changed["checksum"] = checksum_of(changed)
    path.write_text(json.dumps(changed))
    try:
        said.clear()
        frame = idiolect.load(runs)
        left_out = frame["run"].nunique() == 1
        assert not left_out or str(runs / "map") in said.text
        pytest.importorskip("duckdb")
        with idiolect.connect(runs) as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1 if left_out else 2,)
            connection.execute("SELECT count(*) FROM final").fetchone()
        if out is not None:
            code, heard = command(capsys, monkeypatch, "report", runs, "--out", out)
            assert code == 0, heard
            assert not left_out or str(runs / "map") in heard
        with suppress(UserError):
            repr(diff(runs / "fedavg", runs / "map"))
        repr(diff(runs, runs))
    finally:
        path.write_text(whole)
    return left_out


def test_hostile_manifests_leave_their_run_out(runs, said, capsys, monkeypatch, tmp_path):
    left_out = [
        check(runs, seed, said, capsys, monkeypatch, None if seed else tmp_path / "report")
        for seed in range(5)
    ]
    assert any(left_out)


@pytest.mark.slow
def test_three_hundred_hostile_manifests_leave_their_run_out(runs, said, capsys, monkeypatch, tmp_path):
    left_out = [check(runs, seed, said, capsys, monkeypatch, tmp_path / "report") for seed in range(300)]
    assert 100 < sum(left_out) < 300
