from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiolect.data import get
from idiolect.data.sources import SOURCES, KnownFile
from idiolect.errors import UserError

ClientSet = dict[str, bytes | str]


def md5(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def cifar_home(
    home_of: Callable[[dict[str, bytes]], Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[ClientSet], Any]:
    """Puts an archive in CIFAR-100's place; a member given as str is a link to that path."""

    def make(members: ClientSet) -> Any:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                if isinstance(content, str):
                    member.type, member.linkname = tarfile.SYMTYPE, content
                    tar.addfile(member)
                else:
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        archive = KnownFile("cifar-100-python.tar.gz", md5(packed.getvalue()))
        changed = dataclasses.replace(
            SOURCES["cifar100"],
            archive=archive,
            train_files=(KnownFile("train", md5(b"train rows")),),
            test_files=(KnownFile("test", md5(b"test rows")),),
        )
        monkeypatch.setitem(SOURCES, "cifar100", changed)
        return home_of({archive.name: packed.getvalue()})

    return make


def test_get_unpacks_only_the_expected_members(
    tmp_path: Path, cifar_home: Callable[[ClientSet], Any]
) -> None:
    home = cifar_home(
        {
            "../outside": b"harm",
            "cifar-100-python/train": b"train rows",
            "cifar-100-python/test": b"test rows",
            "cifar-100-python/extra": b"not asked for",
            "other/cifar-100-python/train": b"harm",
            "cifar-100-python/test.old": b"harm",
        }
    )
    folder = get("cifar100", tmp_path / "data", opener=home)
    assert everything_in(tmp_path) == ["data/cifar-100-python/test", "data/cifar-100-python/train"]
    assert (folder / "train").read_bytes() == b"train rows"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cifar-100-python/train": b"train rows"}, "has no plain file test"),
        (
            {"cifar-100-python/train": "/etc/hostname", "cifar-100-python/test": b"test rows"},
            "has no plain file train",
        ),
        (
            {"cifar-100-python/train": b"other rows", "cifar-100-python/test": b"test rows"},
            "member train, arrived damaged",
        ),
    ],
)
def test_get_wrong_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, cifar_home: Callable[[ClientSet], Any], members: ClientSet, message: str
) -> None:
    home = cifar_home(members)
    with pytest.raises(UserError, match=message):
        get("cifar100", tmp_path, opener=home)
    assert list(tmp_path.iterdir()) == []
