"""Chooses an engine by name, with the device and the workers that it runs on."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import Engine
from idiolect.engines.device_data import Workload
from idiolect.engines.loop import LoopEngine
from idiolect.engines.pool import PoolEngine
from idiolect.engines.pool.fork_server import fork_server
from idiolect.engines.pool.shared_memory import shared_empty
from idiolect.engines.precision import Precision
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice, unknown_name
from idiolect.federation import Federation

__all__ = ["ENGINES", "EngineChoice", "choose_engine", "place", "start_early"]


Say = Callable[[str], None]
WITH_WORKERS = ("pool", "ray")
MOST_ON_A_CORE, MOST = 32, 4096  # workers of ``pool`` for each core of this machine, and of a cluster


class EngineChoice(NamedTuple):
    """An engine by name, and what it runs on.

    Args:
        reason: why this engine runs.
        workers: processes of ``pool`` or ``ray``; None for as many as there are cores.
        ray_address: the address of a Ray cluster that runs already.
        gpus_per_worker: GPUs of each worker of ``ray``.
    """

    engine: str
    device: str
    reason: str
    workers: int | None = None
    ray_address: str | None = None
    gpus_per_worker: float = 0.0

    def __str__(self) -> str:
        return f"engine {self.engine} on {self.device}: {self.reason}"

    @property
    def trains_on_gpu(self) -> bool:
        """Whether clients train on a GPU, of this process or of Ray's workers."""
        return self.device == "cuda" or self.gpus_per_worker > 0

    @property
    def gpu_name(self) -> str | None:
        """The name of this process's GPU, if the engine computes on it."""
        return torch.cuda.get_device_name() if self.device == "cuda" else None

    @property
    def allocate(self) -> Callable[..., NDArray[Any]]:
        """What makes the arrays of a federation: as ``numpy.empty``, in shared memory where workers map them."""
        return shared_empty if self.engine == "pool" else np.empty

    def workload(
        self, federation: Federation, *, seed: int, drop_single: bool, weighting: str, precision: Precision
    ) -> Workload:
        """Places the data of a federation on the engine's device."""
        return Workload.place(
            federation,
            seed=seed,
            drop_single=drop_single,
            weighting=weighting,
            precision=precision,
            device=self.device,
        )

    def for_network(self, cannot_batch: str) -> EngineChoice:
        """Returns the choice for a network: where it cannot be batched, clients run one by one.

        ``loop`` then takes the place of ``cohort``; the workers of other engines run their clients as it does.

        Args:
            cannot_batch: why the network cannot be batched; empty if it can.
        """
        if not cannot_batch or self.engine == "loop":
            return self
        engine = "loop" if self.engine == "cohort" else self.engine
        return self._replace(
            engine=engine, reason=f"client by client, because the model cannot be batched: {cannot_batch}"
        )

    def for_jobs(self, jobs: int) -> EngineChoice:
        """Returns the choice for each of ``jobs`` runs side by side: they share the workers of ``pool`` and ``ray``.

        Without a number of workers the runs share those of the Ray cluster, which ``on_cluster`` asks.
        """
        if jobs == 1 or self.engine not in WITH_WORKERS:
            return self
        if self.engine == "ray" and self.workers is None:
            return self._replace(reason=f"{jobs} runs side by side share the cluster")
        if self.engine == "ray" and self.workers is not None and self.workers < jobs:
            raise UserError(
                f"{jobs} runs side by side need a worker each, and --workers is {self.workers}; use --jobs "
                f"{self.workers}"
            )
        workers = max(1, (self.workers or len(os.sched_getaffinity(0))) // jobs)
        each = "one worker process" if workers == 1 else f"{workers} worker processes"
        return self._replace(workers=workers, reason=f"{jobs} runs side by side with {each} each")

    def on_cluster(self, jobs: int) -> EngineChoice:
        """Returns the choice with each run's share of the Ray cluster's workers; a choice with another engine as it is.

        Raises:
            UserError: the cluster cannot be reached, or has no room for the workers of all runs side by side.
        """
        if self.engine != "ray":
            return self
        ray_engine = import_module("idiolect.engines.ray")
        room: int = ray_engine.room_of_cluster(self.ray_address, self.gpus_per_worker)
        each = self.workers or 1
        if room == 0:
            raise UserError(
                "the Ray cluster has no room for a worker; see its CPUs and GPUs with ray status, and --gpus-per-worker"
            )
        if room < jobs * each:
            raise UserError(
                f"{jobs} runs side by side need {jobs * each} workers, and the Ray cluster has room for {room}; use "
                f"--jobs {max(1, room // each)}"
            )
        return self if self.workers else self._replace(workers=room).for_jobs(jobs)


def _ray(choice: EngineChoice, work: Workload, say: Say) -> Engine:
    """Makes the engine ``ray``, whose package is imported here because it needs Ray."""
    _require_ray()
    options = {"address": choice.ray_address, "gpus_per_worker": choice.gpus_per_worker}
    engine: Engine = import_module("idiolect.engines.ray").RayEngine(
        work, workers=choice.workers, say=say, **options
    )
    return engine


ENGINES: dict[str, Callable[[EngineChoice, Workload, Say], Engine]] = {
    "loop": lambda choice, work, say: LoopEngine(work),
    "cohort": lambda choice, work, say: CohortEngine(work),
    "pool": lambda choice, work, say: PoolEngine(work, workers=choice.workers, say=say),
    "ray": _ray,
}


def place(
    engine: str,
    device: str,
    workers: int | None = None,
    ray_address: str | None = None,
    gpus_per_worker: float = 0.0,
) -> EngineChoice:
    """Chooses engine and device: ``auto`` takes ``cohort`` on a GPU and ``pool`` on a CPU.

    Raises:
        UserError: something is asked for that this machine does not have, or that the engine does not know.
    """
    chosen = _placed(engine, device)
    if workers is not None:
        here = chosen.engine == "pool"
        refuse_outside("workers", workers, 1, len(os.sched_getaffinity(0)) * MOST_ON_A_CORE if here else MOST)
        if chosen.engine not in WITH_WORKERS:
            raise UserError(f"workers are for the engines pool and ray; the engine here is {chosen.engine}")
    refuse_outside("gpus_per_worker", gpus_per_worker, 0)
    if chosen.engine != "ray" and (ray_address is not None or gpus_per_worker):
        raise UserError(
            f"--ray-address and --gpus-per-worker are for --engine ray; the engine here is {chosen.engine}"
        )
    return chosen._replace(workers=workers, ray_address=ray_address, gpus_per_worker=gpus_per_worker)


def _placed(engine: str, device: str) -> EngineChoice:
    """Resolves engine and device."""
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
        return EngineChoice(engine, device, "as asked")
    if device == "cuda":
        return EngineChoice("cohort", device, "a GPU runs a whole cohort at once")
    cores = len(os.sched_getaffinity(0))
    return EngineChoice(
        "pool", device, "one worker process" + (f" for each of {cores} cores" if cores > 1 else "")
    )


def start_early(choice: EngineChoice) -> None:
    """Starts the fork server of ``pool``, which takes a second, so that it starts while data are prepared."""
    if choice.engine == "pool":
        fork_server()


def choose_engine(choice: EngineChoice, work: Workload, say: Say = lambda sentence: None) -> Engine:
    """Makes the engine of a choice.

    Args:
        say: is told what the user should know, such as a worker that was replaced.
    """
    return ENGINES[choice.engine](choice, work, say)


def _on_ray(device: str) -> EngineChoice:
    """Returns the choice of ``ray``: the driver computes on the CPU, whatever its workers do."""
    _require_ray()
    if device == "cuda":
        raise UserError("the engine ray takes GPUs with --gpus-per-worker; leave --device out")
    return EngineChoice("ray", "cpu", "as asked")


def _require_ray() -> None:
    if find_spec("ray") is None:
        raise UserError("the engine ray needs Ray; install it with pip install 'idiolect[ray]'")
