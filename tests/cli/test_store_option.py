"""Where private state is kept, as the command line says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def test_disk_store_says_its_estimate_and_keeps_the_rows(idiolect, small: tuple[str, ...]) -> None:
    answer = idiolect(
        "run", "--method", "fedper", *small, "--store", "disk", "--store-cache", "2.5", "--json"
    )
    assert answer.code == 0
    assert answer.err == (
        "private state: 128 B x 4 clients, at most 512 B, on disk with 2.5 MB of it in memory\n"
    )
    folder = Path(json.loads(answer.out)["folder"])
    (rows,) = folder.glob("private/*/rows")
    assert rows.stat().st_size > 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["private_state"] == {"store": "disk", "bytes_per_client": 128, "bytes_at_most": 512}


def test_store_is_no_part_of_what_a_run_is(idiolect, small: tuple[str, ...]) -> None:
    idiolect("run", "--method", "fedper", *small, "--store", "host")
    again = idiolect("run", "--method", "fedper", *small, "--store", "disk")
    assert "is finished already" in again.err


def test_unknown_store_is_refused(idiolect, refused: Callable, small: tuple[str, ...]) -> None:
    for _ in range(2):
        answer = idiolect("run", "--method", "fedper", *small, "--store", "tape")
        refused(answer, "store must be one of auto, device, host, disk; got 'tape'")
        assert idiolect("run", "--method", "fedper", *small).code == 0  # also where the run is there already
