"""The pins of a deployment: complete, each with a hash, and those of constraints.txt."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[a-z0-9._-]+)==(?P<version>[^ ]+) --hash=sha256:(?P<hash>[0-9a-f]{64})")


@pytest.fixture(scope="module")
def pinned() -> dict[str, str]:
    """The version of each pinned package."""
    lines = (ROOT / "constraints-deploy.txt").read_text().splitlines()
    found = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found), "every line is a version with its hash"
    return {canonicalize_name(match["name"]): match["version"] for match in found if match}


def test_pins_are_the_versions_that_were_tried(pinned: dict[str, str]) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    tried = {canonicalize_name(name): version for name, version in tried.items()}
    assert {name: version for name, version in pinned.items() if tried.get(name, version) != version} == {}


def test_pins_hold_all_that_the_package_and_flower_need(pinned: dict[str, str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [
        Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["flower"]
    ]
    seen, missing = set(), set()
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        if name == "torch" or name not in pinned:
            missing |= {name} - {"torch"}
            continue
        assert wanted.specifier.contains(pinned[name], prereleases=True), (name, pinned[name])
        left += [Requirement(text) for text in metadata.requires(name) or ()]
    assert missing == set()


def test_script_writes_what_pip_chose_and_leaves_torch_aside() -> None:
    def package(name: str) -> dict[str, object]:
        found = {"archive_info": {"hash": "sha256=" + "a" * 64}}
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": found}

    written = script().pins({"install": [package("Zeta"), package("torch"), package("alpha")]}).splitlines()
    assert written[-2:] == [f"{name}==1.0 --hash=sha256:{'a' * 64}" for name in ("alpha", "zeta")]
    assert all(line.startswith("#") for line in written[:-2])


def script() -> ModuleType:
    found = spec_from_file_location("write_deploy_pins", ROOT / "scripts" / "write_deploy_pins.py")
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
