"""The digest of the code that decides numbers."""

import shutil
from pathlib import Path

import pytest

import idiolect
from idiolect.deploy import code_digest as module


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package, whose digest is taken instead."""
    root = tmp_path / "idiolect"
    shutil.copytree(
        Path(idiolect.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__", "embedded")
    )
    monkeypatch.setattr(idiolect, "__file__", str(root / "__init__.py"))
    module.package_digests.cache_clear()
    yield root
    module.package_digests.cache_clear()


ROOMS = (
    "core",
    "data",
    "engines",
    "evaluation",
    "experiments",
    "federation",
    "methods",
    "models",
    "partition",
    "parts",
)


@pytest.mark.parametrize("room", ROOMS)
def test_change_in_a_room_of_the_round_changes_the_digest(package, room, tmp_path):
    before = module.code_digest(tmp_path)
    changed = next((package / room).rglob("*.py"))
    changed.write_text(changed.read_text() + "\n")
    module.package_digests.cache_clear()
    assert module.code_digest(tmp_path) != before


def test_rooms_beside_the_round_do_not_count(package, tmp_path):
    before = module.code_digest(tmp_path)
    changed = package / "reports" / "__init__.py"
    changed.write_text(changed.read_text() + "\n")
    module.package_digests.cache_clear()
    assert module.code_digest(tmp_path) == before
