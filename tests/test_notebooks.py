"""The notebooks of the site run from the first to the last cell, twice, and are stored with their outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SECONDS = 600  # of one cell


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_twice(path, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="the extra docs runs notebooks")
    nbclient = pytest.importorskip("nbclient", reason="the extra docs runs notebooks")
    notebook = nbformat.read(path, as_version=4)
    for _ in range(2):
        nbclient.NotebookClient(
            notebook, timeout=SECONDS, resources={"metadata": {"path": tmp_path}}
        ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_as_it_ran(path):
    """Every cell has run in order, with no error, and nothing says on which machine."""
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]
    assert "/home/" not in text and "/tmp/" not in text and "/root/" not in text
