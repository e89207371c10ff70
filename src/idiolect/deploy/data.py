"""The data of one place: a site's rows, or the server's test set; a federation in which the others are empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect.data import normalised
from idiolect.deploy.plan import Plan, SiteConfig
from idiolect.errors import UserError
from idiolect.federation import ClientRows, Clients, Federation, split_rows

__all__ = ["DATA", "server_federation", "site_federation", "write_rows"]

DATA = "data.npz"
NOBODY = np.empty(0, np.int64)


def write_rows(path: Path, **arrays: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def site_federation(plan: Plan, config: SiteConfig) -> Federation:
    """All clients of the experiment, of whom this site alone has rows: its own, split as in a simulation."""
    path = config.folder / config.data / DATA
    arrays = _arrays(path, ("x", "y"))
    x, y = _checked(plan, path, arrays["x"], arrays["y"])
    experiment = plan.experiment
    own = split_rows(
        np.arange(len(y)), config.number, valid=experiment.valid, test=experiment.test, seed=experiment.seed
    )
    nothing = ClientRows(NOBODY, NOBODY, NOBODY)
    count = max(experiment.clients, config.client + 1)  # who was added later stands behind all others
    clients = [own if client == config.client else nothing for client in range(count)]
    return _federation(plan, x, y, x[:0], y[:0], clients, NOBODY)


def server_federation(plan: Plan, folder: Path) -> Federation:
    """Clients without rows, and the server's own test set and public rows, normalised, where it has some."""
    path = folder / DATA
    arrays = _arrays(path, ("test_x", "test_y", "public_x")) if path.exists() else _no_rows(plan)
    x = arrays["public_x"]
    clients = [ClientRows(NOBODY, NOBODY, NOBODY)] * plan.experiment.clients
    labels = np.zeros(len(x), np.int64)
    return _federation(plan, x, labels, arrays["test_x"], arrays["test_y"], clients, np.arange(len(x)))


def _federation(
    plan: Plan,
    x: np.ndarray,
    y: np.ndarray,
    server_x: np.ndarray,
    server_y: np.ndarray,
    clients: list[ClientRows],
    public: np.ndarray,
) -> Federation:
    newcomers = tuple(range(plan.population, len(clients)))
    return Federation(x, y, server_x, server_y, plan.inputs.n_classes, Clients(clients), public, newcomers)


def _no_rows(plan: Plan) -> dict[str, np.ndarray]:
    rows = np.empty((0, *_row_shape(plan)), np.int64 if plan.tokens else np.float32)
    return {"test_x": rows, "test_y": np.empty(0, np.int64), "public_x": rows}


def _row_shape(plan: Plan) -> tuple[int, ...]:
    return plan.inputs.shape[2:] if plan.tokens else plan.inputs.shape


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} must hold the arrays {', '.join(names)}: {error}") from None


def _checked(plan: Plan, path: Path, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as the network takes them; those of another shape or with unknown classes are refused."""
    if x.shape != (len(y), *_row_shape(plan)):
        raise UserError(
            f"{path} holds rows {list(x.shape)} for {len(y)} labels; this experiment reads rows of {_row_shape(plan)}"
        )
    if len(y) and not 0 <= y.min() <= y.max() < plan.inputs.n_classes:
        raise UserError(f"{path} holds labels outside 0..{plan.inputs.n_classes - 1}")
    y = y.astype(np.int64)
    if plan.tokens:
        return x.astype(np.int64), y
    if x.dtype not in (np.uint8, np.float32):
        raise UserError(f"{path} holds images of {x.dtype}; give uint8 or float32")
    return normalised(x, plan.inputs.mean, plan.inputs.std), y
