"""Reads the data of one site, or of the server, as a federation in which all other clients are empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect.data import CLASS_TASKS, from_arrays
from idiolect.data.own.columns import check_values, read_rows
from idiolect.data.own.file_formats import read_arrays
from idiolect.deploy.configuration import DeploymentPlan, SiteConfig
from idiolect.errors import UserError
from idiolect.federation import ClientRows, Clients, Federation, split_rows

__all__ = ["DATA", "server_federation", "site_federation", "write_rows"]

DATA = "data.npz"
NO_ROWS = np.empty(0, np.int64)


def write_rows(path: Path, **arrays: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    path.chmod(0o600)


def site_federation(plan: DeploymentPlan, config: SiteConfig) -> Federation:
    """Returns all clients of the experiment; only this site has rows: its own, split as in a simulation."""
    path = config.folder / config.data / DATA
    arrays = _arrays(path, ("x", "y"))
    preparation = plan.inputs.preprocessing
    fill = "zero" if preparation.fill else "none"
    x, y = _checked(plan, path, arrays["x"], arrays["y"], plan.inputs.dtype, fill)
    x, y = preparation.rows(x), preparation.targets(y)
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
    arrays = _server_arrays(plan, path) if path.exists() else _no_rows(plan)
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


def _server_arrays(plan: DeploymentPlan, path: Path) -> dict[str, np.ndarray]:
    """Returns the server's rows, which were prepared when the deployment was made; public rows have no targets."""
    found = _arrays(path, ("test_x", "test_y", "public_x"))
    dtype = _no_rows(plan)["test_x"].dtype.name
    x, y = _checked(plan, path, found["test_x"], found["test_y"], dtype, "none")
    public, _ = read_rows(found["public_x"], _vocabulary(plan), f"{path}, public_x")
    check_values(public, "none", (), lambda row: f"{path}, public_x, row {row}")
    _refuse_other_rows(plan, path, public, dtype)
    return {"test_x": x, "test_y": y, "public_x": public}


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
    """Returns the arrays of a file, which must have these names and no others."""
    arrays = read_arrays(path)
    if set(arrays) != set(names):
        raise UserError(
            f"{path} must hold the arrays {', '.join(names)} and no others; it has {', '.join(arrays) or 'none'}"
        )
    return {name: arrays[name] for name in names}


def _checked(
    plan: DeploymentPlan, path: Path, x: np.ndarray, y: np.ndarray, dtype: str, fill: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and targets as a dataset holds them, checked as data of a user's own are anywhere else.

    Args:
        dtype: the type of rows that this experiment reads here.
        fill: whether missing values are filled; ``none`` refuses them.
    """
    inputs = plan.inputs
    classes = [str(k) for k in range(inputs.n_classes)] if inputs.task in CLASS_TASKS else None
    own = from_arrays(
        x,
        y,
        task=inputs.task,
        class_names=None if inputs.task == "next_token" else classes,
        vocabulary=_vocabulary(plan),
        fill=fill,
        name=str(path),
    )
    if own.n_classes != inputs.n_classes and inputs.task != "next_token":
        raise UserError(f"{path} holds {own.n_classes} targets a row; this experiment has {inputs.n_classes}")
    if inputs.task == "next_token" and own.train_y.max() >= inputs.n_classes:
        raise UserError(f"{path} holds the token {own.train_y.max()}; the last one is {inputs.n_classes - 1}")
    _refuse_other_rows(plan, path, own.train_x, dtype)
    return own.train_x, own.train_y


def _refuse_other_rows(plan: DeploymentPlan, path: Path, x: np.ndarray, dtype: str) -> None:
    """Refuses rows of another shape or type than the experiment's."""
    if x.shape[1:] != _row_shape(plan) or x.dtype.name != dtype:
        raise UserError(
            f"{path} holds rows {list(x.shape[1:])} of {x.dtype}; this experiment reads rows of "
            f"{list(_row_shape(plan))} of {dtype}"
        )


def _vocabulary(plan: DeploymentPlan) -> int | None:
    """Returns a bound on tokens where rows hold them; the network, which knows how many it embeds, checks them too."""
    return int(np.iinfo(np.int64).max) if plan.tokens else None
