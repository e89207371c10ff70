"""Clients as rows: splits, batch plans, cohort sampling, the store of private state."""

from idiolect.federation.batches import BatchPlan, batches_per_epoch, plan_batches
from idiolect.federation.federation import Federation, federate
from idiolect.federation.selection import cohort_size, newcomers_last, select
from idiolect.federation.splits import ClientRows, split_rows
from idiolect.federation.store import Store

__all__ = [
    "BatchPlan",
    "ClientRows",
    "Federation",
    "Store",
    "batches_per_epoch",
    "cohort_size",
    "federate",
    "newcomers_last",
    "plan_batches",
    "select",
    "split_rows",
]
