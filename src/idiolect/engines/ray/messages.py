"""What travels between the driver and a worker: a call, where its clients' rows are found, and the answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from idiolect.engines.worker_calls import Call

__all__ = ["Answer", "Errand", "Given", "Held", "Lost", "Moved", "Receipt", "Redone", "Source", "Step"]

Reference = Any  # to an object of Ray's store


class Receipt(NamedTuple):
    """Stands for a private tree that a worker keeps; itself a tree, so that a search for NaN sees it.

    Every row that a worker ever kept has an edition of its own: the number of a row that changes is another one.
    """

    edition: Tensor  # [] int64
    nan: Tensor  # [] NaN if the row holds one, else 0

    @property
    def number(self) -> int:
        return int(self.edition)


class Step(NamedTuple):
    """A call with all that its answer depends on but the clients' rows: it can be made again, with the same answer."""

    call: Call
    program: Reference
    server: Reference


class Given(NamedTuple):
    """The row itself, as arrays."""

    row: Any


class Held(NamedTuple):
    """The worker keeps the row."""

    edition: int


class Moved(NamedTuple):
    """Another worker keeps the row, and has been asked to put it into the store."""

    edition: int
    row: Reference


class Redone(NamedTuple):
    """The row was lost with its worker: it is ``base`` after ``steps``."""

    edition: int
    base: Any
    steps: tuple[Step, ...]


Source = Given | Held | Moved | Redone


class Errand(NamedTuple):
    """Args:
    sources: by client, where its row is.
    editions: by client, the number under which its new row is kept; empty where rows stay as they are.
    drop: editions that nobody will ask for again.
    """

    step: Step
    sources: dict[int, Source]
    editions: dict[int, int]
    drop: list[int]


class Answer(NamedTuple):
    found: list[Any]  # in the order of the errand's clients, as arrays
    seconds: float


class Lost(NamedTuple):
    """Rows that could not be had from the worker which kept them."""

    editions: list[int]
