"""The context of a client's work: what the server keeps, what the client keeps, and its state within a stage."""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict

from torch import Tensor

from idiolect.core.part import Facts, Messages
from idiolect.core.stage import Result
from idiolect.core.trees import Flat, Flats, Slot

__all__ = [
    "UPLOAD",
    "Context",
    "Messages",
    "PrivateState",
    "ServerState",
    "State",
    "with_download",
    "without_download",
]

UPLOAD = "upload"  # the name, among ``Results``, of the result that is uploaded: ``results[UPLOAD]``


class ServerState(TypedDict):
    """What the server keeps from round to round, or the share of it that travels to a client."""

    params: Flat
    buffers: Flat
    slots: dict[str, Slot]  # by part


class PrivateState(TypedDict):
    """What one client keeps from round to round; during a round also what the server sent to it alone."""

    buffers: Flat
    slots: dict[str, Slot]  # by part
    download: NotRequired[dict[str, Slot]]  # by part; it is not kept


def with_download(private: PrivateState, download: dict[str, Slot]) -> PrivateState:
    """Returns private state with what the server sent to this client alone, where there is something."""
    return {**private, "download": download} if download else private


def without_download(private: PrivateState) -> PrivateState:
    """Returns what a client keeps of its private state after local work."""
    return {"buffers": private["buffers"], "slots": private["slots"]}


class Context(NamedTuple):
    """Everything that one client's work depends on, as one tree."""

    server: ServerState  # as broadcast
    private: PrivateState
    facts: Facts
    results: dict[str, Result]
    uploads: dict[str, Slot] = {}  # on the server: by part, the single uploads of all clients, stacked


class State(NamedTuple):
    """One client in the middle of a stage."""

    params: Flats
    buffers: Flats
    memory: Slot  # of the optimiser
    carry: dict[str, Slot]  # by part
    loss: Tensor  # summed over steps
    steps: Tensor
    measured: Slot
    planned: Slot = {}  # {"steps": all that the client makes in this stage} where its schedule needs them
