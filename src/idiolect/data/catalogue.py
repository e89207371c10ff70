"""Datasets by name: one function to load them, one to list them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from idiolect.data.dataset import Dataset
from idiolect.data.embedded import EMBEDDED, TEST_PER_CLASS, TRAIN_PER_CLASS, load_embedded
from idiolect.data.from_files import load_files, options_of
from idiolect.data.location import data_folder, destination, is_present
from idiolect.data.sources import SOURCES, Source
from idiolect.data.synthetic import synthetic
from idiolect.errors import UserError, unknown_name

__all__ = ["DEFAULT", "Row", "describe", "load", "names"]

DEFAULT = EMBEDDED
SYNTHETIC = "synthetic"


class Row(NamedTuple):
    """One line of the catalogue: `samples` counts train and test together, `where` says where it looks."""

    name: str
    samples: int
    classes: int
    shape: tuple[int, int, int]
    licence: str
    status: Literal["present", "missing"]
    where: str


def names() -> tuple[str, ...]:
    """Every name `load` knows, the default first."""
    return (EMBEDDED, *SOURCES, SYNTHETIC)


def load(name: str = DEFAULT, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Loads a dataset.

    Args:
        name: one of `names()`.
        data_dir: the folder that holds the datasets' folders, or the dataset's own folder; by default the
            environment variable IDIOLECT_DATA, then ~/.cache/idiolect.
        options: the keyword arguments of `synthetic`, or of the dataset's reader: `split` of emnist, `stride` of
            shakespeare-roles, `size`, `min_ratings` and `max_ratings` of flickr-aes; no other has any.
    """
    if name == SYNTHETIC:
        _refuse_unknown(name, options, inspect.signature(synthetic).parameters)
        return synthetic(**options)
    if name not in names():
        raise unknown_name("dataset", name, names())
    if name == EMBEDDED:
        _refuse_unknown(name, options, ())
        return load_embedded()
    _refuse_unknown(name, options, options_of(SOURCES[name]))
    return load_files(SOURCES[name], data_folder(data_dir), **options)


def describe(data_dir: str | os.PathLike[str] | None = None) -> list[Row]:
    """The whole catalogue, saying of each dataset whether its files are there."""
    root = data_folder(data_dir)
    origin = SOURCES["fashion-mnist"]
    n_embedded = origin.n_classes * (TRAIN_PER_CLASS + TEST_PER_CLASS)
    embedded = Row(EMBEDDED, n_embedded, 10, origin.shape, origin.licence, "present", "inside the package")
    generated = Row(
        SYNTHETIC, 3_600, 10, (1, 1, 60), "none needed", "present", "generated; sizes are its defaults"
    )
    return [embedded, *(_row(source, root) for source in SOURCES.values()), generated]


def _row(source: Source, root: Path) -> Row:
    return Row(
        name=source.name,
        samples=source.n_train + source.n_test,
        classes=source.n_classes,
        shape=source.shape,
        licence=source.licence,
        status="present" if is_present(source, root) else "missing",
        where=str(destination(source, root)),
    )


def _refuse_unknown(name: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    for key in options:
        if key not in known:
            allowed = f"known: {', '.join(known)}" if known else "it takes none"
            raise UserError(f"dataset {name!r} has no option {key!r}; {allowed}")
