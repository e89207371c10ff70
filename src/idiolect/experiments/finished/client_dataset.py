"""The rows of one client as a dataset of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import TensorDataset

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.setting import prepare
from idiolect.experiments.shown_settings import shows_settings
from idiolect.experiments.spec import Experiment, with_settings

__all__ = ["client_dataset"]

SPLITS = ("train", "valid", "test")


@shows_settings
def client_dataset(
    client: int | str, split: str = "train", *, execution: Execution | None = None, **settings: Any
) -> TensorDataset:
    """Returns the rows of one client as a run with these settings sees them: normalised, with its targets.

    ``torch.utils.data.DataLoader(client_dataset(3), batch_size=32)`` then feeds any training loop of your own.

    Args:
        client: its number, or its name where the data name their clients.
        split: ``train``, ``valid`` or ``test``.
        settings: as for ``run``: the data, the partition, the number of clients, the splits, the seed.

    >>> rows = client_dataset(0, clients=4, partition="iid")
    >>> len(rows), [each.shape for each in rows[0]]
    (1500, [torch.Size([1, 28, 28]), torch.Size([])])
    """
    refuse_unknown_choice("split", split, SPLITS)
    execution, chosen = split_keywords(execution, with_own_data(settings))
    experiment = with_settings(Experiment(), chosen)
    setting = prepare(experiment, execution.engine_choice(), execution.data_dir)
    names = [str(name) for name in setting.federation.names]
    number = names.index(client) if client in names else client
    if not isinstance(number, int) or not 0 <= number < setting.federation.population:
        known = ", ".join(names[:5]) or f"0 to {setting.federation.population - 1}"
        raise UserError(f"there is no client {client!r}; the clients are {known}{', ...' * (len(names) > 5)}")
    held = getattr(setting.federation.clients[number], split)
    rows = torch.as_tensor(held, device=setting.work.x.device)
    return TensorDataset(setting.work.x[rows], setting.work.y[rows])
