"""The site: every page is built without a warning, and its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .documented_commands import (
    ROOT,
    check_make,
    check_names,
    check_whole,
    commands_of,
)

DOCS = ROOT / "docs"
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = [GUIDE, ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]
FILES_OF_THE_PAGE = {"--data", "--config", "--code", "--model-file", "--from-sweep"}  # which the page makes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_exist(page, monkeypatch):
    """Commands have the flags; what trains on known data is understood up to where training would begin."""
    for command in commands_of(page.read_text(encoding="utf-8")):
        (check_make if command.words[0] == "make" else check_names)(command.words[1:])
        trains = command.whole and command.words[1:2] in (("run",), ("compare",))
        if trains and not {*command.words} & FILES_OF_THE_PAGE and "$" not in " ".join(command.words):
            check_whole(command.words[1:], monkeypatch)


def test_navigation_names_every_page():
    """Each document at the top of docs, and each page of the API, has its place in the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = {*re.findall(r"([\w/-]+\.(?:md|ipynb))$", navigation, re.MULTILINE)}
    pages = [*DOCS.glob("*.md"), *DOCS.glob("api/*.md"), *DOCS.glob("notebooks/*.ipynb")]
    assert {path.relative_to(DOCS).as_posix() for path in pages} <= named


def test_chapters_in_the_navigation_exist():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    chapters = re.findall(r"^    ([\w ]+): ([\w-]+)\.html#([\w-]+)$", navigation, re.MULTILINE)
    assert [title for title, _, _ in chapters] == [
        "Your own data",
        "Your own model",
        "Your own method",
        "Models out",
        "New clients",
    ]
    for _, page, anchor in chapters:
        headings = re.findall(r"^#+ (.+)$", (DOCS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
        assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="the extra docs builds the site")
def test_site_is_built_without_a_warning_and_asks_no_network(tmp_path):
    built = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    outside = re.compile(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["']?(https?:)?//""")
    asking = [page.name for page in tmp_path.rglob("*.html") if outside.search(page.read_text("utf-8"))]
    assert asking == []
    own = (tmp_path / "api" / "own.html").read_text("utf-8")
    assert "doc-module" not in own  # functions, not their files
    core = (tmp_path / "api" / "core.html").read_text("utf-8")
    assert "wraps the training loss" in core  # fields with the comments beside them
    assert "The stages that have ended, by name" in core  # types with the comments above them
    models = (tmp_path / "your-own.html").read_text("utf-8")
    assert '<code class="short">--method</code>' in models  # kept on one line
    parts = (tmp_path / "api" / "parts.html").read_text("utf-8")
    assert "theta_{t+1} = " in parts and "<blockquote>" not in parts
