"""Settings from the command line: --quick, --set and flags of their own."""

from __future__ import annotations

import ast
from typing import Any

from idiolect.errors import UserError
from idiolect.experiments.demo import QUICK
from idiolect.options import split_outside_brackets

__all__ = ["names_in", "settings_of"]

FLAGS = {"method": "--method or --methods", "seed": "--seed"}


def settings_of(quick: bool, pairs: list[str] | None, **flags: Any) -> dict[str, Any]:
    """Settings from --quick, then --set, then the flags of their own."""
    chosen: dict[str, Any] = dict(QUICK) if quick else {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair!r} has no value; write --set key=value")
        if key.strip() in FLAGS:
            raise UserError(f"--set {key.strip()} is not for settings; use {FLAGS[key.strip()]}")
        chosen[key.strip()] = _value(value)
    return chosen | {name: value for name, value in flags.items() if value is not None}


def names_in(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name for name in split_outside_brackets(text or "", ",") if name]


def _value(text: str) -> Any:
    """A Python literal, or the text itself: a name, or a call such as label_k(k=2)."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
