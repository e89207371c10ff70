"""A dataset from its files: each part is read in the files' layout, then the two are put together."""

from __future__ import annotations

from pathlib import Path

from idiolect.data.cifar import read_cifar_part
from idiolect.data.dataset import Dataset
from idiolect.data.idx import read_idx_part
from idiolect.data.location import fetch_again, locate
from idiolect.data.sources import Source

__all__ = ["load_files"]

_READERS = {"idx": read_idx_part, "cifar": read_cifar_part}


def load_files(source: Source, root: Path) -> Dataset:
    """Reads the dataset that lies under the data folder `root`."""
    folder, advice = locate(source, root), fetch_again(source, root)
    read_part = _READERS[source.layout]
    train_x, train_y, train_sums = read_part(source.train_files, folder, advice)
    test_x, test_y, test_sums = read_part(source.test_files, folder, advice)
    return Dataset(
        name=source.name,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        n_classes=source.n_classes,
        mean=source.mean,
        std=source.std,
        manifest={
            "source": source.home,
            "licence": source.licence,
            "sha256": train_sums | test_sums,
            "counts": {"train": len(train_y), "test": len(test_y)},
        },
    )
