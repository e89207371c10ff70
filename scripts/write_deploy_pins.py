"""Writes constraints-deploy.txt: every package that a deployment runs, with its version and the hash of its file.

python scripts/write_deploy_pins.py

Run it where the deployment will run: files and hashes are those of this platform and Python.  pip itself chooses them
(``pip install --dry-run --report``) within constraints.txt.  torch is left out, because each machine takes the build
for its own accelerator.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PINS = ROOT / "constraints-deploy.txt"
ASIDE = "torch"
HEAD = """# The packages of a deployment with their hashes, for {platform}, CPython {python}; see SECURITY.md.
# Written by scripts/write_deploy_pins.py; torch is aside.
"""


def chosen_by_pip() -> dict[str, Any]:
    """Returns pip's report of what it would install for the package and its extra ``flower``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["flower"]]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        constraints = ["--only-binary", ":all:", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*command, *constraints, "--report", str(report), *wanted], check=True)
        found: dict[str, Any] = json.loads(report.read_text())
    return found


def pins(report: dict[str, Any]) -> str:
    """Returns the lines of the file, in the order of the packages' names."""
    lines = []
    for package in report["install"]:
        name, version = package["metadata"]["name"].lower(), package["metadata"]["version"]
        kind, _, digest = package["download_info"]["archive_info"]["hash"].partition("=")
        if name != ASIDE:
            lines.append(f"{name}=={version} --hash={kind}:{digest}\n")
    python = "{}.{}".format(*sys.version_info)
    return HEAD.format(platform=sysconfig.get_platform(), python=python) + "".join(sorted(lines))


if __name__ == "__main__":
    PINS.write_text(pins(chosen_by_pip()))
