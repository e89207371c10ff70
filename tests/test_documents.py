"""Links and file names in the documents lead to what exists, and measured numbers are those of the results."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {
    "mine.py",
    "nets.py",
    "_tracker.py",
}  # files of the reader's own, and the end of `<name>_tracker.py`
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PYTHON_FILE = re.compile(r"[\w./-]+\.py\b")


def headings_of(text: str) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub makes them."""
    found = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in LINK.findall(FENCE.sub("", document.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = document.parent / path if path else document
        if not linked.exists() or (anchor and anchor not in headings_of(linked.read_text("utf-8"))):
            broken.append(target)
    return broken


def missing_files(document: Path, known: list[str]) -> list[str]:
    """Returns the Python files between backquotes that no file of the repository ends with."""
    spans = CODE.findall(FENCE.sub("", document.read_text("utf-8")))
    named = [name for span in spans for name in PYTHON_FILE.findall(span)]
    return [
        name
        for name in named
        if name not in EXAMPLES and not any(f"/{path}".endswith(f"/{name}") for path in known)
    ]


@pytest.fixture(scope="module")
def python_files() -> list[str]:
    folders = ("src", "tests", "scripts", "examples", "benchmarks")
    return [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document_names_what_exists(document, python_files):
    assert broken_links(document) == []
    assert missing_files(document, python_files) == []


def test_broken_links_and_missing_files_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One: a heading\n[good](page.md) [good](#one-a-heading) [good](https://example.org/none#none)\n"
        "[bad](none.md) [bad](page.md#none) `there.py` `none.py` `folder/there.py` `python other/there.py --x`\n"
    )
    assert broken_links(page) == ["none.md", "page.md#none"]
    assert missing_files(page, ["src/folder/there.py"]) == ["none.py", "other/there.py"]


def test_documents_say_what_the_results_say():
    script = runpy.run_path(str(ROOT / "scripts" / "write_results.py"))
    for path, text in script["texts"]().items():
        assert path.read_text(encoding="utf-8") == text, "run python scripts/write_results.py"
        assert "measured beside published" in text
