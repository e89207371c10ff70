"""Chooses where private state is kept: on the device, on the host or on disk, by its expected size and what is free."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from idiolect.core.trees import Tree
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.federation.store.disk import DiskStorage
from idiolect.federation.store.memory import MemoryStorage
from idiolect.federation.store.row_format import RowFormat
from idiolect.federation.store.row_generations import KEPT_ROWS, PRIVATE_ROWS, RowGenerations, space_taken
from idiolect.federation.store.store import RowStorage, Store

__all__ = ["STORES", "Demand", "Placement", "choose_store", "open_store", "readable", "stored_rows"]

STORES = ("auto", "device", "host", "disk")
SHARE = 0.25  # of free memory that private state may fill
CACHE_SHARE, MOST_CACHE = 0.1, 10**9  # of free memory, and bytes, that a disk store's cache may fill
WHAT = {PRIVATE_ROWS: "private state", KEPT_ROWS: "what the server keeps of clients"}
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Demand:
    """How much private state a run can produce.

    Args:
        row_bytes: size of one client's row, at its largest.
        holders: clients that can come to hold private state.
        superseded: bytes that checkpoints need beside them: the rows of the other generation, and older rows.
    """

    row_bytes: int
    population: int
    holders: int
    superseded: int

    @property
    def in_memory(self) -> int:
        return self.row_bytes * self.holders

    @property
    def on_disk(self) -> int:
        return self.in_memory + self.superseded


@dataclass(frozen=True)
class Placement:
    """Where a run keeps its private state.

    Args:
        kind: ``device``, ``host`` or ``disk``.
        device: the device of the computation.
        cache_bytes: memory of a disk store's cache.
        what: is kept, in words.
    """

    kind: str
    device: str
    cache_bytes: int
    demand: Demand
    what: str = "private state"

    def facts(self) -> dict[str, int | str]:
        """Returns what a run's manifest records."""
        need = self.demand
        return {"store": self.kind, "bytes_per_client": need.row_bytes, "bytes_at_most": need.in_memory}

    def sentence(self) -> str:
        """Returns the estimate as one line for the user."""
        need = self.demand
        who = f" of the {need.holders:,} that can take part" if need.holders < need.population else ""
        where = {
            "device": f"on {self.device}",
            "host": "in memory",
            "disk": f"on disk with {readable(self.cache_bytes)} of it in memory",
        }[self.kind]
        return (
            f"{self.what}: {readable(need.row_bytes)} x {need.population:,} clients, "
            f"at most {readable(need.in_memory)}{who}, {where}"
        )


def choose_store(
    demand: Demand,
    folder: Path,
    *,
    kind: str = "auto",
    device: str = "cpu",
    cache_mb: float | None = None,
    name: str = PRIVATE_ROWS,
) -> Placement:
    """Chooses the device's memory, else the host's, else the disk: the first with a large enough share free.

    Args:
        folder: where the run is written; its disk holds the rows of a disk store and of all checkpoints.
        kind: one of ``STORES``; anything but ``auto`` is taken as it is.
        cache_mb: megabytes of a disk store's cache.
        name: of the subfolder with the rows, ``private`` or ``kept``; what is kept is the server's.

    Raises:
        UserError: the disk is too small.
    """
    refuse_unknown_choice("store", kind, STORES)
    if cache_mb is not None:
        refuse_outside("store_cache", cache_mb, 0)
    free = free_disk(folder) + space_taken(folder, name)
    if demand.on_disk > free:
        _refuse_unwritable(folder)
        raise UserError(
            f"{WHAT[name]} may need {readable(demand.on_disk)} of disk ({demand.on_disk:,} bytes) but {folder} has "
            f"{readable(free)} free ({free:,} bytes); choose another folder with --out or fewer clients"
        )
    memory = free_memory()
    if kind == "auto":
        on_device = device != "cpu" and demand.in_memory <= SHARE * torch.cuda.mem_get_info()[0]
        in_memory = "host" if demand.in_memory <= SHARE * memory else "disk"
        kind = "device" if on_device else in_memory
    if kind == "device" and device == "cpu":
        kind = "host"
    cache = min(CACHE_SHARE * memory, MOST_CACHE) if cache_mb is None else cache_mb * 1e6
    return Placement(kind, device, int(cache), demand, WHAT[name])


def open_store(
    placement: Placement,
    create: Callable[[int], Tree],
    examples: list[Tree],
    folder: Path,
    name: str = PRIVATE_ROWS,
) -> Store:
    """Returns the store that a placement describes.

    Args:
        create: client -> its first private state.
        examples: trees of every structure that private state can have.
        folder: of the run.
        name: of its subfolder that holds the rows.
    """
    form, population = RowFormat(examples), placement.demand.population
    file = RowGenerations(folder, form, population, name=name)
    storage: RowStorage
    if placement.kind == "disk":
        storage = DiskStorage(form, population, file, placement.cache_bytes)
    else:
        home = placement.device if placement.kind == "device" else "cpu"
        storage = MemoryStorage(form, population, home, file)
    return Store(create, storage, form, placement.device)


def stored_rows(
    folder: Path,
    create: Callable[[int], Tree],
    examples: list[Tree],
    population: int,
    saved: dict[str, torch.Tensor],
    name: str = PRIVATE_ROWS,
    device: torch.device | str = "cpu",
) -> Store:
    """Returns the rows of a finished run, which are read from its folder a client at a time and never written.

    Args:
        saved: what the run's last checkpoint remembers of them.
        name: of the subfolder that holds them.
        device: where the trees that are read live.
    """
    form = RowFormat(examples)
    file = RowGenerations(folder, form, population, writable=False, name=name)
    storage = DiskStorage(form, population, file, cache_bytes=0)
    store = Store(create, storage, form, device)
    store.restore(saved)
    return store


def free_memory() -> int:
    """Returns the bytes that this process may still allocate: the system's available memory, or a container's limit."""
    free = _available()
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no such limit
        return free
    return max(0, min(free, limit - used))


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(folder: Path) -> int:
    """Returns the bytes that can be written under a folder, which need not exist yet."""
    return shutil.disk_usage(_nearest_existing(folder)).free


def _refuse_unwritable(folder: Path) -> None:
    """Raises where nothing can be made under a folder for another reason than space; such places tell of no space."""
    there = _nearest_existing(folder)
    try:
        with TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        if error.errno in NO_SPACE:
            return
        verb = "write to" if there == Path(folder).absolute() else "make"
        raise UserError(
            f"cannot {verb} the folder {folder} ({error.strerror}); choose another place with --out"
        ) from error


def _nearest_existing(folder: Path) -> Path:
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def readable(n_bytes: float) -> str:
    """Returns a size as text with two digits or more, in powers of 1000.

    >>> readable(12), readable(1234), readable(93_720_000_000)
    ('12 B', '1.2 kB', '94 GB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 999.5 or unit == "TB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.1f} {unit}" if n_bytes < 9.95 and unit != "B" else f"{n_bytes:.0f} {unit}"
