"""Connects to a Ray cluster, or starts one on this machine that nobody else can use.

Ray runs code for whoever reaches its ports, and by default it listens on all interfaces and asks nobody for a token.
A cluster that is started here listens on loopback alone, answers only calls that carry a token made for it, and keeps
its sockets and logs in a folder of its owner.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config

from idiolect.errors import UserError

__all__ = ["ADDRESS", "connect"]

ADDRESS = "RAY_ADDRESS"  # Ray's own variable for the address of a cluster
ANSWER_WITHIN = 5  # seconds in which a cluster must accept a connection
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # Ray's own 15 has workers of a cluster that is started here starve beside other work
}
TOKEN_SETTINGS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
LOOPBACK = ("127.0.0.1:", "[::1]:")


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
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get(ADDRESS) or "local"
    _refuse_unreachable(address)
    if ray.is_initialized():
        return lambda: None
    if address != "local":
        _init(address)
        return _disconnect
    room = {
        "num_cpus": max(len(os.sched_getaffinity(0)), workers or 1),
        "object_store_memory": object_store_memory,
    }
    return _start_private_cluster(room)


def _start_private_cluster(room: dict[str, Any]) -> Callable[[], None]:
    """Starts a cluster on loopback, with a token and a folder of its own; returns a function that ends it.

    Raises:
        UserError: it does not start, or listens on another interface all the same.
    """
    # For its owner alone: Ray lets everybody write to the folder that it makes in it.
    folder = Path(tempfile.mkdtemp(prefix="idiolect-ray-", dir=os.environ.get("RAY_TMPDIR")))
    before = {name: os.environ.get(name) for name in TOKEN_SETTINGS}

    def end() -> None:
        _disconnect()
        _use_token_settings(before)
        shutil.rmtree(folder, ignore_errors=True)

    try:
        _use_token_settings({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        with _on_loopback():
            _init("local", include_dashboard=False, _temp_dir=str(folder / "ray"), **room)
        reached_at = ray.get_runtime_context().gcs_address
        if not reached_at.startswith(LOOPBACK):
            raise UserError(
                f"Ray {ray.__version__} started a cluster at {reached_at}, which other machines reach; install the "
                "version of the extra: pip install 'idiolect[ray]'"
            )
    except BaseException:
        end()
        raise
    return end


def _use_token_settings(settings: dict[str, str | None]) -> None:
    """Sets Ray's variables for tokens, and has this process, which has read them already, read them again."""
    for name in TOKEN_SETTINGS:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in settings.items() if value is not None})
    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Has Ray take loopback as this node's address, as it does by itself on systems without clusters.

    Ray has no option for it: it turns ``_node_ip_address="127.0.0.1"`` into the address of the network.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _init(address: str, **options: Any) -> None:
    with _without_resource_warnings():
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.AuthenticationError) as error:
            raise _unusable(address, error) from error


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
