"""The contract of all engines: the ``Engine`` protocol, a client's ``Outcome``, and the rows that a run keeps.

An engine executes the rounds of a method for a group of clients.  Engines differ in speed and in where clients run;
all of them agree on the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from idiolect.core import Program, Tree
from idiolect.federation import Store

__all__ = ["Engine", "Logits", "Outcome", "PrivateRows"]

Logits = dict[str, Tensor]  # by predictor: [samples, classes]


class Outcome(NamedTuple):
    """One client's result of a round.

    Args:
        private: the private state that the client keeps.
        messages: by part, what the client sends and its weight in the average.
        before, after: logits on the test split before and after local training; empty unless the round is observed.
        after_valid: logits on the validation split, where something is chosen for a newcomer.
    """

    private: Tree
    messages: dict[str, tuple[Tree, Tensor]]
    loss: Tensor
    before: Logits
    after: Logits
    after_valid: Logits = {}


class PrivateRows(Protocol):
    """The private state of all clients, one row each: a ``Store``, or rows that an engine's workers keep."""

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]: ...

    def together(self, clients: Iterable[int]) -> Mapping[int, Tree]: ...

    def write(self, rows: Mapping[int, Tree]) -> None: ...

    def prefetch(self, clients: Iterable[int]) -> None: ...

    def gather(self) -> None: ...

    def at_once(self, most: int, least: int = 1) -> int: ...

    def save(self) -> dict[str, Tensor]: ...

    def saved(self) -> None: ...

    def restore(self, state: dict[str, Tensor]) -> None: ...

    def close(self) -> None: ...

    def __len__(self) -> int: ...


class Engine(Protocol):
    """Executes the rounds of a method; every engine gives the same numbers.

    In the calls that run clients, ``server`` is what the server broadcasts, ``privates`` the private state by client,
    and answers come in the order of ``privates``.
    """

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Hears, before a round, of the round after it; an engine may prepare that one while this one is merged."""

    def round(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], observe: bool
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
        self, program: Program, phase: str, server: Tree, privates: Mapping[int, Tree]
    ) -> Sequence[Tree]:
        """Runs the stages of the phase ``merged`` or ``end``; returns the private state after them."""
        ...

    def evaluate(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        """Returns the logits of every predictor on each client's ``split``."""
        ...

    def residence(self, store: Store) -> PrivateRows:
        """Returns the rows that a run works with: ``store`` itself unless the engine's workers keep rows."""
        ...

    def close(self) -> None:
        """Gives back processes and the device's memory."""
