"""The tour of the code names only files and names that exist."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
LINKS = re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", (DOCS / "tour.md").read_text())
NAMED = [(text.strip("`"), target) for text, target in LINKS if re.fullmatch(r"`\w+`", text)]


def names_in(path: Path) -> set[str]:
    """Returns what a module defines at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
            if isinstance(node, ast.ClassDef):
                found |= {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_tour_leads_through_the_code():
    rooms = {Path(target).parts[3] for _, target in LINKS if target.startswith("../src/idiolect/")}
    assert {"data", "partition", "federation", "core", "parts", "methods", "engines", "experiments"} <= rooms
    assert len(NAMED) > 40


@pytest.mark.parametrize(("text", "target"), LINKS, ids=[f"{text}-{i}" for i, (text, _) in enumerate(LINKS)])
def test_linked_file_exists(text, target):
    assert (DOCS / target).exists(), f"docs/tour.md links to {target}"


@pytest.mark.parametrize(("name", "target"), NAMED)
def test_linked_name_is_defined_there(name, target):
    assert name in names_in(DOCS / target), f"docs/tour.md says that {target} defines {name}"
