"""Where private state is kept: on the device, on the host or on disk, by how much there can be of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from idiolect.core.trees import Tree
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.federation.capacity import free_disk, free_memory, readable
from idiolect.federation.disk_shelf import DiskShelf
from idiolect.federation.memory_shelf import MemoryShelf
from idiolect.federation.row_file import FOLDER, RowFile
from idiolect.federation.row_format import RowFormat
from idiolect.federation.shelf import Shelf
from idiolect.federation.store import Store

__all__ = ["STORES", "Demand", "Placement", "choose_store", "open_store"]

STORES = ("auto", "device", "host", "disk")
SHARE = 0.25  # of free memory that private state may fill
CACHE_SHARE, MOST_CACHE = 0.1, 10**9


@dataclass(frozen=True)
class Demand:
    """How much private state a run can come to.

    Args:
        row_bytes: of one client, the largest it gets.
        holders: clients that can come to hold something of their own.
        superseded: bytes of older rows that checkpoints still hold on to.
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
    """Args:
    kind: ``device``, ``host`` or ``disk``.
    device: the device of the computation.
    cache_bytes: rows of a disk store that stay in memory.
    """

    kind: str
    device: str
    cache_bytes: int
    demand: Demand

    def facts(self) -> dict[str, int | str]:
        """For a run's manifest."""
        need = self.demand
        return {"store": self.kind, "bytes_per_client": need.row_bytes, "bytes_at_most": need.in_memory}

    def sentence(self) -> str:
        """The estimate, in one line."""
        need = self.demand
        who = f" of the {need.holders:,} that can take part" if need.holders < need.population else ""
        where = {
            "device": f"on {self.device}",
            "host": "in memory",
            "disk": f"on disk with {readable(self.cache_bytes)} of it in memory",
        }[self.kind]
        return (
            f"private state: {readable(need.row_bytes)} x {need.population:,} clients, "
            f"at most {readable(need.in_memory)}{who}, {where}"
        )


def choose_store(
    demand: Demand, folder: Path, *, kind: str = "auto", device: str = "cpu", cache_mb: float | None = None
) -> Placement:
    """Device memory for a run on a GPU, else the host's, else disk; each if a share of what is free will do.

    Args:
        folder: where the run is written; its disk takes the rows of a disk store, and of all checkpoints.
        kind: one of ``STORES``; what is asked for is taken.
        cache_mb: megabytes of a disk store's rows that stay in memory.

    Raises:
        UserError: the disk is too small.
    """
    refuse_unknown_choice("store", kind, STORES)
    if cache_mb is not None:
        refuse_outside("store_cache", cache_mb, 0)
    free = free_disk(folder) + _there_already(folder)
    if demand.on_disk > free:
        raise UserError(
            f"private state may need {readable(demand.on_disk)} of disk ({demand.on_disk:,} bytes) but {folder} has "
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
    return Placement(kind, device, int(cache), demand)


def open_store(
    placement: Placement, create: Callable[[int], Tree], examples: list[Tree], folder: Path
) -> Store:
    """Args:
    create: client -> its first private state.
    examples: trees of every shape that private state can have.
    folder: of the run.
    """
    form, population = RowFormat(examples), placement.demand.population
    file = RowFile(folder, form, population)
    shelf: Shelf
    if placement.kind == "disk":
        shelf = DiskShelf(form, population, file, placement.cache_bytes)
    else:
        shelf = MemoryShelf(form, population, placement.device if placement.kind == "device" else "cpu", file)
    return Store(create, shelf, form, placement.device)


def _there_already(folder: Path) -> int:
    """Bytes that an interrupted run has taken on disk."""
    rows = Path(folder) / FOLDER / "rows"
    return rows.stat().st_blocks * 512 if rows.exists() else 0
