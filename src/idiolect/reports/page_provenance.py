"""Where the page's numbers come from: partitions, settings, manifests."""

from __future__ import annotations

import json
from typing import Any

from idiolect.reports.grouping import flat
from idiolect.statistics import Groups

__all__ = ["partitions_part", "runs_part", "settings_part"]

MOST_CLIENTS = 200  # drawn of one partition


def partitions_part(groups: Groups) -> list[dict[str, Any]]:
    """Every different partition once: `title`, `clients` in all, `counts` of the first clients by class."""
    found: dict[str, dict[str, Any]] = {}
    for run in (run for runs in groups.values() for run in runs):
        counts = run.manifest.get("class_counts")
        if counts:
            names = [str(run.manifest[key]) for key in ("dataset", "partition") if key in run.manifest]
            line = {"title": ", ".join([*names, f"seed {run.manifest['seed']}"]), "clients": len(counts)}
            found.setdefault(json.dumps(counts), {**line, "counts": counts[:MOST_CLIENTS]})
    return list(found.values())


def settings_part(groups: Groups) -> dict[str, Any]:
    """`common` to all methods, and `differing`: by setting, one value for each method."""
    specs = [flat(runs[0].manifest.get("spec", {})) for runs in groups.values()]
    keys = list(dict.fromkeys(key for spec in specs for key in spec if key not in {"seed", "seeds"}))
    values = {key: [_text(spec[key]) if key in spec else "" for spec in specs] for key in keys}
    return {
        "common": {key: found[0] for key, found in values.items() if len(set(found)) == 1},
        "differing": {key: found for key, found in values.items() if len(set(found)) > 1},
    }


def runs_part(groups: Groups) -> list[dict[str, Any]]:
    """Every run: `method` by its place, `seed`, `name` and its `manifest` without the class counts."""
    return [
        {
            "method": place,
            "seed": int(run.manifest["seed"]),
            "name": str(run.manifest["name"]),
            "manifest": {key: value for key, value in run.manifest.items() if key != "class_counts"},
        }
        for place, runs in enumerate(groups.values())
        for run in runs
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
