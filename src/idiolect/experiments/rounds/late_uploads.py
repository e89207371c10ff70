"""Uploads that arrive in a later round than they were sent in, and wait until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from idiolect.core import Messages
from idiolect.core.trees import Rows, tree_map

__all__ = ["Arrivals", "LateUploads"]


class Arrivals(NamedTuple):
    """What reaches the server in a round.

    Args:
        clients: who sent it, in client-id order; of two uploads of one client the older one comes first.
        messages: with values and weights stacked in that order.
    """

    clients: list[int]
    messages: Messages


class WaitingUpload(NamedTuple):
    """One client's messages, stacked with a single row; rounds are counted from 0."""

    client: int
    sent: int
    due: int
    messages: Messages


@dataclass
class LateUploads:
    """The uploads that are on their way; a checkpoint holds them."""

    waiting: list[WaitingUpload] = field(default_factory=list)

    def deliver(
        self, round: int, clients: list[int], messages: Messages, delays: Mapping[int, int]
    ) -> Arrivals:
        """Returns what arrives in a round: what was sent in it on time, and what was due by now.

        Args:
            clients, messages: what is sent in this round.
            delays: by client, how many rounds late it arrives; others are on time.
        """
        due = [upload for upload in self.waiting if upload.due <= round]
        if not due and not delays:
            return Arrivals(clients, messages)
        sent = Rows(messages, len(clients))
        each = [
            WaitingUpload(client, round, round + delays.get(client, 0), sent.at([place]).stacked)
            for place, client in enumerate(clients)
        ]
        arrived = sorted([*due, *(upload for upload in each if upload.due <= round)], key=_order)
        self.waiting = [upload for upload in [*self.waiting, *each] if upload.due > round]
        return Arrivals([upload.client for upload in arrived], _together(arrived))

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold; nothing where nothing waits."""
        return {
            str(number): {
                "facts": torch.tensor([upload.client, upload.sent, upload.due]),
                "messages": {part: {"value": v, "weight": w} for part, (v, w) in upload.messages.items()},
            }
            for number, upload in enumerate(self.waiting)
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LateUploads:
        """Returns what ``state`` described."""
        waiting = []
        for number in sorted(state, key=int):
            found = state[number]
            messages = {part: (one["value"], one["weight"]) for part, one in found["messages"].items()}
            client, sent, due = found["facts"].tolist()
            waiting.append(WaitingUpload(client, sent, due, messages))
        return cls(waiting)


def _order(upload: WaitingUpload) -> tuple[int, int]:
    return upload.client, upload.sent


def _together(uploads: Sequence[WaitingUpload]) -> Messages:
    """Stacks the messages of uploads; a part that only some of them have is stacked for those."""
    parts = dict.fromkeys(part for upload in uploads for part in upload.messages)
    return {
        part: tree_map(
            lambda *leaves: torch.cat(leaves),
            *(upload.messages[part] for upload in uploads if part in upload.messages),
        )
        for part in parts
    }
