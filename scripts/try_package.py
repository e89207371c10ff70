"""Tries the built packages away from the repository: what they hold, and the demo from the wheel, offline.

    python scripts/try_package.py dist

The wheel is installed into two empty virtual environments in a temporary folder.  In the first, with the versions of
constraints.txt, the demo runs with --quick and with every proxy set to a closed port, so that it cannot reach a
network.  The second takes what pip takes today, as for a user without constraints, and lists the methods; only PyTorch
has the version of constraints.txt, because its newest wheel brings gigabytes for GPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLOSED = "http://127.0.0.1:9"  # the port of the discard protocol, where nothing listens
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), CLOSED)


def main(folder: Path) -> None:
    wheel, source = _only(folder, "*.whl"), _only(folder, "*.tar.gz")
    _holds_the_package(wheel)
    _holds_the_tests(source)
    with tempfile.TemporaryDirectory() as temporary:
        _runs_the_demo(wheel.resolve(), Path(temporary))
        _starts_without_constraints(wheel.resolve(), Path(temporary))
    print(f"{wheel.name} and {source.name} are complete, and the demo ran from the wheel alone")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} holds {len(found)} files {pattern}, where one was expected; run make package")
    return found[0]


def _tracked(*folders: str) -> set[str]:
    """Returns the files that git knows below some folders of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split("\n")) - {""}


def _holds_the_package(wheel: Path) -> None:
    held = {f"src/{name}" for name in zipfile.ZipFile(wheel).namelist()}
    _refuse_missing(wheel, _tracked("src/idiolect") - held)


def _holds_the_tests(source: Path) -> None:
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    _refuse_missing(
        source, _tracked("src", "tests", "docs", "examples", "scripts", "Makefile", "constraints.txt") - held
    )


def _refuse_missing(file: Path, missing: set[str]) -> None:
    if missing:
        sys.exit(f"{file.name} lacks {len(missing)} files of the repository, among them {min(missing)}")


def _install(wheel: Path, place: Path, constraints: Path) -> Path:
    """Installs the wheel into a new environment and returns its folder of programs."""
    venv.create(place, with_pip=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [place / "bin" / "python", "-m", "pip", "install", *quiet, "-c", constraints, wheel]
    subprocess.run(command, check=True)
    return place / "bin"


def _starts_without_constraints(wheel: Path, folder: Path) -> None:
    pinned = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    torch_alone = folder / "torch.txt"
    torch_alone.write_text("\n".join(line for line in pinned if line.startswith("torch==")), "utf-8")
    programs = _install(wheel, folder / "today", torch_alone)
    subprocess.run(
        [programs / "idiolect", "methods"],
        cwd=folder,
        env=_offline(folder),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _offline(folder: Path) -> dict[str, str]:
    """Returns an environment without variables of the caller's that could lead to the repository, or to a network."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), **OFFLINE}


def _runs_the_demo(wheel: Path, folder: Path) -> None:
    programs = _install(wheel, folder / "venv", ROOT / "constraints.txt")
    environment = _offline(folder)
    for arguments in (["--version"], ["run", "--quick", "--out", "runs"]):
        subprocess.run([programs / "idiolect", *arguments], cwd=folder, env=environment, check=True)
    where = [programs / "python", "-c", "import idiolect; print(idiolect.__file__)"]
    home = subprocess.run(
        where, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout
    if not home.startswith(str(folder)):
        sys.exit(f"the demo ran from {home.strip()}, not from the wheel")
    if not list((folder / "runs").glob("*/curves.png")):
        sys.exit("the demo drew no curves.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
