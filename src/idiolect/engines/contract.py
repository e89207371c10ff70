"""The contract of all engines: the ``Engine`` protocol, a client's ``Outcome``, and the rows that a run keeps.

An engine executes the rounds of a method for a group of clients.  Engines differ in speed and in where clients run;
all of them agree on the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from idiolect.core import Messages, Program, ServerState, Tree
from idiolect.federation import Store

__all__ = ["Engine", "Logits", "Outcome", "PrivateRows", "StagesDone", "nobody"]

Logits = dict[str, Tensor]  # by predictor: [samples, classes]

StagesDone = Callable[[int], None]  # is told how many stages of clients are done


def nobody(done: int) -> None:
    """Nobody wants to know how far the stages are."""


class Outcome(NamedTuple):
    """One client's result of a round.

    Args:
        private: the private state that the client keeps.
        messages: by part, what the client sends and its weight in the average.
        before, after: logits on the test split before and after local training; empty unless the round is observed.
        after_valid: logits on the validation split, where something is chosen for a newcomer.
    """

    private: Tree
    messages: Messages
    loss: Tensor
    before: Logits
    after: Logits
    after_valid: Logits = {}


class PrivateRows(Protocol):
    """The private state of all clients, one row each: a ``Store``, or rows that an engine's workers keep."""

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]:
        """Returns rows by client."""
        ...

    def together(self, clients: Iterable[int]) -> Mapping[int, Tree]:
        """Returns rows by client, stacked if they are stored so."""
        ...

    def write(self, rows: Mapping[int, Tree]) -> None: ...

    def prefetch(self, clients: Iterable[int]) -> None:
        """Reads the rows of clients that are asked for next, while others train."""

    def gather(self) -> None:
        """Brings rows that workers keep back to the store."""

    def at_once(self, most: int, least: int = 1) -> int:
        """Returns how many clients to ask for together where all are wanted."""
        ...

    def save(self) -> dict[str, Tensor]:
        """Brings all rows to the disk; returns what a checkpoint must hold to find them there."""
        ...

    def saved(self) -> None:
        """Is told that the checkpoint of the last ``save`` is on disk."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Makes all rows what they were when ``save`` returned ``state``."""

    def close(self) -> None: ...

    def __len__(self) -> int: ...


class Engine(Protocol):
    """Executes the rounds of a method; every engine gives the same numbers.

    In the calls that run clients, ``server`` is what the server broadcasts, ``privates`` the private state by client,
    and answers come in the order of ``privates``.
    """

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Is told before a round which round follows it; workers may prepare that one while this one is merged."""

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> Sequence[Outcome]:
        """Trains the clients for one round.

        Args:
            observe: also evaluates each client's predictors before and after its local training.
        """
        ...

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Plans coming rounds while a device is still busy with the work of this one; other engines return at once.

        Args:
            upcoming: the program and the clients of each coming round, made when they are asked for.
        """

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> Sequence[Tree]:
        """Runs the stages of the phase ``merged`` or ``end``; returns the private state after them.

        Args:
            progress: is told now and then how many stages more are done, those of each client counted; an engine may
                tell nothing.
        """
        ...

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        """Returns the logits of every predictor on each client's ``split``."""
        ...

    def residence(self, store: Store) -> PrivateRows:
        """Returns the rows that a run works with: ``store`` itself unless the engine's workers keep rows."""
        ...

    def close(self) -> None:
        """Gives back processes and the device's memory."""
