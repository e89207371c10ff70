"""How fast the engines are, beside a plain loop of torch that the bench carries itself."""

from idiolect.bench.engine_timing import BenchGrid, bench
from idiolect.bench.report import Report, notes_of, rows_of_table
from idiolect.bench.round_costs import CostGrid, RoundCost, round_costs
from idiolect.bench.workloads import SIZES, WORKLOADS, BenchCell, workloads

__all__ = [
    "SIZES",
    "WORKLOADS",
    "BenchCell",
    "BenchGrid",
    "CostGrid",
    "Report",
    "RoundCost",
    "bench",
    "notes_of",
    "round_costs",
    "rows_of_table",
    "workloads",
]
