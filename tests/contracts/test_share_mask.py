"""The core masks every message with the method's share, whatever a part puts into it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from idiolect.core import Facts, Message, Part, Results, Tree, View, chain

from .midway import midway
from .sameness import leaves
from .tiny import make_engine

# ways to put the tensors of a private head into a message
LEAKS = {
    "by name": lambda head: head,
    "nested": lambda head: {"deep": {"deeper": head}},
    "as a key": lambda head: {name: {"inside": leaf} for name, leaf in head.items()},
    "in a list": lambda head: {"list": [head]},
    "bare list": lambda head: [head],
    "in a tuple": lambda head: {"facts": Facts(head, head, head)},
}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("leak", LEAKS)
def test_core_masks_what_a_part_leaks(leak: str, engine: str) -> None:
    def upload(results: Results, view: View) -> Message:
        trained = results["upload"].params["model"]
        head = {name: trained[name] for name in trained if name.startswith("units.2")}
        body = {"units.0.convolution.bias": trained["units.0.convolution.bias"]}
        assert head
        return Message({"honest": body, "leak": LEAKS[leak](head)}, view.facts.weight)

    def merge(params: Any, slot: Tree, mean: Tree, clock: Any) -> tuple[Any, Tree]:
        return params, slot

    at = midway("fedper")
    leaky = replace(at.setting, method=chain(at.setting.method, Part("leaky", upload=upload, merge=merge)))
    outcomes = make_engine(engine, leaky).round(
        replace(at, setting=leaky).program, at.sent, at.privates, False
    )
    for outcome in outcomes:
        value, _ = outcome.messages["leaky"]
        assert set(leaves(value)) == {("honest", "units.0.convolution.bias")}
