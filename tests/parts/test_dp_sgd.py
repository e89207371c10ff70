"""DP-SGD against a direct computation: one backward pass for each example, from the paper's algorithm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import Batch, Facts, Flats, Part, View, chain
from idiolect.core.noise import SeededNoise
from idiolect.engines import LoopEngine
from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.parts import dp_sgd
from idiolect.testing import tiny_run, tiny_setting

SMALL = {"rounds": 1, "model": "mlpnet(hidden=8)", "weight_decay": 1e-3}


def examples_of(setting, program, stage, client: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows and the noise of each step, read from the plan as data."""
    plan, draws = setting.work.plan(program, stage, client)
    for index, mask, noise in zip(plan.index, plan.mask, draws["dp_sgd"], strict=True):
        yield index[mask], noise


@pytest.mark.parametrize("proximal_weight", [0.0, 0.5])
def test_steps_are_those_of_a_loop_over_examples(proximal_weight: float) -> None:
    clip, noise = 3.0, 0.7
    setting = tiny_setting(f"fedprox(weight={proximal_weight}) + dp_sgd(clip={clip}, noise={noise})", **SMALL)
    program, client = setting.program(0), 3
    (stage,) = program.method.plan(program.scene, program.clock).before
    server = setting.first_server()
    (outcome,) = LoopEngine(setting.work).round(
        program, server, {client: setting.first_private(client)}, False
    )
    uploaded = outcome.messages["average"][0]

    names = list(server["params"])
    start = [server["params"][name].clone() for name in names]
    weights = [p.clone() for p in start]
    velocity = [torch.zeros_like(p) for p in start]
    samples = len(setting.federation.clients[client].train)

    def gradient(row: int) -> list[Tensor]:
        leaves = [p.clone().requires_grad_() for p in weights]
        tensors = dict(zip(names, leaves, strict=True))
        weight_names = [name for name in names if name.endswith("weight")]
        h = setting.work.x[row].reshape(1, -1)
        for place, name in enumerate(weight_names):
            h = F.linear(
                F.relu(h) if place else h, tensors[name], tensors.get(name.replace("weight", "bias"))
            )
        loss = F.cross_entropy(h, setting.work.y[row][None])
        loss = loss + proximal_weight / 2 * sum(
            ((p - q) ** 2).sum() for p, q in zip(leaves, start, strict=True)
        )
        loss.backward()
        return [p.grad for p in leaves]

    clipped = []
    for rows, drawn in examples_of(setting, program, stage, client):
        total = [torch.zeros_like(p) for p in weights]
        for row in rows:
            grads = gradient(row)
            norm = float(torch.cat([g.reshape(-1) for g in grads]).norm())
            clipped.append(norm > clip)
            for t, g in zip(total, grads, strict=True):
                t += g * min(1.0, clip / norm)
        spread = torch.from_numpy(drawn) * noise * clip
        parts = spread.split([p.numel() for p in weights])
        for place, (t, part) in enumerate(zip(total, parts, strict=True)):
            g = (t + part.reshape(t.shape)) / min(
                8, samples
            )  # the expected size of a batch, not that of this one
            velocity[place] = 0.9 * velocity[place] + g + 1e-3 * weights[place]
            weights[place] = weights[place] - program.clock.learning_rate * velocity[place]
    assert 5 < sum(clipped) < len(clipped) - 5
    for name, expected in zip(names, weights, strict=True):
        torch.testing.assert_close(uploaded[name], expected, rtol=1e-9, atol=1e-12)


def test_noise_has_the_variance_of_the_algorithm_and_padding_adds_nothing() -> None:
    part, width = dp_sgd(clip=0.5, noise=3.0), 30_000
    setting = tiny_setting("fedavg", **SMALL)
    draws = {"dp_sgd": torch.from_numpy(SeededNoise(0).normal((width,), "test"))}
    none = torch.zeros(4, dtype=torch.float64)
    batch = Batch(none[:, None], none.long(), none, none.long(), draws)  # four rows of padding

    class View:
        facts, scene = Facts(none, torch.tensor(46.0, dtype=torch.float64), none), setting.experiment.scene

    found = part.reduce({"model": {"w": torch.full((4, width), 7.0, dtype=torch.float64)}}, batch, View())[
        "model"
    ]["w"]
    assert found.var().item() == pytest.approx((3.0 * 0.5 / 8) ** 2, rel=5 * np.sqrt(2 / width))
    torch.testing.assert_close(8 * found, 1.5 * draws["dp_sgd"], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("samples", "expected"), [(46.0, 8), (5.0, 5)])
def test_a_step_divides_by_the_expected_size_of_its_batch(samples: float, expected: int) -> None:
    """A client with fewer examples than a batch takes all of them in every step."""
    part, setting = dp_sgd(clip=100.0, noise=0.0), tiny_setting("fedavg", **SMALL)
    assert setting.experiment.scene.batch_size == 8
    rows = torch.zeros(3, dtype=torch.float64)
    draws = {"dp_sgd": torch.zeros(2, dtype=torch.float64)}
    batch = Batch(rows[:, None], rows.long(), torch.ones_like(rows), rows.long(), draws)

    class View:
        facts = Facts(rows, torch.tensor(samples, dtype=torch.float64), rows)
        scene = setting.experiment.scene

    grads = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    found = part.reduce({"model": {"w": grads}}, batch, View())["model"]["w"]
    assert found.tolist() == pytest.approx([9 / expected, 12 / expected], rel=1e-12)


def test_batches_take_each_example_by_itself_and_anew_in_every_stage() -> None:
    setting = tiny_setting("fedrep + dp_sgd", **SMALL, batch_size=4)
    program, client = setting.program(0), 3
    stages = program.method.plan(program.scene, program.clock).before
    assert len(stages) == 2
    plans = [setting.work.plan(program, stage, client)[0] for stage in stages]
    assert not np.array_equal(plans[0].mask[0], plans[1].mask[0])
    sizes = [count for plan in plans for count in plan.mask.sum(1)]
    assert len(set(sizes)) > 2


@pytest.mark.parametrize("name", ["ditto", "map", "persfl(epochs=1)"])
def test_no_upload_depends_on_what_is_kept_apart(name: str) -> None:
    """Private state that is trained without noise is replaced by numbers that spread to all they touch."""
    setting = tiny_setting(f"{name} + dp_sgd", **SMALL)
    program, client = setting.program(0), 3
    apart = {part.name for part in setting.method.parts if part.apart}
    first = setting.first_private(client)
    assert apart & first["slots"].keys()

    def upload(slots: dict) -> dict:
        private = {**first, "slots": slots}
        server = setting.first_server()
        (outcome,) = LoopEngine(setting.work).round(program, server, {client: private}, False)
        return outcome.messages

    def poisoned(tree):
        return (
            {k: poisoned(v) for k, v in tree.items()}
            if isinstance(tree, dict)
            else torch.full_like(tree, torch.nan)
        )

    spoilt = {n: poisoned(slot) if n in apart else slot for n, slot in first["slots"].items()}
    plain, found = upload(first["slots"]), upload(spoilt)
    assert plain.keys() == found.keys() == {"average"}
    for tensor, leaf in plain["average"][0].items():
        assert torch.equal(leaf, found["average"][0][tensor])


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        ("fedavg + dp_sgd", {"model": "lenet_bn"}, r"batch normalisation \(units"),
        ("fedrod + dp_sgd", {}, "personal_head trains something of its own in the same steps"),
        ("average + component_mixture + dp_sgd", {}, "component_mixture trains something of its own"),
        ("average + global_header + dp_sgd", {}, "global_header measures the examples without noise"),
        (
            "fedala + dp_sgd",
            {},
            "adaptive_aggregation trains without noise before the upload, in its stage 'aggregation'",
        ),
    ],
)
def test_what_the_noise_does_not_cover_is_refused_by_name(text: str, settings: dict, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        tiny_run(text, **(SMALL | settings))


def test_part_that_trains_more_without_saying_so_is_refused_by_its_tree() -> None:
    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return {**params, "mine": {"weight": view.facts.samples}}, {**buffers, "mine": {}}

    with pytest.raises(UserError, match="mine is trained in the same steps"):
        tiny_run(chain(method("fedavg"), Part("quiet", start=start), dp_sgd()), **SMALL)


@pytest.mark.parametrize("name", ["scaffold", "fedproto", "fedas", "fedcurv", "perfedavg_fo"])
def test_methods_that_send_more_or_step_otherwise_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot be combined"):
        method(f"{name} + dp_sgd")
