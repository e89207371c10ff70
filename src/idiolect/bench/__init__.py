"""How fast the engines are, beside a plain loop of torch that the bench carries itself."""

from idiolect.bench.cell import SIZES, WORKLOADS, Cell, workloads
from idiolect.bench.grid import Grid, bench
from idiolect.bench.report import Report
from idiolect.bench.table import notes_of, rows_of_table

__all__ = [
    "SIZES",
    "WORKLOADS",
    "Cell",
    "Grid",
    "Report",
    "bench",
    "notes_of",
    "rows_of_table",
    "workloads",
]
