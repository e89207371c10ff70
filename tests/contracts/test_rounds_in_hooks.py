"""A hook may compute with the round, and decide by it: traced or not, the numbers are the loop's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from idiolect.core import Part, chain
from idiolect.engines import CohortEngine, LoopEngine
from idiolect.engines.cohort.tracing import TracedNumber
from idiolect.parts import average

from .sameness import assert_equal, states
from .tiny import play, setting_of

USES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda round: (2 * round + 1) / 4 - round**2 + 0.5**round,
    "remainder": lambda round: (round % 2) * 1.5 + round // 2,
    "tensor": lambda round: torch.full_like(torch.zeros(()), round + 1),
    "if": lambda round: 5.0 if round < 1 else 1.0,
    "in a tuple": lambda round: 3.0 if round in (0, 2) else 1.0,
    "in a set": lambda round: 3.0 if round in {0, 2} else 1.0,
    "next one in a set": lambda round: 3.0 if round + 1 in {1, 3} else 1.0,
    "in a table": lambda round: {0: 1.0, 1: 2.0}.get(round, 9.0),
    "of a list": lambda round: [1.0, 2.0, 3.0][round],
    "text": lambda round: float(f"{round}" == "1"),
    "least": lambda round: min(round, 1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_round_in_a_hook(use: Callable[[Any], Any]) -> None:
    def init_client(*_: Any) -> Any:
        return {"n": torch.zeros((), dtype=torch.float64)}

    def finish(results: Any, view: Any) -> Any:
        return {"n": 10 * view.private["n"] + use(view.clock.round)}

    setting = setting_of("fedavg", model="mlpnet(hidden=8)")
    part = Part("counter", init_client=init_client, finish=finish)
    setting = replace(setting, method=chain(average(), part))
    loop = states(play(setting, LoopEngine(setting.work)))
    for how in ("flat", "trace"):
        assert_equal(states(play(setting, CohortEngine(setting.work, compile=how))), loop)


@pytest.mark.parametrize("ask", [bool, int, float, str, hash, repr, lambda u: u in {1}, lambda u: [1, 2][u]])
def test_value_is_refused(ask: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        ask(TracedNumber(torch.tensor(1.0)))
