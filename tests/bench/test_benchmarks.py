"""The scripts that time other implementations, without those implementations."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from idiolect.bench import BenchCell, BenchGrid

ROOT = Path(__file__).parents[2]
TINY = ("--models", "dnn", "--clients", "2", "--population", "3", "--samples", "16", "--batch-size", "8")


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("change", [{"method": "map"}, {"sizes": "lognormal"}, {"precision": "float64"}])
def test_peers_are_timed_only_where_their_work_is_the_same(change):
    peers = script("peers")
    assert peers.peers_of(BenchGrid(), BenchCell())[0].name == "pfl"
    assert not peers.peers_of(BenchGrid(), BenchCell(**change))


@pytest.mark.slow
def test_engines_of_a_checkout_are_timed_beside_these():
    """The other checkout is this one, whose models must be the same."""
    command = [sys.executable, str(ROOT / "benchmarks" / "revisions.py"), str(ROOT), *TINY]
    options = ["--engines", "loop", "--repeats", "1", "--device", "cpu", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    rows = {row["runner"]: row for row in json.loads(done.stdout)["rows"]}
    assert {"plain", "loop", "other loop"} <= set(rows)
    assert rows["other loop"]["refused"] is None and rows["other loop"]["times_plain"]["median"] > 0


def test_folder_that_is_no_checkout_is_refused(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "revisions.py"), str(tmp_path), *TINY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "holds no src/idiolect" in done.stderr
