"""Padding changes nothing: neither rows that are not there nor steps that a client does not make."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from idiolect.core import UPLOAD, Batch, Context
from idiolect.engines.network_task import make_task
from idiolect.models import build

from .midway import answers, midway
from .sameness import assert_equal, assert_exact


def test_padding_changes_nothing(method: str) -> None:
    at = midway(method)
    expected = {call: dict(got) for call, got in answers(method, "loop").found.items() if call != "valid"}
    expected["round"] = {c: outcome._replace(before={}, after={}) for c, outcome in expected["round"].items()}
    assert_equal(at.ask_padded(), expected)


def test_step_without_rows_changes_nothing(method: str) -> None:
    at = midway(method)
    program, work, client = at.program, at.setting.work, 0
    plan = program.method.plan(program.scene, program.clock)
    context = Context(at.sent, at.privates[client], work.facts(client), {})
    previous, steps = None, 0
    for stage in (*plan.before, *plan.after):
        before = state = program.begin(stage, context, previous)
        for batches, _ in work.single_feed(program, stage, client):
            nothing = tuple(batch._replace(mask=torch.zeros_like(batch.mask)) for batch in batches)
            still = torch.tensor(False)
            if stage.measure is None:
                state = program.step(stage, context, state, nothing, still)
            else:
                state = program.measure(stage, context, state, nothing[0], still)
            steps += 1
        assert_exact(state, before)
        previous = program.end(state)
        context = context._replace(results={**context.results, stage.name: previous, UPLOAD: previous})
    assert steps > 0


@pytest.mark.parametrize("name", ["lenet_bn", "vgg8_bn"])
def test_batch_without_rows_leaves_statistics_alone(name: str) -> None:
    net = build(name, (3, 32, 32), 4)
    task = make_task(net)
    params, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    x, none = torch.randn(5, 3, 32, 32), torch.zeros(5)
    rows: dict[str, Any] = {"y": torch.zeros(5).long(), "key": torch.arange(5), "draws": {}}
    out, after = task.forward(params, buffers, Batch(x, mask=none, **rows), True)
    assert_exact(after, buffers)
    assert torch.isfinite(out.logits).all()
    _, moved = task.forward(params, buffers, Batch(x, mask=none + 1, **rows), True)
    assert all(not torch.equal(moved[key], buffers[key]) for key in buffers)
