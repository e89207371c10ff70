"""The store of a site's private state on its own disk, with versions and backups.

Every version is a safetensors file ``state-<round>-<step>`` with a checksum over tensors and facts, written atomically.
The server says which version it knows, because it has merged the upload that came with it; work continues from that
version.  A version that the server does not know is one whose upload was lost: it is computed again.  The known version
and the ones before it are kept, so that a damaged file costs rounds and not the model, and that the site can go back
to the rounds of which the server keeps a checkpoint.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.core.trees import Tree
from idiolect.deploy.keys import write_secret
from idiolect.deploy.tensor_names import flatten, tree_digest, unflatten
from idiolect.errors import UserError
from idiolect.records import read_json_object, write_atomically
from idiolect.records.tensor_files import DamagedFile, read_tensors, write_tensors

__all__ = ["END", "JOIN", "MERGED", "MOST_COUNT", "TRAINED", "Position", "PrivateStore"]

TRAINED, MERGED, END, JOIN = range(4)  # steps of a round that change private state
BACKUPS = 2  # versions kept before the known one
MOST_COUNT = 2**62  # of a serial number; a file that says more is damaged
FRESH = "fresh"  # a file that marks a fresh start on purpose
SECRET, SECRET_BYTES = "secret", 32  # the key of digests
SEEN = "seen.json"  # the serial number of the last request, and the rollback that was followed last


class Seen(NamedTuple):
    """What a site remembers of requests.

    Args:
        serial: of the last one that was accepted; empty before the first.
        era: names the last rollback of the server that the site has followed.
    """

    serial: list[int]
    era: str


class Position(NamedTuple):
    """When a version was made: the round, from 0, and the step within it."""

    round: int
    step: int


@dataclass(frozen=True)
class PrivateStore:
    """The versions of one site's private state in one experiment.

    Args:
        folder: of this experiment and site alone.
        owner: experiment and site, kept in every file and compared when it is read.
        forms: every form that private state can have.
    """

    folder: Path
    owner: dict[str, str]
    forms: Sequence[Tree]

    def versions(self) -> list[Position]:
        """Returns the positions of all versions on disk, the newest last."""
        found = (re.fullmatch(r"state-(\d+)-(\d)\.safetensors", path.name) for path in self._files())
        return sorted(Position(int(match[1]), int(match[2])) for match in found if match)

    def newest(self) -> Position | None:
        return max(self.versions(), default=None)

    def base(self, known: Position | None, asked: Position) -> Position | None:
        """Returns the version from which work at ``asked`` starts, or None for a fresh state.

        Args:
            known: the last version of this site that the server has merged.

        Raises:
            UserError: the version that the server knows is not here, or the server does not know later ones that are.
        """
        held = self.versions()
        if (self.folder / FRESH).exists():
            return None
        if known is None:
            if any(version.round > asked.round for version in held):
                raise UserError(
                    f"{self.folder} holds private state of round {held[-1].round + 1} and the server starts again at "
                    f"round {asked.round + 1}; to give that state up: idiolect deploy restore --fresh"
                )
            return None
        earlier = [version for version in held if version <= known]
        if not earlier:
            raise UserError(
                f"the private state of round {known.round + 1} is not in {self.folder}; put it back, or start from "
                "nothing with idiolect deploy restore --fresh"
            )
        return earlier[-1]

    def read(self, version: Position) -> Tree:
        """Reads a version.

        Raises:
            UserError: the file is damaged or of another owner; the sentence names the backup before it.
        """
        path = self._path(version)
        try:
            tensors, facts = read_tensors(path)
        except DamagedFile as error:
            raise UserError(f"private state is damaged: {error}; {self._advice(version)}") from None
        said = json.loads(facts["owner"])
        if said != self.owner or json.loads(facts["position"]) != list(version):
            raise UserError(f"{path.name} is of {said}, not of {self.owner}; {self._advice(version)}")
        return unflatten(tensors, self.forms, path.name)

    def write(self, version: Position, private: Tree, known: Position | None, rounds: int = 0) -> None:
        """Writes a version; keeps beside it the known one, its backups, and those to which the server can go back.

        Args:
            known: the last version of this site that the server has merged.
            rounds: of which the server keeps checkpoints.
        """
        self._make_folder()
        serial = json.dumps(self.seen().serial)
        facts = {"owner": json.dumps(self.owner), "position": json.dumps(version), "serial": serial}
        write_tensors(self._path(version), flatten(private), facts)
        self._path(version).chmod(0o600)
        (self.folder / FRESH).unlink(missing_ok=True)
        merged = [held for held in self.versions() if known is not None and held <= known]
        recent = [held for held in merged if held.round >= version.round - rounds]
        before = merged[: len(merged) - len(recent)]
        kept = {version, *merged[-1 - BACKUPS :], *recent, *before[-1:]}
        for held in self.versions():
            if held not in kept:
                self._path(held).unlink()

    def check(self) -> None:
        """Reads the newest version to see that it is sound.

        Raises:
            UserError: it cannot be read.
        """
        newest = self.newest()
        if newest is not None and not (self.folder / FRESH).exists():
            self.read(newest)

    def step_back(self) -> Position:
        """Puts the newest version aside, and damaged ones before it; returns the sound one that is now the newest."""
        held = self.versions()
        sound = [version for version in held[:-1] if self._is_sound(version)]
        if not sound:
            raise UserError(f"there is no sound backup in {self.folder}; start from nothing with --fresh")
        for version in held[held.index(sound[-1]) + 1 :]:
            self._put_aside(version)
        return sound[-1]

    def start_afresh(self) -> None:
        """Puts every version aside and marks the fresh start as wanted."""
        self._make_folder()
        for version in self.versions():
            self._put_aside(version)
        write_atomically(self.folder / FRESH, "the private state was given up on purpose\n").chmod(0o600)

    def accept(self, serial: Sequence[int]) -> None:
        """Remembers the serial number of a request.

        Raises:
            UserError: it is not higher than the last one, so the request is a repetition.
        """
        seen = self.seen()
        if list(serial) <= seen.serial:
            raise UserError(
                f"the server's message {list(serial)} is not newer than {seen.serial}, so it is a repetition"
            )
        self._remember(seen._replace(serial=list(serial)))

    def go_back(self, era: str, known: Position | None) -> list[Position]:
        """Follows a rollback of the server, once: puts aside what came after ``known``; returns the versions put aside.

        Args:
            era: names the server's last rollback; empty where there was none.
            known: the version of this site that the server went back to; None gives up all.
        """
        seen = self.seen()
        if era in ("", seen.era):
            return []
        later = [held for held in self.versions() if known is None or held > known]
        for version in later:
            self._put_aside(version)
        self._remember(seen._replace(era=era))
        return later

    def seen(self) -> Seen:
        """Returns what the site remembers of requests; where its file is gone or damaged, what its versions remember.

        A version names the request that it was made for, so that no request is accepted twice that changed anything.
        """
        try:
            return self._remembered()
        except (OSError, ValueError):
            return Seen(max((self._serial_of(held) for held in self.versions()), default=[]), "")

    def mend_seen(self) -> str:
        """Writes a damaged file of the last request again; returns what was done, or nothing where it was sound."""
        path = self.folder / SEEN
        if not path.exists():
            return ""
        try:
            self._remembered()
            return ""
        except (OSError, ValueError):
            seen = self.seen()
            path.replace(path.with_suffix(".damaged"))
            self._remember(seen)
            return (
                f"{path} was damaged and is kept as {path.with_suffix('.damaged').name}; requests up to {seen.serial}, "
                "which the private state names, count as accepted"
            )

    def digest(self, private: Tree) -> str:
        """Returns a digest of private state that tells the server whether it is the same, and nothing else.

        Its key is a secret of the site, made at first use.
        """
        path = self.folder / SECRET
        secret = path.read_bytes() if path.exists() else b""
        if len(secret) != SECRET_BYTES:
            secret = secrets.token_bytes(SECRET_BYTES)
            self._make_folder()
            write_secret(path, secret)
        return tree_digest(private, secret)

    def _remembered(self) -> Seen:
        """Reads the file of the last request; raises OSError where it is gone, ValueError where it is damaged."""
        found = read_json_object(self.folder / SEEN)
        return Seen(_serial(found.get("serial")), str(found.get("era", "")))

    def _remember(self, seen: Seen) -> None:
        self._make_folder()
        write_atomically(self.folder / SEEN, json.dumps(seen._asdict())).chmod(0o600)

    def _serial_of(self, version: Position) -> list[int]:
        """Returns the serial number of the request that a version was made for; nothing where that cannot be read."""
        try:
            return _serial(json.loads(read_tensors(self._path(version))[1].get("serial", "[]")))
        except (DamagedFile, ValueError, RecursionError):
            return []

    def _make_folder(self) -> None:
        """Makes the folder, which only its owner can open."""
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def _advice(self, version: Position) -> str:
        sound = [held for held in self.versions() if held < version and self._is_sound(held)]
        if not sound:
            return "there is no sound backup: start from nothing with idiolect deploy restore --fresh"
        return (
            f"the backup of round {sound[-1].round + 1} is sound: go on from it with idiolect deploy restore"
        )

    def _is_sound(self, version: Position) -> bool:
        try:
            read_tensors(self._path(version))
        except DamagedFile:
            return False
        return True

    def _put_aside(self, version: Position) -> None:
        path = self._path(version)
        path.rename(path.with_suffix(".aside"))

    def _files(self) -> list[Path]:
        return list(self.folder.glob("state-*.safetensors"))

    def _path(self, version: Position) -> Path:
        return self.folder / f"state-{version.round}-{version.step}.safetensors"


def _serial(found: Any) -> list[int]:
    """Returns a serial number that was read, empty before the first; raises ValueError where it is none."""
    if not isinstance(found, list) or len(found) not in (0, 2):
        raise ValueError("a serial number is two whole numbers")
    for number in found:
        if type(number) is not int or not 0 <= number <= MOST_COUNT:
            raise ValueError(f"a serial number is two whole numbers from 0 to {MOST_COUNT}")
    return found
