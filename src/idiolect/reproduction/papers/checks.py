"""Refusals of a file that is not as it should be; packaged data, so these are errors of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["refuse_repeated", "refuse_unknown"]


def refuse_unknown(where: str, block: Mapping[str, Any], known: Iterable[str]) -> None:
    strange = sorted(set(block) - set(known))
    if strange:
        raise ValueError(f"{where}: unknown {', '.join(strange)}")


def refuse_repeated(what: str, ids: Iterable[str]) -> None:
    seen = list(ids)
    twice = sorted({name for name in seen if seen.count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} stand twice")
