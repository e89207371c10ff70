"""Connects to a Ray cluster by address, or starts one on this machine that lives as long as the run."""

from __future__ import annotations

import gc
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from idiolect.errors import UserError

__all__ = ["ADDRESS", "connect"]

ADDRESS = "RAY_ADDRESS"  # Ray's own variable for the address of a cluster
ANSWER_WITHIN = 5  # seconds in which a cluster must accept a connection
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def connect(
    address: str | None, workers: int | None, object_store_memory: int | None = None
) -> Callable[[], None]:
    """Connects this process to Ray unless it is connected already; returns a function that disconnects it.

    Args:
        address: of a cluster, or ``auto`` for one that runs on this machine.  None takes ``RAY_ADDRESS``; without
            it, a cluster of this machine's cores is started, and ended with the connection.
        workers: that a cluster started here must have room for.
        object_store_memory: bytes of the object store of a cluster started here; Ray decides by default.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get(ADDRESS) or "local"
    _refuse_unreachable(address)
    if ray.is_initialized():
        return lambda: None
    cores = len(os.sched_getaffinity(0))
    room: dict[str, Any] = {
        "num_cpus": max(cores, workers or 1),
        "object_store_memory": object_store_memory,
        "include_dashboard": False,
    }
    own = room if address == "local" else {}
    with _without_resource_warnings():
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unusable(address, error) from error
    return _disconnect


def _refuse_unreachable(address: str) -> None:
    """Refuses an address that accepts no connection; Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.removeprefix("ray://"), int(port)), ANSWER_WITHIN).close()
        except OSError as error:
            raise _unusable(address, error) from error


def _unusable(address: str, error: Exception) -> UserError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(f"no Ray cluster can be used at {address} ({reason}); start one with ray start --head")


def _disconnect() -> None:
    with _without_resource_warnings():
        ray.shutdown()
        gc.collect()


@contextmanager
def _without_resource_warnings() -> Iterator[None]:
    """Silences warnings of files and ended processes that Ray leaves to Python to clean up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
