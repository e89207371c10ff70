"""The store of clients' private state: in memory or on disk, with a cache and prefetch."""

from idiolect.federation.store.placement import (
    STORES,
    Demand,
    Placement,
    choose_store,
    open_store,
    readable,
    stored_rows,
)
from idiolect.federation.store.row_format import RowFormat
from idiolect.federation.store.row_generations import KEPT_ROWS, PRIVATE_ROWS, drop_older_generation
from idiolect.federation.store.store import ByClient, Store

__all__ = [
    "KEPT_ROWS",
    "PRIVATE_ROWS",
    "STORES",
    "ByClient",
    "Demand",
    "Placement",
    "RowFormat",
    "Store",
    "choose_store",
    "drop_older_generation",
    "open_store",
    "readable",
    "stored_rows",
]
