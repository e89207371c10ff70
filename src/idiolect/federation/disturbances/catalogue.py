"""The disturbances by name, and the troubles of a run: all its disturbances together.

A disturbance is written as a call, ``label_noise(share=0.3)``.  A new one is a function in a file of this folder that
returns a ``Disturbance``, and a line in ``DISTURBANCES``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from idiolect.core.context import Messages
from idiolect.core.part import Clock
from idiolect.core.seeds import derive
from idiolect.core.trees import Slot
from idiolect.errors import UserError
from idiolect.federation.disturbances.corrupted_test import corrupted_test
from idiolect.federation.disturbances.deadline import deadline
from idiolect.federation.disturbances.disturbance import AnswerTimes, Disturbance, SentUploads
from idiolect.federation.disturbances.drift import drift
from idiolect.federation.disturbances.dropout import dropout
from idiolect.federation.disturbances.hostile_uploads import scaling, sign_flip, upload_noise
from idiolect.federation.disturbances.label_flip import label_flip
from idiolect.federation.disturbances.label_noise import label_noise
from idiolect.federation.disturbances.late import late
from idiolect.federation.federation import Federation
from idiolect.option_parsing import OptionSchema, read_choice, write_call

__all__ = ["DISTURBANCES", "Troubles", "canonical_under", "describe_disturbances"]

Steps: TypeAlias = Callable[[int, Sequence[int]], Mapping[int, int]]  # (round, clients) -> local steps
Named: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
DISTURBANCES: dict[str, Callable[..., Disturbance]] = {
    "label_noise": label_noise,
    "label_flip": label_flip,
    "corrupted_test": corrupted_test,
    "drift": drift,
    "dropout": dropout,
    "deadline": deadline,
    "sign_flip": sign_flip,
    "scaling": scaling,
    "upload_noise": upload_noise,
    "late": late,
}  # in the order in which they act, whatever the order in which they are written


def canonical_under(given: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the one spelling of some disturbances: all options written, in the order in which they act.

    >>> canonical_under(["dropout", "label_noise(rate=1)"])
    ('label_noise(share=0.3, rate=1.0, kind=uniform)', 'dropout(rate=0.1)')
    """
    texts = [given] if isinstance(given, str) else list(given)
    order, written = list(DISTURBANCES), []
    for text in texts:
        name, options, schema = read_choice("disturbance", text, DISTURBANCES)
        DISTURBANCES[name](**options)
        written.append((order.index(name), write_call(name, schema.with_defaults(options))))
    for place, one in written:
        if written.count((place, one)) > 1:
            raise UserError(f"under gives {one} twice; give it once")
    return tuple(one for _, one in sorted(written))


@dataclass(frozen=True)
class Troubles:
    """All disturbances of a run.

    The seed of a disturbance is derived from the run's, its name, and its place among those of its name: with another
    ``share`` or ``rate`` it still hits the same clients first.

    Args:
        under: their canonical texts.
        seed: of the run; draws who fails and who is late.
        data_seed: of the data; draws whose data are disturbed, and how.
    """

    under: tuple[str, ...]
    seed: int
    data_seed: int

    def disturbed(self, federation: Federation, rounds: int) -> Federation:
        """Returns the federation with disturbed data, which says whose they are."""
        for text, one, place in self._each():
            if one.data is not None:
                seed = derive(self.data_seed, "under", *place)
                federation, clients = one.data(federation, seed, rounds)
                federation = federation.noting(text, clients)
        return federation

    def lost(self, round: int, selected: Sequence[int], steps: Steps) -> set[int]:
        """Returns the selected clients whose training in a round is lost.

        Args:
            steps: returns by client its local steps up to the upload.
        """
        found = {client for times in self._times(round, selected, steps) for client in times.cut_off}
        for _, one, place in self._each():
            if one.lost is not None:
                found |= one.lost(round, selected, derive(self.seed, "under", *place))
        return found

    def simulated_seconds(
        self, round: int, selected: Sequence[int], trained: Sequence[int], steps: Steps
    ) -> float | None:
        """Returns how long a round takes in simulated time; None where no disturbance says how fast clients are.

        A server that misses somebody waits until the deadline, where there is one.
        """
        found = [
            max((times.seconds[client] for client in trained), default=0.0)
            if times.limit is None or len(trained) == len(selected)
            else times.limit
            for times in self._times(round, selected, steps)
        ]
        return max(found, default=None)

    def _times(self, round: int, selected: Sequence[int], steps: Steps) -> list[AnswerTimes]:
        timed = [(one.answers, place) for _, one, place in self._each() if one.answers is not None]
        made = steps(round, selected) if timed else {}
        return [answers(round, made, derive(self.seed, "under", *place)) for answers, place in timed]

    def sent(
        self,
        clock: Clock,
        clients: Sequence[int],
        messages: Messages,
        origin: Mapping[str, Slot],
        named: Named,
    ) -> Messages:
        """Returns what the clients of a round send, hostile ones included.

        Args:
            origin: by message, what a client that has learnt nothing would send.
            named: (disturbance, clients) that ``disturbed`` has noted.
        """
        for text, one, place in self._each():
            if one.uploads is not None:
                marked = next(clients for noted, clients in named if noted == text)
                seed = derive(self.seed, "under", *place)
                uploads = SentUploads(clock.round, clock.rounds, clients, messages, origin, marked)
                messages = one.uploads(uploads, seed)
        return messages

    def delays(self, round: int, trained: Sequence[int]) -> dict[int, int]:
        """Returns by client the rounds by which its upload is late; those on time are left out.

        Of several delays of one upload the longest counts.
        """
        found: dict[int, int] = {}
        for _, one, place in self._each():
            if one.delays is not None:
                late = one.delays(round, trained, derive(self.seed, "under", *place))
                found |= {client: max(rounds, found.get(client, 0)) for client, rounds in late.items()}
        return found

    def _each(self) -> list[tuple[str, Disturbance, tuple[str, int]]]:
        """Returns text and functions of each disturbance, with its name and its place among those of this name."""
        found: list[tuple[str, Disturbance, tuple[str, int]]] = []
        for text in self.under:
            name, options, _ = read_choice("disturbance", text, DISTURBANCES)
            number = sum(place[0] == name for _, _, place in found)
            found.append((text, DISTURBANCES[name](**options), (name, number)))
        return found


class DisturbanceDescription(NamedTuple):
    """What a list says of a disturbance."""

    name: str
    idea: str
    options: dict[str, Any]


def describe_disturbances() -> list[DisturbanceDescription]:
    """Returns name, first sentence and options with their defaults of every disturbance."""
    return [
        DisturbanceDescription(
            name,
            (inspect.getdoc(function) or "").partition("\n")[0],
            OptionSchema.of(f"disturbance {name}", function).defaults,
        )
        for name, function in DISTURBANCES.items()
    ]
