"""Clients as rows of one pool: splits, batch plans, selection of cohorts, the store of private state."""

from idiolect.federation.batches import (
    BatchPlan,
    batches_per_epoch,
    plan_batches,
    plan_poisson_batches,
    poisson_width,
)
from idiolect.federation.client_set import ClientSet
from idiolect.federation.clients import Clients
from idiolect.federation.disturbances import (
    DISTURBANCES,
    Disturbance,
    DisturbedData,
    Troubles,
    canonical_under,
    describe_disturbances,
)
from idiolect.federation.federation import Federation, LaterRows, SplitRules, federate
from idiolect.federation.kept_uploads import KeptUploads
from idiolect.federation.preprocessing import Preprocessing
from idiolect.federation.selection import SELECTIONS, cohort_size, newcomers_last, select
from idiolect.federation.splits import ClientRows, split_client, split_rows
from idiolect.federation.store import (
    KEPT_ROWS,
    PRIVATE_ROWS,
    STORES,
    ByClient,
    Demand,
    Placement,
    RowFormat,
    Store,
    choose_store,
    drop_older_generation,
    open_store,
    readable,
    stored_rows,
)
from idiolect.federation.user_data import to_dataset

__all__ = [
    "DISTURBANCES",
    "KEPT_ROWS",
    "PRIVATE_ROWS",
    "SELECTIONS",
    "STORES",
    "BatchPlan",
    "ByClient",
    "ClientRows",
    "ClientSet",
    "Clients",
    "Demand",
    "Disturbance",
    "DisturbedData",
    "Federation",
    "KeptUploads",
    "LaterRows",
    "Placement",
    "Preprocessing",
    "RowFormat",
    "SplitRules",
    "Store",
    "Troubles",
    "batches_per_epoch",
    "canonical_under",
    "choose_store",
    "cohort_size",
    "describe_disturbances",
    "drop_older_generation",
    "federate",
    "newcomers_last",
    "open_store",
    "plan_batches",
    "plan_poisson_batches",
    "poisson_width",
    "readable",
    "select",
    "split_client",
    "split_rows",
    "stored_rows",
    "to_dataset",
]
