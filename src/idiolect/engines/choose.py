"""Engines by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from idiolect.core import PrivateState, Program, ServerState
from idiolect.engines.cohort import Cohort
from idiolect.engines.evaluation import Logits
from idiolect.engines.fork_server import fork_server
from idiolect.engines.group import Outcome
from idiolect.engines.loop import Loop
from idiolect.engines.pool import Pool
from idiolect.engines.workload import Workload
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice, unknown_name
from idiolect.federation import Store

__all__ = ["ENGINES", "Engine", "Resident", "Where", "choose_engine", "place", "start_early"]


class Engine(Protocol):
    """Ways to execute the same round; all agree on the numbers."""

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], observe: bool
    ) -> Sequence[Outcome]: ...

    def settle(
        self, program: Program, phase: str, server: ServerState, privates: Mapping[int, PrivateState]
    ) -> Sequence[PrivateState]: ...

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], split: str
    ) -> Sequence[Logits]: ...

    def close(self) -> None: ...


@runtime_checkable
class Resident(Protocol):
    """An engine whose workers keep private state between rounds."""

    def residence(self, home: Store) -> Store: ...


def _ray(work: Workload, **options: Any) -> Engine:
    """The engine on a Ray cluster, whose package needs Ray."""
    _require_ray()
    return import_module("idiolect.engines.cluster").Ray(work, **options)  # type: ignore[no-any-return]


ENGINES: dict[str, Callable[..., Engine]] = {"loop": Loop, "cohort": Cohort, "pool": Pool, "ray": _ray}
WITH_WORKERS = ("pool", "ray")


class Where(NamedTuple):
    """Args:
    workers: processes of ``pool`` or ``ray``; None for as many as there are cores.
    ray_address: of a cluster that runs already.
    gpus_per_worker: of ``ray``.
    """

    engine: str
    device: str
    reason: str
    workers: int | None = None
    ray_address: str | None = None
    gpus_per_worker: float = 0.0


def place(
    engine: str,
    device: str,
    workers: int | None = None,
    ray_address: str | None = None,
    gpus_per_worker: float = 0.0,
) -> Where:
    """Resolves ``auto``: a GPU runs the cohort as one program, cores run a pool.

    Raises:
        UserError: something is asked for that is not there, or that the engine does not know.
    """
    chosen = _placed(engine, device)
    if workers is not None:
        refuse_outside("workers", workers, 1)
        if chosen.engine not in WITH_WORKERS:
            raise UserError(f"workers are for the engines pool and ray; the engine here is {chosen.engine}")
    refuse_outside("gpus_per_worker", gpus_per_worker, 0)
    if chosen.engine != "ray" and (ray_address is not None or gpus_per_worker):
        raise UserError(
            f"--ray-address and --gpus-per-worker are for --engine ray; the engine here is {chosen.engine}"
        )
    return chosen._replace(workers=workers, ray_address=ray_address, gpus_per_worker=gpus_per_worker)


def _placed(engine: str, device: str) -> Where:
    if engine not in ("auto", *ENGINES):
        raise unknown_name("engine", engine, ["auto", *ENGINES])
    refuse_unknown_choice("device", device, ["auto", "cpu", "cuda"])
    if engine == "ray":
        return _on_ray(device)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for but PyTorch sees no CUDA GPU here; use --device cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and engine in ("auto", "cohort") else "cpu"
    if engine == "pool" and device == "cuda":
        raise UserError("the engine pool computes on cores; use --engine cohort for the GPU, or --device cpu")
    if engine != "auto":
        return Where(engine, device, "as asked")
    if device == "cuda":
        return Where("cohort", device, "a GPU runs a whole cohort at once")
    cores = len(os.sched_getaffinity(0))
    return Where("pool", device, "one worker process" + (f" for each of {cores} cores" if cores > 1 else ""))


def start_early(where: Where) -> None:
    """Starts what takes a second to start and needs nothing of the run: worth it before data are prepared."""
    if where.engine == "pool":
        fork_server()


def choose_engine(where: Where, work: Workload, say: Callable[[str], None] = lambda sentence: None) -> Engine:
    """Args:
    say: hears what the user should know, such as a worker that was replaced.
    """
    if where.engine == "pool":
        return Pool(work, workers=where.workers, say=say)
    if where.engine == "ray":
        options = {"address": where.ray_address, "gpus_per_worker": where.gpus_per_worker}
        return _ray(work, workers=where.workers, say=say, **options)
    return ENGINES[where.engine](work)


def _on_ray(device: str) -> Where:
    """The driver itself computes on the host."""
    _require_ray()
    if device == "cuda":
        raise UserError("the engine ray takes GPUs with --gpus-per-worker; leave --device out")
    return Where("ray", "cpu", "as asked")


def _require_ray() -> None:
    if find_spec("ray") is None:
        raise UserError("the engine ray needs Ray; install it with pip install 'idiolect[ray]'")
