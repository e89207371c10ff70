"""The site: every page is built without a warning, its commands exist, and its blocks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from idiolect.parts import proximal

from ..small_records import write_run
from .documented_commands import (
    ROOT,
    blocks_of,
    check_make,
    check_names,
    check_whole,
    commands_of,
    run_python,
)

DOCS = ROOT / "docs"
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = [GUIDE, ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]
FILES_OF_THE_PAGE = {"--data", "--config", "--code", "--model-file", "--from-sweep"}  # which the page makes
TYPED = ("index", "jobs", "robustness", "tuning", "tracking")  # run as they stand, one after the other
OF_RUNS = ("analysis", "report")  # the same, beside records in the folders that they name
ELSEWHERE = {  # pages with blocks that other tests run, or that need more than this machine
    "your-own": "its blocks and commands run in tests/cli/test_readme.py",
    "recommend": "minutes; tests/experiments/test_recommend.py makes three recommendations",
    "deploy": "several machines; the trial on one runs below as typed, and the commands in tests/deploy",
    "privacy": "half an hour; its commands run below with fewer rounds and seeds",
    "gpu": "a GPU",
    "ray": "several machines",
    "performance": "minutes of an idle machine; tests/bench runs the same commands on tiny workloads",
    "reproduction": "published datasets; tests/reproduction runs quick reproductions",
    "defaults": "hours; the same command with other settings runs in tests/cli",
}
HOURS = ("--seeds 5",)  # commands of a typed page that made its tables
LESS = {"--rounds 20": "--quick --rounds 1", "--rounds 5": "--quick --rounds 1", "--seeds 3": "--seeds 1"}
NOT_TYPED = ("pip ", "python scripts/")  # lines that install, and those that draw the page's own pictures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_exist(page, monkeypatch):
    """Commands have the flags; what trains on known data is understood up to where training would begin."""
    for command in commands_of(page.read_text(encoding="utf-8")):
        (check_make if command.words[0] == "make" else check_names)(command.words[1:])
        trains = command.whole and command.words[1:2] in (("run",), ("compare",))
        if trains and not {*command.words} & FILES_OF_THE_PAGE and "$" not in " ".join(command.words):
            check_whole(command.words[1:], monkeypatch)


def test_every_page_with_a_block_says_where_it_runs():
    with_code = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.rglob("*.md")
        if any(block.language not in ("", "text") for block in blocks_of(page.read_text("utf-8")))
    }
    assert with_code - {*TYPED, *OF_RUNS, *ELSEWHERE} == set()


def test_block_of_the_contribution_guide_runs(monkeypatch):
    """Its test is run with a part of ours in place of the reader's."""
    (block,) = (each for each in blocks_of(GUIDE.read_text("utf-8")) if each.language == "python")
    names = {"my_part": proximal}
    exec(block.code, names)
    names["test_my_part_conforms"]()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TYPED, *OF_RUNS])
def test_page_runs_as_typed(name, tmp_path):
    """Python blocks in one process, then every command of the page, in a folder of its own."""
    if name in OF_RUNS:
        for folder in ("before", "after"):
            for method in ("fedavg", "map"):
                write_run(tmp_path / "runs" / folder, method, 0)
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    if "import idiolect" in text:
        needed = [block for block in blocks_of(text) if block.language == "python"]
        done = run_python(needed, tmp_path)
        assert done.returncode == 0, done.stderr
    for command in commands_of(text):
        line = " ".join(command.words)
        if command.whole and command.words[0] == "idiolect" and not any(long in line for long in HOURS):
            started = [sys.executable, "-m", *command.words]
            done = subprocess.run(
                started, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.slow
def test_commands_of_the_privacy_page_run_in_small(tmp_path):
    pytest.importorskip("dp_accounting", reason="the budget needs the extra privacy")
    blocks = [block.code for block in blocks_of((DOCS / "privacy.md").read_text("utf-8"))]
    assert len(blocks) == 2
    for code in blocks:
        lines = "\n".join(line for line in code.splitlines() if not line.startswith(NOT_TYPED))
        for usual, less in LESS.items():
            lines = lines.replace(usual, less)
        done = run_shell(lines, tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_trial_of_the_deployment_page_runs_as_typed(tmp_path):
    pytest.importorskip("flwr", reason="deployment needs the extra flower")
    typed = next(b.code for b in blocks_of((DOCS / "deploy.md").read_text("utf-8")) if b.language == "bash")
    try:
        done = run_shell(typed, tmp_path)
    finally:
        run_shell("idiolect deploy down trial", tmp_path)
    assert done.returncode == 0, done.stderr
    rounds = pd.read_parquet(next((tmp_path / "trial" / "server" / "runs").glob("*/rounds.parquet")))
    assert len(rounds) == 5


def run_shell(code, folder):
    """Types lines into a shell that stops at the first that fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


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
    parts = (tmp_path / "api" / "parts.html").read_text("utf-8")
    assert "theta_{t+1} = " in parts and "<blockquote>" not in parts
