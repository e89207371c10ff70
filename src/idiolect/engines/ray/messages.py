"""Messages between the driver of ``ray`` and its workers: a call, where its clients' rows are found, and the answer.

A row is the private state of one client.  Every row that a worker ever kept has a number of its own, its edition: a row
that changes gets a new one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ray import ObjectRef
from torch import Tensor

from idiolect.core import Tree
from idiolect.engines.worker_calls import EngineCall

__all__ = [
    "KeptRow",
    "LostRows",
    "MovedRow",
    "RecomputedRow",
    "Reference",
    "RemoteCall",
    "RowReceipt",
    "RowSource",
    "SentRow",
    "WorkerAnswer",
    "WorkerRequest",
    "private_of",
]

Reference: TypeAlias = "ObjectRef[Any]"  # to an object in Ray's object store


class RowReceipt(NamedTuple):
    """Stands for a row that a worker keeps; it is a tree itself, so that a search for NaN sees it."""

    edition: Tensor  # [] int64
    nan: Tensor  # [] NaN if the row holds one, else 0

    @property
    def number(self) -> int:
        return int(self.edition)


class RemoteCall(NamedTuple):
    """A call with all that its answer depends on but the clients' rows; repeated, it gives the same answer."""

    call: EngineCall
    program: Reference
    server: Reference


class SentRow(NamedTuple):
    """The row itself, as arrays."""

    row: Any


class KeptRow(NamedTuple):
    """The worker keeps the row."""

    edition: int


class MovedRow(NamedTuple):
    """Another worker keeps the row, and has been asked to put it into the object store."""

    edition: int
    row: Reference


class RecomputedRow(NamedTuple):
    """The row was lost with its worker; it is what ``calls`` make of ``base``."""

    edition: int
    base: Any
    calls: tuple[RemoteCall, ...]


RowSource: TypeAlias = SentRow | KeptRow | MovedRow | RecomputedRow


class WorkerRequest(NamedTuple):
    """A call for some clients.

    Args:
        sources: by client, where its row is found.
        editions: by client, the number under which its new row is kept; empty where rows do not change.
        drop: editions that nobody will ask for again.
    """

    call: RemoteCall
    sources: dict[int, RowSource]
    editions: dict[int, int]
    drop: list[int]


class WorkerAnswer(NamedTuple):
    """The answers of the clients as arrays, in the order of the request, and the seconds they took."""

    found: list[Any]
    seconds: float


class LostRows(NamedTuple):
    """The editions of rows that could not be fetched from the worker that kept them."""

    editions: list[int]


def private_of(answer: Any) -> Tree:
    """Returns the private state in a client's answer to a round, or to a later phase."""
    row: Tree = answer.private if hasattr(answer, "private") else answer
    return row
