"""Padding changes nothing: neither rows that are not there nor steps that a client does not make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from idiolect.core import UPLOAD, Batch, Context, Program, Stage
from idiolect.engines import CohortEngine, Workload
from idiolect.engines.client_packing import BATCHED
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.network_task import make_task
from idiolect.models import build

from .midway import answers, midway
from .sameness import assert_equal, assert_exact


def noisy_feed(
    work: Workload, program: Program, stage: Stage, clients: list[int]
) -> Iterator[tuple[tuple[Batch, ...], Tensor | None]]:
    """More padding than a cohort needs, full of noise: three rows a batch, and steps in between."""
    for batches, active in padded_feed(work, program, stage, clients):
        noisy = tuple(_with_noise(batch) for batch in batches)
        nothing = tuple(batch._replace(mask=torch.zeros_like(batch.mask)) for batch in noisy)
        nobody = torch.zeros(len(clients), dtype=torch.bool)
        yield from ((nothing, nobody), (noisy, active), (nothing, nobody))


def _with_noise(batch: Batch, rows: int = 3) -> Batch:
    random = torch.Generator().manual_seed(0)
    more = [batch.x.shape[0], rows]
    x = 10 * torch.randn(*more, *batch.x.shape[2:], generator=random, dtype=batch.x.dtype)
    y = torch.randint(4, more, generator=random)
    key = torch.randint(2**60, more, generator=random)
    joined = [torch.cat(pair, 1) for pair in ((batch.x, x), (batch.y, y), (batch.mask, x.new_zeros(more)))]
    return Batch(*joined, torch.cat([batch.key, key], 1), batch.draws)


def test_padding_changes_nothing(method: str) -> None:
    at = midway(method)
    expected = {call: dict(got) for call, got in answers(method, "loop").found.items() if call != "valid"}
    expected["round"] = {c: outcome._replace(before={}, after={}) for c, outcome in expected["round"].items()}
    engine = CohortEngine(at.setting.work)
    engine._packing = BATCHED._replace(feed=noisy_feed)  # on a CPU, nobody is padded in steps
    assert_equal(at.ask(engine, observe=False), expected)


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
