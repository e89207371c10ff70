"""What the fields of a manifest are: the kind of each that any reader relies on.

A field may be absent unless it is required; a field that is not listed may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["REQUIRED", "wrong_field"]

Fits = Callable[[Any], bool]
REQUIRED = ("name", "method", "seed", "status")
DEEPEST = 20
LARGEST = 2**63 - 1  # that a column of whole numbers holds


def text(value: Any) -> bool:
    return isinstance(value, str) and re.search("[\0\ud800-\udfff]", value) is None


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def setting(value: Any) -> bool:
    """Whether a value is one that a setting or an option can have: plain, or a tree of plain values."""
    if isinstance(value, list):
        return all(map(setting, value))
    if isinstance(value, dict):
        return all(map(setting, value.values()))
    return value is None or flag(value) or text(value) or number(value)


def is_deep(value: Any) -> bool:
    """Whether a value is a tree of more levels than any manifest has, which functions that call themselves fear."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            below
            for one in level
            if isinstance(one, list | dict)
            for below in (one if isinstance(one, list) else one.values())
        ]
    return bool(level)


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def either(*kinds: Fits) -> Fits:
    return lambda value: any(fits(value) for fits in kinds)


def list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def table_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def record(required: tuple[str, ...] = (), /, **fields: Fits) -> Fits:
    """Whether a value is a table whose listed fields are of their kinds; those required must be there."""

    def fits(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(name in value for name in required)
            and all(kind(value[name]) for name, kind in fields.items() if name in value)
        )

    return fits


def pair_of_text_and_options(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and text(value[0]) and table_of(setting)(value[1])


def equal_rows(fits: Fits) -> Fits:
    """Whether a value is a matrix: rows of one length."""
    return lambda value: list_of(list_of(fits))(value) and len({len(row) for row in value}) <= 1


COUNTS = equal_rows(count)
METRIC = record(
    ("higher_is_better",),
    higher_is_better=flag,
    low=or_none(number),
    high=or_none(number),
    unit=text,
)
SPEC = {
    **dict.fromkeys(("dataset", "partition", "model", "pool", "client_test"), text),
    **dict.fromkeys(("clients", "newcomers", "rounds", "public"), count),
    **dict.fromkeys(("valid", "test"), number),
    "public_in_test": flag,
    "under": list_of(text),
}
FIELDS: Mapping[str, Fits] = {
    **dict.fromkeys(("name", "method", "status", "label", "headline", "primary_metric", "scene"), text),
    **dict.fromkeys(
        ("dataset", "partition", "model", "architecture", "task", "date", "precision", "kind"), text
    ),
    **dict.fromkeys(("spec_hash", "family_hash"), text),
    **dict.fromkeys(("seed", "data_seed", "parameters", "never_selected"), count),
    "commit": or_none(text),
    "seconds": or_none(number),
    "metrics": table_of(METRIC),
    "options": list_of(pair_of_text_and_options),
    "spec": lambda value: table_of(setting)(value) and record(**SPEC)(value),
    "parts": list_of(text),
    "notes": list_of(text),
    "class_names": list_of(text),
    "feature_names": list_of(text),
    "client_names": list_of(text),
    "newcomers": list_of(count),
    "input_shape": list_of(count),
    "class_counts": COUNTS,
    "samples": list_of(count),
    "at_end": record(class_counts=COUNTS, samples=list_of(count)),
    "disturbed": table_of(list_of(count)),
    "diverged": or_none(
        record(("round", "what", "moment"), round=count, client=or_none(count), what=text, moment=text)
    ),
    "choices": table_of(setting),
    "versions": table_of(text),
    "hardware": or_none(record(machine=text, cpu=text, gpu=text, cores=count, memory_bytes=count)),
    "engine": either(text, record(("engine",), engine=text, device=text, reason=text)),
    "resources": record(
        seconds=or_none(number),
        peak_memory_bytes=or_none(number),
        peak_gpu_bytes=or_none(number),
        energy_joules=or_none(number),
        energy_source=or_none(text),
    ),
    "source": table_of(lambda value: True),
    "sha256": table_of(text),
}


def wrong_field(manifest: Mapping[str, Any]) -> str | None:
    """Returns the first field that is not of its kind; None where every reader can use the manifest.

    >>> wrong_field({"name": "a", "method": "map", "seed": "0", "status": "finished"})
    'seed'
    """
    if is_deep(manifest):
        return next(name for name, value in manifest.items() if is_deep([value]))
    for name, fits in FIELDS.items():
        if name in manifest and not fits(manifest[name]):
            return name
    metrics = manifest.get("metrics")
    return "primary_metric" if metrics and manifest.get("primary_metric", "accuracy") not in metrics else None
