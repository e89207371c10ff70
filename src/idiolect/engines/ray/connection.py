"""A connection to Ray: to a cluster by address, or to one on this machine that lives as long as the run."""

from __future__ import annotations

import gc
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from idiolect.errors import UserError

__all__ = ["ADDRESS", "connect"]

ADDRESS = "RAY_ADDRESS"  # Ray's own variable for the cluster to use
ANSWER_WITHIN = 5  # seconds
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def connect(
    address: str | None, workers: int | None, object_store_memory: int | None = None
) -> Callable[[], None]:
    """Connects this process to Ray, unless it is connected already; the result undoes that.

    Args:
        address: of a cluster, ``auto`` for one that runs on this machine; else that in ``RAY_ADDRESS``, else a
            cluster of this machine's cores is started and ended with the connection.
        workers: that a cluster of one's own must have room for.
        object_store_memory: bytes of its object store; a third of the free memory unless given.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get(ADDRESS) or "local"
    _refuse_silence(address)
    if ray.is_initialized():
        return lambda: None
    cores = len(os.sched_getaffinity(0))
    room = {"num_cpus": max(cores, workers or 1), "object_store_memory": object_store_memory}
    own = {**room, "include_dashboard": False} if address == "local" else {}
    with _loose_ends():
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unusable(address, error) from error
    return _disconnect


def _refuse_silence(address: str) -> None:
    """Ray itself would knock for many minutes at a door behind which nobody is."""
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
    with _loose_ends():
        ray.shutdown()
        gc.collect()


@contextmanager
def _loose_ends() -> Iterator[None]:
    """Ray leaves it to Python to close files, and to forget processes that it has ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
