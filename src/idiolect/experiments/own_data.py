"""Data of the user's own in an experiment: they are registered, and settings that are left open are fitted to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from idiolect import data
from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.experiments.setting import BY_OWNER
from idiolect.federation import to_dataset
from idiolect.models import suggested
from idiolect.option_parsing import parse_call

__all__ = ["DATA_KEYWORDS", "register_dataset", "with_own_data"]

DATA_KEYWORDS = (
    "data",
    "client_column",
    "label_column",
    "split_column",
    "split_by",
    "task",
    "fill",
    "vocabulary",
    "client_of",
    "split_of",
    "repartition",
)  # of ``run`` and its relatives, beside settings of the experiment
FEW_CLIENTS = 20  # so many at most all train in every round


def register_dataset(name: str, data_: Any, **options: Any) -> None:
    """Registers data of any form under a name, which ``dataset`` then takes like those of the package.

    Args:
        name: small letters, digits, underscores and hyphens.
        data_: data in any form that ``run(data=...)`` takes.
        options: how they are read, such as ``client_column``; see ``federation.to_dataset``.

    >>> import numpy as np
    >>> register_dataset("steps", {"ann": (np.eye(4), [0, 1, 0, 1]), "bo": (np.eye(4), [1, 1, 0, 0])})
    >>> data.load("steps").train_ids.tolist()[3:5]
    ['ann', 'bo']
    >>> del data.catalogue.REGISTERED["steps"]
    """
    data.register(name, to_dataset(data_, **options))


def with_own_data(settings: Mapping[str, Any], alone: bool = True) -> dict[str, Any]:
    """Returns settings in which data of the user's own are a dataset by name, and that fit these data.

    Clients are the owners that the data name.  The network is the usual one for the rows' shape, and few clients all
    train in every round, unless the settings say otherwise.

    Args:
        settings: keywords of ``run``; those of ``DATA_KEYWORDS`` are taken out.
        alone: no whole experiment is given beside the settings, so that what they leave open is chosen here.
    """
    given = {key: settings[key] for key in DATA_KEYWORDS if settings.get(key) is not None}
    chosen = {key: value for key, value in settings.items() if key not in DATA_KEYWORDS}
    repartition = bool(given.pop("repartition", False))
    if "data" in given:
        if "dataset" in chosen:
            raise UserError("data and dataset both say what to train on; give one of them")
        chosen["dataset"] = _registered(to_dataset(given.pop("data"), **given))
    elif given:
        raise UserError(f"{next(iter(given))} describes data of your own; give data too")
    text = chosen.get("dataset")
    if not isinstance(text, str) or not data.is_registered(text):
        if repartition:
            raise UserError("repartition is for data of your own that name their clients; leave it out")
        return chosen
    dataset = data.load(parse_call(text)[0])
    chosen |= _clients(dataset, chosen, repartition)
    return {**_open_settings(dataset), **chosen} if alone else chosen


def _registered(dataset: Dataset) -> str:
    """Registers a dataset under a name that holds its digest; returns the name."""
    word = re.sub(r"[^a-z0-9]+", "_", dataset.name.lower()).strip("_") or "data"
    name = f"{word if word[0].isalpha() else f'data_{word}'}-{dataset.digest[:8]}"
    data.register(name, dataset)
    return name


def _clients(dataset: Dataset, chosen: Mapping[str, Any], repartition: bool) -> dict[str, Any]:
    """Returns the settings that make clients: the owners that the data name, unless others are asked for."""
    asked = chosen.get("partition")
    if dataset.train_ids is None:
        if repartition:
            raise UserError(
                f"{dataset.name} names no clients, so that any partition makes them; leave repartition out"
            )
        if not asked:
            raise UserError(
                f"{dataset.name} does not say which client a row belongs to; name the column (client_column, "
                "--client-column), or say how rows are shared out among clients (partition, --partition), such as iid"
            )
        return {}
    if repartition:
        if not asked:
            raise UserError(
                "repartition needs a partition; say how rows are shared out, such as dirichlet_client"
            )
        return {}
    if asked and parse_call(asked)[0] not in BY_OWNER:
        raise UserError(
            f"{dataset.name} names the client of every row, and partition {asked} would mix their rows; leave the "
            "partition out, or add repartition (--repartition) to do so"
        )
    return {"partition": asked or "natural", "clients": chosen.get("clients", 0)}


def _open_settings(dataset: Dataset) -> dict[str, Any]:
    """Returns the settings that are chosen by the data where nothing else is asked for."""
    found: dict[str, Any] = {"model": suggested(dataset.shape, dataset.task, dataset.vocabulary)}
    if dataset.train_ids is not None and len(np.unique(dataset.train_ids)) <= FEW_CLIENTS:
        found["participation_rate"] = 1.0
    return found
