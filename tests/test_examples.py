"""The examples run, each shows one thing in fewer than 60 lines, and says how it is started."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
TABLES = {"new_method": "heirs", "new_part": "small_features"}  # three methods each, and what is new
RUNNER = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path, run_name='__main__')\n"


def output_of(paths: list[Path], folder: Path) -> str:
    """Runs examples one after the other in one process, and returns what they print."""
    words = [sys.executable, "-W", "error", "-c", RUNNER, *map(str, paths)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_run(tmp_path):
    printed = output_of([path for path in EXAMPLES if path.stem not in TABLES], tmp_path)
    for words in ("were", "<Comparison of FedAvg, FedPer", "the newcomer's model", "alone, on", "FedPer"):
        assert words in printed


def test_examples_of_new_methods_print_a_table_each(tmp_path):
    printed = output_of([path for path in EXAMPLES if path.stem in TABLES], tmp_path).lower().splitlines()
    assert len(printed) == 4 * len(TABLES)
    for place, added in enumerate(TABLES.values()):
        assert added in "\n".join(printed[4 * place : 4 * place + 4])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_it_is_started(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 60
    assert f"\npython examples/{path.name}\n" in text
