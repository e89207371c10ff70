"""The script that makes shakespeare-roles from plays in XML."""

from __future__ import annotations

import importlib.util
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from idiolect.data import load

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_shakespeare_roles.py"
PLAY = """<?xml version="1.0"?>
<PLAY><TITLE>The Tempest</TITLE><ACT><SCENE><TITLE>SCENE I</TITLE>
<SPEECH><SPEAKER>Master</SPEAKER><LINE>Boatswain!</LINE></SPEECH>
<SPEECH><SPEAKER>Boatswain</SPEAKER><LINE>Here,   master: <STAGEDIR>Aside</STAGEDIR> what cheer?</LINE>
<STAGEDIR>Thunder</STAGEDIR><LINE><STAGEDIR>Exit</STAGEDIR></LINE></SPEECH>
<SPEECH><SPEAKER>Master</SPEAKER><SPEAKER>Boatswain</SPEAKER><LINE>{line}</LINE><LINE>fall to't</LINE></SPEECH>
</SCENE></ACT></PLAY>"""
LINE = "Good, speak to the mariners: fall to't, yarely, or we run ourselves aground: bestir, bestir."


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_shakespeare_roles", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(script: ModuleType, monkeypatch: pytest.MonkeyPatch, plays: Path, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["make", "--from", str(plays), "--to", str(out)])
    code: int = script.main()
    return code


@pytest.mark.parametrize("packed", [True, False])
def test_speeches_are_gathered_by_role_and_load(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    plays = tmp_path / "plays"
    plays.mkdir()
    (plays / "tempest.xml").write_text(PLAY.format(line=LINE))
    if packed:
        with tarfile.open(tmp_path / "plays.tar.gz", "w:gz") as tar:
            tar.add(plays)
        plays = tmp_path / "plays.tar.gz"
    assert call(script, monkeypatch, plays, tmp_path / "data") == 0
    found = json.loads((tmp_path / "data" / "shakespeare_roles.json").read_text())
    together = f"{LINE}\nfall to't"
    assert found["user_data"] == {
        "The Tempest :: Master": ["Boatswain!", together],
        "The Tempest :: Boatswain": ["Here, master: what cheer?", together],
    }
    assert found["users"] == list(found["user_data"])
    dataset = load("shakespeare-roles", tmp_path / "data")
    assert dataset.manifest["owners"] == ["The Tempest :: Boatswain", "The Tempest :: Master"]


@pytest.mark.parametrize("text", ["<PLAY>", "<PLAY><TITLE>Empty</TITLE></PLAY>"])
def test_plays_without_speeches_are_refused_and_nothing_is_written(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "play.xml").write_text(text)
    assert call(script, monkeypatch, tmp_path, tmp_path / "data") == 2
    assert not (tmp_path / "data").exists()
