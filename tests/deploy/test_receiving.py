"""Replies that never arrive, stop half-way or hold something else: their site has not answered, or is refused."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
)
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from idiolect.deploy.receiving_grid import ReceivingGrid
from idiolect.deploy.signed_messages import SignedMessage, from_record, to_record
from idiolect.errors import UserError

WHOLE = SignedMessage(b"header", b"body", b"signature")


class SuperLink:
    """Flower's server as the loop sees it: announces replies, and has the pieces of some."""

    def __init__(self) -> None:
        self.announced: dict[str, tuple[Any, Any]] = {}
        self.pieces: dict[str, bytes] = {}
        self.confirmed: list[str] = []

    def announce(self, reply: Message, request: str, names: InflatableObject | None = None) -> None:
        """Announces a reply to a request; ``names`` is what its tree names in its place."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        proto = message_to_proto(Message(RecordDict(), reply_to=to(request)))
        proto.metadata.message_id = (names or reply).object_id
        self.announced[request] = (proto, get_object_tree(names or reply))

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:
        found = [self.announced.pop(one) for one in list(request.message_ids) if one in self.announced]
        return PullAppMessagesResponse(
            messages_list=[message for message, _ in found], message_object_trees=[tree for _, tree in found]
        )

    def PullObject(self, request: Any) -> PullObjectResponse:
        piece = self.pieces.get(request.object_id)
        return PullObjectResponse(
            object_found=True, object_available=piece is not None, object_content=piece or b""
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed.append(request.message_object_id)


def to(request: str) -> Message:
    """A request of the server under this name."""
    message = Message(RecordDict(), dst_node_id=1, message_type="query")
    message.metadata.__dict__["_message_id"] = request
    return message


def reply_to(request: str, content: RecordDict | None = None) -> Message:
    return Message(content or to_record(WHOLE), reply_to=to(request))


def pieces_of(reply: InflatableObject) -> dict[str, bytes]:
    return {name: piece.deflate() for name, piece in get_all_nested_objects(reply).items()}


@pytest.fixture
def link() -> SuperLink:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    return SuperLink()


@pytest.fixture
def grid(link: SuperLink) -> ReceivingGrid:
    whole = HttpGrid(token="t")
    whole._client, whole._run = link, SimpleNamespace(run_id=1)  # type: ignore[assignment]
    return ReceivingGrid(whole)


def received(grid: ReceivingGrid, requests: list[str], count: int) -> dict[str, Any]:
    """The replies that are there in a few seconds, by request."""
    found: dict[str, Any] = {}
    until = time.monotonic() + 5
    while len(found) < count and time.monotonic() < until:
        found |= {one.metadata.reply_to_message_id: one for one in grid.pull_messages(requests)}
        time.sleep(0.01)
    return found


def test_reply_whose_pieces_stay_away_holds_up_nobody(link: SuperLink, grid: ReceivingGrid) -> None:
    slow, fast = reply_to("slow"), reply_to("fast")
    link.announce(slow, "slow")
    link.announce(fast, "fast")
    link.pieces = pieces_of(fast)
    link.pieces.pop(slow.object_id, None)
    began = time.monotonic()
    found = received(grid, ["slow", "fast"], 1)
    assert set(found) == {"fast"} and from_record(found["fast"].content) == WHOLE
    assert time.monotonic() - began < 2
    link.pieces |= pieces_of(slow)
    assert from_record(received(grid, ["slow"], 1)["slow"].content) == WHOLE
    assert link.confirmed == [fast.object_id, slow.object_id]


class Garbage(InflatableObject):
    """A piece with a head that Flower accepts and a body that is none."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def children(self) -> dict[str, InflatableObject]:
        return {}

    def deflate(self) -> bytes:
        body = b"\xff\xff no protobuf"
        return f"{self.kind}  {len(body)}".encode() + b"\x00" + body

    @property
    def object_id(self) -> str:
        return get_object_id(self.deflate())


@pytest.mark.parametrize("kind", ["Message", "RecordDict", "Array", "nothing known"])
def test_reply_of_garbage_is_refused_and_raises_nothing(
    link: SuperLink, grid: ReceivingGrid, kind: str
) -> None:
    garbage = Garbage(kind)
    link.announce(reply_to("asked"), "asked", garbage)
    link.pieces = {garbage.object_id: garbage.deflate()}
    refused(received(grid, ["asked"], 1))


def test_reply_that_is_an_array_or_answers_something_else_is_refused(
    link: SuperLink, grid: ReceivingGrid
) -> None:
    array, other = Array("uint8", (1,), "safetensors", b"1"), reply_to("other")
    for wrong in (array, other, reply_to("asked", RecordDict({"body": ArrayRecord({"tensors": array})}))):
        link.announce(reply_to("asked"), "asked", wrong)
        link.pieces = pieces_of(wrong)
        refused(received(grid, ["asked"], 1))


def refused(found: dict[str, Any]) -> None:
    assert set(found) == {"asked"} and not found["asked"].has_error()
    with pytest.raises(UserError, match="was not made by Idiolect"):
        from_record(found["asked"].content)
