"""The server's side of a round: broadcast, weighted means of the uploads in client-id order, and the merge.

The server sees the mean of the uploads alone.  A part that reads single uploads declares it (``individual``) and reads
them in a stage on the server, or has the hook ``gather``, which says what is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from idiolect.core.client import call
from idiolect.core.context import Messages, PrivateState, ServerState
from idiolect.core.method import Method
from idiolect.core.noise import NoiseSource, SecureNoise
from idiolect.core.part import Clock, GatherView, Initial, Structure
from idiolect.core.sharing import Sharing
from idiolect.core.trees import Slot, T, pick, tree_map

__all__ = ["broadcast", "init_private", "init_server", "origins", "released", "server_round", "weighted_mean"]


def init_server(method: Method, initial: Initial, structure: Structure) -> ServerState:
    """Returns the server's first state, without the tensors that a part keeps private."""
    shared = pick(initial.params, lambda n: not method.is_private(n, structure))
    buffers = pick(initial.buffers, lambda n: not method.is_private(n, structure))
    slots = {p.name: call(p, "init_server", shared, initial) for p in method.parts if p.init_server}
    return {"params": shared, "buffers": buffers, "slots": slots}


def init_private(method: Method, initial: Initial, structure: Structure, buffers: str) -> PrivateState:
    """Returns one client's first private state."""
    own = pick(initial.buffers, Sharing(method, structure, buffers).keeps_buffer)
    slots = {p.name: call(p, "init_client", initial) if p.init_client else {} for p in method.parts}
    return {"buffers": own, "slots": slots}


def broadcast(method: Method, server: ServerState) -> ServerState:
    """Returns what travels to a client at the start of a round."""
    slots = {p.name: server["slots"][p.name] for p in method.parts if p.broadcasts}
    return {"params": server["params"], "buffers": server["buffers"], "slots": slots}


def weighted_mean(value: T, weight: Tensor) -> T:
    """``sum_k w_k v_k / sum_k w_k`` over the leading axis, which is in client-id order."""
    share = weight / weight.sum()

    def mean(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf[0]
        row = share.to(leaf.dtype)[None]
        return torch.mm(row, leaf.reshape(len(leaf), -1)).reshape(leaf.shape[1:])

    return tree_map(mean, value)


def origins(method: Method, server: ServerState, messages: Messages) -> dict[str, Slot]:
    """Returns for each of some stacked messages what a client that has learnt nothing would send."""
    known: dict[str, Slot] = {"buffers": server["buffers"]}
    for part in method.parts:
        if part.origin:
            known[part.name] = call(part, "origin", server["params"], server["slots"].get(part.name, {}))
    return {name: _like(value, known.get(name, {})) for name, (value, _) in messages.items()}


def _like(value: Slot, origin: Slot) -> Slot:
    """Returns the tensors of ``origin`` under the names of a stacked message, and zeros where it has none."""
    found: Slot = {}
    for name, below in value.items():
        if isinstance(below, dict):
            found[name] = _like(below, origin.get(name, {}))
        elif name in origin:
            found[name] = origin[name]
        else:
            found[name] = tree_map(lambda leaf: leaf.new_zeros(leaf.shape[1:]), below)
    return found


def released(
    method: Method,
    sent: ServerState,
    own: Mapping[str, Slot],
    clients: Sequence[int],
    messages: Messages,
    clock: Clock,
    noise: NoiseSource,
) -> Messages:
    """Returns what leaves clients of stacked messages: all of them as they are, unless a part says otherwise.

    Args:
        sent: what all of the clients were sent.
        own: by part, what each of them alone was sent, stacked.
    """
    replaced = {name: leaf for slot in own.values() for name, leaf in slot.get("params", {}).items()}
    received: ServerState = {**sent, "params": {**sent["params"], **replaced}}
    for part in method.parts:
        if part.release and messages:
            of_each = partial(_of_clients, noise, clients, part.name, clock.round)
            messages = call(
                part, "release", messages, _gather_view(method, received, messages, clock, of_each)
            )
    return messages


def gathered(
    method: Method, server: ServerState, messages: Messages, clock: Clock, noise: NoiseSource
) -> Messages:
    """Returns what is averaged of stacked messages: all of them, unless a part says otherwise."""
    for part in method.parts:
        if part.gather and messages:
            of_server = partial(_of_server, noise, part.name, clock.round)
            messages = call(
                part, "gather", messages, _gather_view(method, server, messages, clock, of_server)
            )
    return messages


def _gather_view(
    method: Method,
    server: ServerState,
    messages: Messages,
    clock: Clock,
    noise: Callable[[Tensor, str], Tensor],
) -> GatherView:
    update = [p.name for p in method.parts if "server update" in p.roles]
    model = tuple(name for name in messages if name in (*update, "buffers"))
    return GatherView(origins(method, server, messages), model, clock, noise)


def _of_server(noise: NoiseSource, part: str, round: int, like: Tensor, name: str) -> Tensor:
    return torch.from_numpy(noise.normal(tuple(like.shape), "server", part, name, round)).to(like)


def _of_clients(
    noise: NoiseSource, clients: Sequence[int], part: str, round: int, like: Tensor, name: str
) -> Tensor:
    each = [noise.normal(tuple(like.shape[1:]), "client", part, name, round, client) for client in clients]
    return torch.from_numpy(np.stack(each)).to(like)


def server_round(
    method: Method,
    server: ServerState,
    messages: Messages,
    clock: Clock,
    noise: NoiseSource = SecureNoise(),  # noqa: B008 - holds no state
) -> ServerState:
    """Returns the next server state, from messages stacked over the cohort."""
    params, slots = server["params"], dict(server["slots"])
    messages = gathered(method, server, messages, clock, noise)
    if method.hides_clients:
        clock = clock._replace(cohort_size=clock.expected_cohort)
    for part in method.parts:
        if part.merge and part.name in messages:
            mean = weighted_mean(*messages[part.name])
            params, slot = call(part, "merge", params, slots.get(part.name, {}), mean, clock)
            if part.init_server:
                slots[part.name] = slot
    buffers = server["buffers"]
    if "buffers" in messages:
        buffers = {**buffers, **weighted_mean(*messages["buffers"])}
    return {"params": params, "buffers": buffers, "slots": slots}
