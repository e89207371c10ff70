"""The catalogue of datasets by name, those of the package and registered ones: loads them and lists them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from idiolect.data.dataset import Dataset
from idiolect.data.embedded import EMBEDDED, TEST_PER_CLASS, TRAIN_PER_CLASS, load_embedded
from idiolect.data.location import data_folder, destination, is_present
from idiolect.data.readers import load_files, reader_of
from idiolect.data.sources import EMNIST_SPLITS, SOURCES, Source
from idiolect.data.synthetic_clients import synthetic
from idiolect.errors import UserError, refuse_unknown_choice, unknown_name
from idiolect.option_parsing import OptionSchema, parse_call
from idiolect.own_code import load_plugins

__all__ = [
    "DEFAULT",
    "DatasetDescription",
    "describe",
    "is_registered",
    "load",
    "names",
    "register",
    "resolved",
    "sizes",
]

DEFAULT = EMBEDDED
SYNTHETIC = "synthetic"
REGISTERED: dict[str, Dataset] = {}


class DatasetDescription(NamedTuple):
    """One row of the catalogue: `samples` counts train and test together, `where` is the folder it looks in."""

    name: str
    samples: int
    classes: int
    shape: tuple[int, ...]
    licence: str
    status: Literal["present", "missing"]
    where: str


def names() -> tuple[str, ...]:
    """Returns every name that `load` takes, the default first."""
    return (EMBEDDED, *SOURCES, SYNTHETIC, *REGISTERED)


def register(name: str, dataset: Dataset) -> None:
    """Registers a dataset by name, as if it were in the package; the same data may be registered again.

    Args:
        name: small letters, digits, underscores and hyphens, beginning with a letter.

    Raises:
        UserError: the name cannot name a dataset, or is that of other data.
    """
    if not re.fullmatch(r"[a-z]\w*(-\w+)*", name) or name != name.lower():
        raise UserError(f"{name!r} cannot name a dataset; use small letters, digits, underscores and hyphens")
    if name in names() and (name not in REGISTERED or REGISTERED[name].digest != dataset.digest):
        raise UserError(f"{name} is a dataset already, of other data; choose another name")
    REGISTERED[name] = dataset


def is_registered(text: str) -> bool:
    """Whether a dataset as it is written is a registered one, by this process or by a plugin."""
    name, _ = parse_call(text)
    if name not in names():
        load_plugins()
    return name in REGISTERED


def load(name: str = DEFAULT, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Loads a dataset.

    Args:
        name: one of `names()`.
        data_dir: the folder that holds the datasets' folders, or the dataset's own folder; by default the
            environment variable IDIOLECT_DATA, then ~/.cache/idiolect.
        options: the keyword arguments of `synthetic`, or of the dataset's reader: `split` of emnist, `stride` of
            shakespeare-roles, `size`, `min_ratings` and `max_ratings` of flickr-aes; no other has any.
    """
    _options(name).refuse_unknown(options)
    if name in REGISTERED:
        return REGISTERED[name]
    if name == SYNTHETIC:
        return synthetic(**options)
    if name == EMBEDDED:
        return load_embedded()
    return load_files(SOURCES[name], data_folder(data_dir), **options)


def resolved(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a dataset as it is written, defaults included.

    A registered dataset has its digest in place of options, so that other data of the same name make another run.

    >>> resolved("emnist")
    ('emnist', {'split': 'byclass'})
    """
    name, given = parse_call(text)
    known = _options(name)
    known.refuse_unknown(given)
    if name in REGISTERED:
        return name, {"digest": REGISTERED[name].digest}
    return name, known.with_defaults(given)


def sizes(text: str) -> tuple[tuple[int, ...], int]:
    """Returns the shape of a row and the number of classes of a dataset as it is written, without reading any of it.

    >>> sizes("emnist(split=letters)")
    ((1, 28, 28), 26)
    """
    name, options = resolved(text)
    if name in REGISTERED:
        return REGISTERED[name].shape, REGISTERED[name].n_classes
    if name == SYNTHETIC:
        return (1, 1, options["n_features"]), options["n_classes"]
    source = SOURCES["fashion-mnist" if name == EMBEDDED else name]
    n_classes, side = source.n_classes, options.get("size")
    if "split" in options:
        refuse_unknown_choice(f"dataset {name}: split", options["split"], EMNIST_SPLITS)
        n_classes = EMNIST_SPLITS[options["split"]]
    return (source.shape[0], side, side) if side else source.shape, n_classes


def _options(name: str) -> OptionSchema:
    """Returns the options of a dataset; its reader checks their values itself."""
    if name not in names():
        load_plugins()
    if name not in names():
        raise unknown_name("dataset", name, names())
    subject = f"dataset {name!r}"
    if name == EMBEDDED or name in REGISTERED:
        return OptionSchema(subject, {})
    read = synthetic if name == SYNTHETIC else reader_of(SOURCES[name])
    return OptionSchema.of(subject, read, lambda parameter: parameter.kind is parameter.KEYWORD_ONLY)


def describe(data_dir: str | os.PathLike[str] | None = None) -> list[DatasetDescription]:
    """Describes every dataset, and says whether its files are there."""
    load_plugins()
    root = data_folder(data_dir)
    origin = SOURCES["fashion-mnist"]
    n_embedded = origin.n_classes * (TRAIN_PER_CLASS + TEST_PER_CLASS)
    embedded = DatasetDescription(
        EMBEDDED, n_embedded, 10, origin.shape, origin.licence, "present", "inside the package"
    )
    generated = DatasetDescription(
        SYNTHETIC, 3_600, 10, (1, 1, 60), "none needed", "present", "generated; sizes are its defaults"
    )
    own = (
        DatasetDescription(
            name, len(d.train_y) + len(d.test_y), d.n_classes, d.shape, "-", "present", "registered"
        )
        for name, d in REGISTERED.items()
    )
    return [embedded, *(_row(source, root) for source in SOURCES.values()), generated, *own]


def _row(source: Source, root: Path) -> DatasetDescription:
    return DatasetDescription(
        name=source.name,
        samples=source.n_train + source.n_test,
        classes=source.n_classes,
        shape=source.shape,
        licence=source.licence,
        status="present" if is_present(source, root) else "missing",
        where=str(destination(source, root)),
    )
