"""Randomness is data: every draw comes from a seed derived from what it is for."""

from __future__ import annotations

import hashlib

__all__ = ["derive"]


def derive(seed: int, purpose: str, *position: int | str) -> int:
    """A 63-bit seed for ``purpose`` at ``position`` (round, client, stream, ...) of the run ``seed``.

    Independent of every other purpose and position, so that a method which consumes extra randomness
    elsewhere still sees the batches of one that does not.

    >>> derive(0, "batches", 3, 7) == derive(0, "batches", 3, 7)
    True
    >>> derive(0, "batches", 3, 7) == derive(0, "batches", 7, 3)
    False
    """
    text = repr((seed, purpose, *position)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
