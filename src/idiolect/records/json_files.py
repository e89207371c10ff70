"""Reads small JSON files that anybody may have changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["read_json_object"]


def read_json_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else than one object of JSON, or one that is nested too deeply to be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not an object of JSON")
    return found
