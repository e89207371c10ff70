"""The divergence of a run: where its numbers stopped being finite, as the manifest says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Divergence", "divergence_of"]

KEY = "diverged"


class Divergence(NamedTuple):
    """Where the numbers of a run stopped being finite.

    Args:
        round: the round in which it happened, from 1; for the stages at the end of the run, the last round.
        client: the client whose numbers they were; None where they were the server's.
        what: the first tensor that is not finite.
        moment: ``training``, ``merge``, ``server stage``, ``after merge``, ``end`` or ``evaluation``.
    """

    round: int
    client: int | None
    what: str
    moment: str

    @property
    def place(self) -> str:
        """
        >>> Divergence(12, 37, "loss", "training").place, Divergence(3, None, "params", "merge").place
        ('round 12, client 37', 'round 3, server')
        """
        return f"round {self.round}, {'server' if self.client is None else f'client {self.client}'}"

    @property
    def text(self) -> str:
        """What a table prints in place of a number."""
        return f"diverged ({self.place})"


def divergence_of(manifest: Mapping[str, Any]) -> Divergence | None:
    """Returns where a run diverged; None for a run that did not."""
    found = manifest.get(KEY)
    return Divergence(**{name: found.get(name) for name in Divergence._fields}) if found else None
