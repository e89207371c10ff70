"""Measures what a round of each method costs beside a round of FedAvg, and writes docs/methods/costs.json.

    python scripts/measure_costs.py [METHOD ...]

Without names all methods are measured; with names the others keep what was measured before, if the machine and the
work of a round are the same.  Nothing else should run on the machine.  Afterwards run python scripts/write_cards.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch

from idiolect import methods
from idiolect.bench import CostGrid, round_costs
from idiolect.bench.machine_peaks import describe_machine

COSTS = Path(__file__).parents[1] / "docs" / "methods" / "costs.json"


def conditions(grid: CostGrid) -> dict[str, Any]:
    """Returns what must be the same for two measurements to stand in one table."""
    machine = describe_machine(grid.cell.device)
    where = f"{machine['cpu']}, {machine['cores']} cores, torch {torch.__version__}, {torch.get_num_threads()} threads"
    return {"machine": where, "work": grid.as_dict()}


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=COSTS.parent, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def main(names: list[str]) -> None:
    grid, known = CostGrid(), json.loads(COSTS.read_text(encoding="utf-8"))
    under = conditions(grid)
    kept = known["ratios"] if names and known.get("conditions") == under else {}
    command = " ".join(["python scripts/measure_costs.py", *names])
    load = os.getloadavg()[0]
    ratios = dict(kept)
    for found in round_costs(names or methods.names(), grid, lambda text: print(text, flush=True)):
        if found.ratio is None:
            print(f"{found.method}: {found.refused}")
            continue
        ratios[found.method] = {key: round(value, 3) for key, value in found.ratio._asdict().items()}
    cell = grid.cell
    told = [
        f"Measured {date.today()}, commit {commit()}, {under['machine']}, load {load:.1f} at the start, engine "
        f"`{grid.engine}`:",
        f"`{command}`; {cell.clients} of {cell.population} clients with {cell.samples} images each, {cell.model}, "
        f"{grid.repeats} rounds after two.",
    ]
    measured = [*(known["measured"] if kept else []), *told]
    record = {"conditions": under, "measured": measured, "ratios": dict(sorted(ratios.items()))}
    COSTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
