"""Reads the data of one site, or of the server, as a federation in which all other clients are empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect.data import CLASS_TASKS
from idiolect.deploy.configuration import DeploymentPlan, SiteConfig
from idiolect.errors import UserError
from idiolect.federation import ClientRows, Clients, Federation, split_rows

__all__ = ["DATA", "server_federation", "site_federation", "write_rows"]

DATA = "data.npz"
NO_ROWS = np.empty(0, np.int64)


def write_rows(path: Path, **arrays: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def site_federation(plan: DeploymentPlan, config: SiteConfig) -> Federation:
    """Returns all clients of the experiment; only this site has rows: its own, split as in a simulation."""
    path = config.folder / config.data / DATA
    arrays = _arrays(path, ("x", "y"))
    x, y = _checked(plan, path, arrays["x"], arrays["y"])
    experiment = plan.experiment
    own = split_rows(
        np.arange(len(y)),
        config.number,
        valid=experiment.valid,
        test=experiment.test,
        seed=experiment.seed_of_data,
    )
    nothing = ClientRows(NO_ROWS, NO_ROWS, NO_ROWS)
    count = max(experiment.clients, config.client + 1)  # a site that was added later has the highest number
    clients = [own if client == config.client else nothing for client in range(count)]
    return _federation(plan, x, y, x[:0], y[:0], clients, NO_ROWS)


def server_federation(plan: DeploymentPlan, folder: Path) -> Federation:
    """Returns clients without rows, and the server's own normalised test set and public rows where it has any."""
    path = folder / DATA
    arrays = _arrays(path, ("test_x", "test_y", "public_x")) if path.exists() else _no_rows(plan)
    x = arrays["public_x"]
    clients = [ClientRows(NO_ROWS, NO_ROWS, NO_ROWS)] * plan.experiment.clients
    labels = _blank_targets(plan, len(x))
    return _federation(plan, x, labels, arrays["test_x"], arrays["test_y"], clients, np.arange(len(x)))


def _federation(
    plan: DeploymentPlan,
    x: np.ndarray,
    y: np.ndarray,
    server_x: np.ndarray,
    server_y: np.ndarray,
    clients: list[ClientRows],
    public: np.ndarray,
) -> Federation:
    newcomers = tuple(range(plan.population, len(clients)))
    inputs = plan.inputs
    return Federation(
        x,
        y,
        server_x,
        server_y,
        inputs.n_classes,
        Clients(clients),
        public,
        newcomers,
        inputs.task,
        inputs.preprocessing,
    )


def _no_rows(plan: DeploymentPlan) -> dict[str, np.ndarray]:
    rows = np.empty((0, *_row_shape(plan)), np.int64 if plan.tokens else np.float32)
    return {"test_x": rows, "test_y": _blank_targets(plan, 0), "public_x": rows}


def _blank_targets(plan: DeploymentPlan, rows: int) -> np.ndarray:
    """Returns targets of rows that have none."""
    if plan.inputs.task in CLASS_TASKS:
        return np.zeros(rows, np.int64)
    return np.zeros((rows, plan.inputs.n_classes), np.float32)


def _row_shape(plan: DeploymentPlan) -> tuple[int, ...]:
    return plan.inputs.shape[2:] if plan.tokens else plan.inputs.shape


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} must hold the arrays {', '.join(names)}: {error}") from None


def _checked(plan: DeploymentPlan, path: Path, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows as the network takes them; refuses rows of another shape and labels of unknown classes."""
    if x.shape != (len(y), *_row_shape(plan)):
        raise UserError(
            f"{path} holds rows {list(x.shape)} for {len(y)} labels; this experiment reads rows of {_row_shape(plan)}"
        )
    inputs = plan.inputs
    if inputs.task in CLASS_TASKS:
        if len(y) and not 0 <= y.min() <= y.max() < inputs.n_classes:
            raise UserError(f"{path} holds labels outside 0..{inputs.n_classes - 1}")
        y = y.astype(np.int64)
    elif y.shape != (len(y), inputs.n_classes) or not np.isfinite(y).all():
        raise UserError(
            f"{path} holds targets {list(y.shape)}; {inputs.task} here has {inputs.n_classes} numbers a row"
        )
    if plan.tokens:
        return x.astype(np.int64), inputs.preprocessing.targets(y)
    if x.dtype not in (np.uint8, np.float32):
        raise UserError(f"{path} holds rows of {x.dtype}; give uint8 or float32")
    return inputs.preprocessing.rows(x), inputs.preprocessing.targets(y)
