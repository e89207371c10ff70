"""Flower's grid with replies that arrive side by side, so that no site stops the server's loop or holds it up.

Flower announces a reply before it is there, waits for its pieces one reply after the other, up to two hours each, and
raises where a piece says something else than it should.  Here each reply is received in a thread of its own: one that
stays away is a site that has not answered yet, and one that cannot be read is refused like any other wrong answer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any, Protocol

from flwr.app import Message, RecordDict
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse

__all__ = ["MessageGrid", "ReceivingGrid"]


class MessageGrid(Protocol):
    """What the server needs of Flower's grid."""

    def get_nodes(self) -> Iterable[Any]: ...

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]: ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]: ...


class ReceivingGrid:
    """A ``MessageGrid`` that waits for no site.

    Args:
        grid: Flower's ``HttpGrid``.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._under_way: set[str] = set()
        self._arrived: SimpleQueue[tuple[str, list[Any]]] = SimpleQueue()

    def get_nodes(self) -> Iterable[Any]:
        return list(self._grid.get_nodes())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return list(self._grid.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """Returns the replies to these messages that are wholly there."""
        asked = [identity for identity in message_ids if identity not in self._under_way]
        if asked:
            request = PullAppMessagesRequest(message_ids=asked)
            found = self._grid._runtime_client.PullMessages(request)
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                self._under_way.add(message.metadata.reply_to_message_id)
                Thread(target=self._receive, args=(message, tree), daemon=True).start()
        replies: list[Any] = []
        while not self._arrived.empty():
            identity, here = self._arrived.get()
            self._under_way.discard(identity)
            replies += here
        return replies

    def _receive(self, message: Any, tree: Any) -> None:
        """Waits for a reply that is announced; Flower's own function does it, which is told of this one alone."""
        identity, grid = message.metadata.reply_to_message_id, copy.copy(self._grid)
        grid._client = _Announced(
            self._grid._runtime_client,
            PullAppMessagesResponse(messages_list=[message], message_object_trees=[tree]),
        )
        try:
            replies = list(grid.pull_messages([identity]))
        except Exception:  # of whatever kind: a site chooses what its pieces hold
            replies = [_unreadable(identity)]
        self._arrived.put(
            (identity, [one if _answers(one, identity) else _unreadable(identity) for one in replies])
        )


class _Announced:
    """Flower's client, to which one reply has been announced."""

    def __init__(self, client: Any, found: PullAppMessagesResponse) -> None:
        self._client, self._found = client, found

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _answers(reply: Any, identity: str) -> bool:
    """Returns whether a reply is a message to this request; what it says of itself was written by its sender."""
    return (
        isinstance(reply, Message)
        and reply.metadata.reply_to_message_id == identity
        and (reply.has_error() or reply.has_content())
    )


def _unreadable(identity: str) -> Any:
    """Returns the reply that stands for one that cannot be read."""
    return SimpleNamespace(
        content=RecordDict(), metadata=SimpleNamespace(reply_to_message_id=identity), has_error=lambda: False
    )
