"""The reader of each file layout, and datasets read from files with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from idiolect.data.cifar import read_cifar_part
from idiolect.data.cinic import read_cinic
from idiolect.data.dataset import Dataset
from idiolect.data.emnist import read_emnist
from idiolect.data.femnist import read_femnist
from idiolect.data.flickr_aes import read_flickr_aes
from idiolect.data.idx import read_idx_part
from idiolect.data.location import destination, fetch_again, locate, md5_of
from idiolect.data.reader_result import Part, ReaderResult
from idiolect.data.shakespeare import read_shakespeare_leaf, read_shakespeare_roles
from idiolect.data.sources import Source
from idiolect.data.tiny_imagenet import read_tiny_imagenet
from idiolect.errors import UserError

__all__ = ["load_files", "reader_of"]

OWN_SUMS = "MD5SUMS"  # beside the files of a dataset that a user has packed otherwise than they are published


def _in_two_parts(read_part: Callable[..., Part]) -> Callable[..., ReaderResult]:
    def read(source: Source, root: Path) -> ReaderResult:
        folder, advice = locate(source, root), fetch_again(source, root)
        train_x, train_y, train_sums = read_part(source.train_files, folder, advice)
        test_x, test_y, test_sums = read_part(source.test_files, folder, advice)
        return ReaderResult(train_x, train_y, test_x, test_y, train_sums | test_sums)

    return read


_READERS: dict[str, Callable[..., ReaderResult]] = {
    "idx": _in_two_parts(read_idx_part),
    "cifar": _in_two_parts(read_cifar_part),
    "emnist": read_emnist,
    "femnist": read_femnist,
    "shakespeare-leaf": read_shakespeare_leaf,
    "shakespeare-roles": read_shakespeare_roles,
    "cinic": read_cinic,
    "tiny-imagenet": read_tiny_imagenet,
    "flickr-aes": read_flickr_aes,
}


def reader_of(source: Source) -> Callable[..., ReaderResult]:
    """Returns the function that reads a dataset's files; its keyword arguments are the dataset's options."""
    return _READERS[source.layout]


def _repackaged_files(source: Source, root: Path) -> list[str]:
    """Returns the files that are packed otherwise than the published ones, as the file MD5SUMS beside them says.

    An unpacked file has no known checksum.

    Raises:
        UserError: a file is neither the published one nor vouched for.
    """
    folder = destination(source, root)
    vouched, repackaged = _vouched_sums(folder / OWN_SUMS), []
    for file in source.files:
        found = md5_of(folder / file.name) if file.md5 else None
        if found in (None, file.md5):
            continue
        if found != vouched.get(file.name):
            raise UserError(
                f"{folder / file.name} is not the file that {source.name} is published as: expected md5 {file.md5}, "
                f"found {found}; {fetch_again(source, root)}, or, where the same data are packed otherwise, vouch for "
                f"them with 'md5sum * > {OWN_SUMS}' in their folder"
            )
        repackaged.append(file.name)
    return repackaged


def _vouched_sums(path: Path) -> dict[str, str]:
    """Returns the md5 of each file of a folder, as ``md5sum`` writes them; nothing without such a file."""
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
    pairs = [line.split(maxsplit=1) for line in lines]
    return {pair[1].lstrip("*"): pair[0] for pair in pairs if len(pair) == 2}


def load_files(source: Source, root: Path, **options: Any) -> Dataset:
    """Reads a dataset from its files under the data folder `root`."""
    repackaged = _repackaged_files(source, root)
    found = reader_of(source)(source, root, **options)
    manifest: dict[str, Any] = {
        "source": source.home,
        "licence": source.licence,
        "sha256": found.sha256,
        "counts": {"train": len(found.train_y), "test": len(found.test_y)},
    }
    if found.owners:
        manifest["owners"] = list(found.owners)
    if repackaged:
        manifest["repackaged"] = repackaged
    if found.left_out:
        manifest["left_out"] = found.left_out
    return Dataset(
        name=source.name,
        train_x=found.train_x,
        train_y=found.train_y,
        test_x=found.test_x,
        test_y=found.test_y,
        n_classes=found.n_classes or source.n_classes,
        mean=source.mean,
        std=source.std,
        manifest=manifest,
        train_ids=found.train_ids,
        vocabulary=source.vocabulary,
    )
