"""Seeds: every random draw of a run comes from a seed derived from what the draw is for."""

from __future__ import annotations

import hashlib

__all__ = ["derive"]


def derive(seed: int, purpose: str, *position: int | str) -> int:
    """Returns a 63-bit seed for ``purpose`` at ``position`` (round, client, stream, ...) of the run ``seed``.

    It is independent of every other purpose and position, so a method that draws more random numbers than another
    still sees the same batches.

    >>> derive(0, "batches", 3, 7) == derive(0, "batches", 3, 7)
    True
    >>> derive(0, "batches", 3, 7) == derive(0, "batches", 7, 3)
    False
    """
    text = repr((seed, purpose, *position)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
