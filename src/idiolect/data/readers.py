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


def _refuse_other_files(source: Source, root: Path) -> None:
    """Refuses a file whose checksum is known and is another; an unpacked one has none."""
    folder = destination(source, root)
    for file in source.files:
        found = md5_of(folder / file.name) if file.md5 else None
        if found not in (None, file.md5):
            raise UserError(
                f"{folder / file.name} is not the file that {source.name} is published as: expected md5 {file.md5}, "
                f"found {found}; {fetch_again(source, root)}"
            )


def load_files(source: Source, root: Path, **options: Any) -> Dataset:
    """Reads a dataset from its files under the data folder `root`."""
    _refuse_other_files(source, root)
    found = reader_of(source)(source, root, **options)
    manifest: dict[str, Any] = {
        "source": source.home,
        "licence": source.licence,
        "sha256": found.sha256,
        "counts": {"train": len(found.train_y), "test": len(found.test_y)},
    }
    if found.owners:
        manifest["owners"] = list(found.owners)
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
