"""The examples run, each shows one thing in fewer than 60 lines, and says how it is started."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
LONG = {"new_method", "new_part"}  # comparisons of three methods on twenty clients
RUNNER = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path, run_name='__main__')\n"


def output_of(paths: list[Path], folder: Path) -> str:
    """Runs examples one after the other in one process, and returns what they print."""
    words = [sys.executable, "-W", "error", "-c", RUNNER, *map(str, paths)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_run(tmp_path):
    printed = output_of([path for path in EXAMPLES if path.stem not in LONG], tmp_path)
    for words in ("were", "<Comparison of FedAvg, FedPer", "the newcomer's model", "alone, on", "FedPer"):
        assert words in printed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "added"), [("new_method", "heirs"), ("new_part", "small_features")])
def test_example_prints_a_table(name, added, tmp_path):
    (path,) = [path for path in EXAMPLES if path.stem == name]
    printed = output_of([path], tmp_path)
    assert len(printed.splitlines()) == 4 and added in printed.lower()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_it_is_started(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 60
    assert f"\npython examples/{path.name}\n" in text
