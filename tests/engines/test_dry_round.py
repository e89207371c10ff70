"""The dry round tries every hook on tensors without numbers, and names the hook that fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from idiolect.core import Batch, Flat, Initial, Loss, Out, Part, Slot, Tree, View
from idiolect.core.trees import squared_distance
from idiolect.engines import place
from idiolect.errors import UserError
from idiolect.experiments import prepare
from idiolect.experiments.setting import Setting
from idiolect.methods.catalogue import PARTS
from idiolect.parts import average

Prepare = Callable[[Part], Setting]


@pytest.fixture
def prepared(tiny, monkeypatch) -> Prepare:
    def with_part(part: Part) -> Setting:
        monkeypatch.setitem(PARTS, "mine", lambda: part)
        return prepare(replace(tiny, method="fedavg + mine"), place("loop", "cpu"))

    return with_part


def near_slot(of: str) -> Part:
    """Keeps the model near a slot that begins as a further initialisation."""

    def init_server(shared: Flat, initial: Initial) -> Slot:
        drawn = initial.draw("anchor", False).params
        return {"anchor": drawn, "gap": {n: drawn[n] - shared[n] for n in shared}, "count": torch.zeros(())}

    def init_client(initial: Initial) -> Slot:
        drawn = initial.draw("anchor", True).params
        return {"anchor": drawn, "gap": {n: drawn[n] - initial.params[n] for n in drawn}}

    def loss(inner: Loss, view: View) -> Loss:
        anchor = (view.server if of == "server" else view.private)["anchor"]

        def total(params: Tree, batch: Batch, out: Out) -> Tensor:
            return inner(params, batch, out) + squared_distance(params["model"], anchor)

        return total

    def finish(results: object, view: View) -> Slot:
        return view.private

    if of == "server":
        return Part("mine", init_server=init_server, loss=loss, broadcasts=True)
    return Part("mine", init_client=init_client, loss=loss, finish=finish)


@pytest.mark.parametrize("of", ["server", "client"])
def test_slot_may_begin_as_a_further_initialisation(prepared: Prepare, of: str) -> None:
    forms = prepared(near_slot(of)).forms[0]
    slot = (forms.broadcasts[0] if of == "server" else forms.privates[0])["slots"]["mine"]
    assert {leaf.device.type for leaf in slot["anchor"].values()} == {"meta"}
    assert {leaf.device.type for leaf in slot["gap"].values()} == {"meta"}


@pytest.mark.parametrize("hook", ["init_server", "init_client", "merge"])
def test_hook_that_fails_is_named(prepared: Prepare, hook: str) -> None:
    def failing(*given: object) -> None:
        raise ValueError("as wanted")

    part = near_slot("server")._replace(upload=average().upload)
    with pytest.raises(UserError, match=re.escape(f"as wanted (in the hook {hook!r} of the part 'mine')")):
        prepared(part._replace(**{hook: failing}))
