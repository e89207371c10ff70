"""Flower's Grid with sites in this process: what is sent is answered at once, unless a site is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from idiolect.deploy.signed_messages import SignedMessage, from_record, to_record
from idiolect.deploy.site import Site

Change = Callable[[SignedMessage], SignedMessage]


@dataclass
class FakeGrid:
    """Args:
    sites: by node.
    away: nodes that are not connected.
    change: what happens to a message on its way up.
    log: every message that passed, both ways.
    """

    sites: dict[int, Site]
    away: set[int] = field(default_factory=set)
    change: Change = lambda message: message
    log: list[SignedMessage] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    since: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def get_nodes(self) -> list[Any]:
        return [
            SimpleNamespace(node_id=node, last_activated_at=self.since.get(node, "0"))
            for node in self.sites
            if node not in self.away
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identities = []
        for message in messages:
            identity = f"m{len(self.log)}"
            identities.append(identity)
            request, node = from_record(message.content), message.metadata.dst_node_id
            self.log.append(request)
            if node not in self.away:
                answer = self.change(self.sites[node].reply(request))
                self.log.append(answer)
                self.replies[identity] = self._reply(to_record(answer), identity)
        return identities

    def pull_messages(self, identities: Iterable[str]) -> list[Any]:
        return [self.replies.pop(identity) for identity in list(identities) if identity in self.replies]

    def _reply(self, content: Any, identity: str) -> Any:
        metadata = SimpleNamespace(reply_to_message_id=identity)
        return SimpleNamespace(content=content, metadata=metadata, has_error=lambda: False)
