"""The comparison that ``idiolect run`` makes when it is asked for nothing else."""

from __future__ import annotations

from typing import Any

__all__ = ["DEMO_METHODS", "QUICK"]

DEMO_METHODS = (
    "local",
    "fedavg",
    "fedavg_lu",
    "fedper",
    "fedrs",
    "fedphp",
    "map",
    "persfl(lambdas=(0.0, 0.5), temperatures=(1.0, 5.0), epochs=3)",
    "superfed_mm",
)

QUICK: dict[str, Any] = {
    "rounds": 3,
    "clients": 10,
    "participation_rate": 0.5,
    "valid": 0.1,
    "test": 0.7,
    "evaluate_every": 3,
}
