"""From TOML to scenarios; what is not as it should be is refused on loading, by name.

A scenario starts from what is ``common`` in its file, then from the one it is ``like``; its own words come last, and
what it states as the paper's is not chosen here any more, nor the other way round.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from idiolect.experiments.sweeping.parameter_grids import with_none
from idiolect.reproduction.scenarios.scenario import FIELDS, ORIGINS, Scenario

__all__ = ["read_scenarios"]

Block = Mapping[str, Any]

OWN = {"name", "like", "line", "expected_clients", "differs", "warning", "cannot"}
TABLES = (*ORIGINS, "because", "options", "defaults", "official_options", "settings")
DEEP = ("options", "defaults", "official_options", "settings")


def read_scenarios(text: str) -> list[Scenario]:
    document = tomllib.loads(text)
    merged: dict[str, dict[str, Any]] = {}
    for block in document["scenario"]:
        strange = set(block) - OWN - set(TABLES)
        if strange:
            raise ValueError(f"scenario {block.get('name')}: unknown {', '.join(sorted(strange))}")
        if block["name"] in merged:
            raise ValueError(f"scenario {block['name']} stands twice")
        below = merged[block["like"]] if "like" in block else document["common"]
        merged[block["name"]] = _over(below, block)
    return [_scenario(document["paper"], block) for block in merged.values()]


def _over(below: Block, above: Block) -> dict[str, Any]:
    found = {key: value for key, value in {**below, **above}.items() if key != "like"}
    for table in TABLES:
        low, high = below.get(table, {}), above.get(table, {})
        if table in DEEP:
            found[table] = {name: {**low.get(name, {}), **high.get(name, {})} for name in {**low, **high}}
        else:
            found[table] = {**low, **high}
    for own, other in (("paper", "inferred"), ("inferred", "paper")):
        stated = set(above.get(own, {})) - set(above.get(other, {}))
        moved = (stated & set(below.get(other, {}))) - set(above.get("because", {}))
        found[other] = {key: value for key, value in found[other].items() if key not in stated}
        found["because"] = {key: why for key, why in found["because"].items() if key not in moved}
    return found


def _scenario(paper: str, block: Block) -> Scenario:
    layers = {origin: block[origin] for origin in ORIGINS}
    of_one = {key for settings in block["settings"].values() for key in settings}
    for key in of_one.union(*layers.values()):
        if key not in FIELDS:
            raise ValueError(f"scenario {block['name']}: experiments have no setting {key}")
    clients = {**layers["paper"], **layers["inferred"]}["clients"]
    return Scenario(
        name=block["name"],
        paper=paper,
        line=block["line"],
        expected_clients=block.get("expected_clients", clients),
        differs=tuple(block.get("differs", ())),
        warning=block.get("warning", ""),
        cannot=block.get("cannot", ""),
        layers=layers,
        reasons=block["because"],
        options=block["options"],
        defaults=with_none(block["defaults"]),
        official_options=block["official_options"],
        method_settings=block["settings"],
    )
