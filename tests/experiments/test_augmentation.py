"""Augmentation acts on what is trained on, for every model of a step, and on nothing that is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from idiolect.core import Batch, Context, Stage, broadcast
from idiolect.core.measures import validation
from idiolect.data import Dataset
from idiolect.engines import EngineChoice, LoopEngine, choose_engine, make_task
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.evaluation import evaluate_group
from idiolect.errors import UserError
from idiolect.experiments import Experiment, Simulation, prepare
from idiolect.models import build, crop_and_flip

MEAN, STD = (0.4, 0.5), (0.2, 0.25)


def images() -> Dataset:
    """Bars whose place is the class, so that it matters whether they are moved; four clients."""
    random = np.random.default_rng(0)
    owners = np.repeat(np.arange(4), (14, 9, 20, 12))
    labels = random.integers(3, size=len(owners) + 10)
    x = random.integers(60, size=(len(labels), 2, 16, 16)).astype(np.uint8)
    for row, label in enumerate(labels):
        x[row, :, 2 + 3 * label : 4 + 3 * label] = 220
    n = len(owners)
    return Dataset("bars", x[:n], labels[:n], x[n:], labels[n:], 3, MEAN, STD, {}, owners)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setattr("idiolect.experiments.setting._dataset", lambda *_: images())
    return Experiment(
        dataset="bars",
        partition="by_id",
        clients=4,
        model="lenet_bn",
        rounds=2,
        participation_rate=1.0,
        local_epochs=1,
        batch_size=4,
        learning_rate=0.05,
        precision="float64",
        augmentation="crop_flip",
        evaluate_every=1,
    )


def play(experiment: Experiment, engine: str) -> Simulation:
    setting = prepare(experiment, EngineChoice(engine, "cpu", "as asked"))
    simulation = Simulation.start(
        setting, choose_engine(EngineChoice(engine, "cpu", "as asked"), setting.work)
    )
    try:
        for _ in range(experiment.rounds):
            simulation.advance()
        simulation.finish()
    finally:
        simulation.engine.close()
    return simulation


def close(a, b, tolerance=1e-9):
    for name, value in a.items():
        scale = max(float(b[name].abs().max()), 1e-3)
        torch.testing.assert_close(value, b[name], rtol=0, atol=tolerance * scale, msg=name)


@pytest.mark.parametrize("method", ["fedavg", "fedphp(transfer=kd)", "perfedavg_hf"])
def test_engines_agree_on_augmented_training(bars, method):
    loop, cohort = (play(replace(bars, method=method), engine) for engine in ("loop", "cohort"))
    close(cohort.server["params"], loop.server["params"])
    close(cohort.server["buffers"], loop.server["buffers"])
    plain = play(replace(bars, method=method, augmentation="none"), "loop")
    assert any(not torch.equal(plain.server["params"][n], p) for n, p in loop.server["params"].items())


def test_step_trains_on_the_views_of_its_keys(bars):
    """One step on a batch is one plain step on the batch that crop_and_flip makes of it, filled with black."""
    setting = prepare(bars, EngineChoice("loop", "cpu", "as asked"))
    plain = prepare(replace(bars, augmentation="none"), EngineChoice("loop", "cpu", "as asked"))
    program, stage = setting.program(0), setting.method.plan(bars.scene, setting.program(0).clock).before[0]
    sent = broadcast(setting.method, setting.first_server())
    context = Context(sent, setting.first_private(0), setting.work.facts(0), {})
    (batches, _), *_ = setting.work.single_feed(program, stage, 0)
    moved = crop_and_flip(batches[0].x, batches[0].key, fill=[-m / s for m, s in zip(MEAN, STD, strict=True)])
    assert not torch.equal(moved, batches[0].x)
    begin = program.begin(stage, context, None)
    found = program.step(stage, context, begin, batches)
    expected = plain.program(0).step(stage, context, begin, (batches[0]._replace(x=moved),))
    for name, value in expected.params["model"].items():
        assert torch.equal(found.params["model"][name], value), name


def test_teacher_and_student_of_a_step_see_one_view(bars):
    experiment = replace(bars, method="fedphp(transfer=kd, transfer_weight=1.0)", model="lenet_map")
    setting = prepare(experiment, EngineChoice("loop", "cpu", "as asked"))
    seen = []
    forward = setting.task.forward

    def recording(params, buffers, batch, train):
        seen.append((train if isinstance(train, bool) else any(train), batch.x.clone()))
        return forward(params, buffers, batch, train)

    setting = replace(setting, task=setting.task._replace(forward=recording))
    sent, work = broadcast(setting.method, setting.first_server()), setting.work
    LoopEngine(work).round(setting.program(1), sent, {0: setting.first_private(0)}, False)
    students = [x for train, x in seen if train]
    teachers = [x for train, x in seen if not train]
    assert len(students) == len(teachers) > 1
    assert all(torch.equal(a, b) for a, b in zip(students, teachers, strict=True))
    examples = {row.numpy().tobytes() for row in work.x}
    assert any(row.numpy().tobytes() not in examples for row in students[0])


def test_evaluation_and_measuring_see_the_examples_as_they_are(bars):
    """SuPerFed recalibrates its mixtures on the training split and is scored on the test split."""
    experiment = replace(bars, method="superfed_mm")
    found = []
    for augmentation in ("crop_flip", "none"):
        setting = prepare(
            replace(experiment, augmentation=augmentation), EngineChoice("loop", "cpu", "as asked")
        )
        sent = broadcast(setting.method, setting.first_server())
        private = {0: setting.first_private(0)}
        found += evaluate_group(setting.program(1), setting.work, SINGLE, sent, private, "test")
    assert found[0].keys() == found[1].keys() and len(found[0]) > 2
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_measuring_stage_sees_the_examples_as_they_are(bars):
    stage, ends = Stage(name="look", measure=validation()), []
    for augmentation in ("crop_flip", "none"):
        setting = prepare(replace(bars, augmentation=augmentation), EngineChoice("loop", "cpu", "as asked"))
        program, sent = setting.program(0), broadcast(setting.method, setting.first_server())
        context = Context(sent, setting.first_private(0), setting.work.facts(0), {})
        state = program.begin(stage, context, None)
        for batches, _ in setting.work.single_feed(program, stage, 0):
            state = program.measure(stage, context, state, batches[0])
        ends.append(state.measured)
    assert float(ends[0]["rows"]) > 1 and ends[0] == ends[1]


def test_task_without_augmentation_has_none():
    net = build("lenet_map", (1, 28, 28), 10)
    assert make_task(net).augment is None
    x, key = torch.randn(3, 1, 28, 28), torch.arange(3)
    batch = Batch(x, key, torch.ones(3), key, {})
    augmented = make_task(net, "crop_flip").augment(batch)
    assert torch.equal(augmented.x, crop_and_flip(x, key)) and augmented._replace(x=x) == batch


def test_unknown_augmentation_is_refused():
    with pytest.raises(UserError, match="augmentation must be one of none, crop_flip; got 'mixup'"):
        Experiment(augmentation="mixup")


def test_inputs_that_are_no_images_are_not_augmented(tiny):
    with pytest.raises(UserError, match=r"augmentation crop_flip moves images .* set augmentation to none"):
        prepare(replace(tiny, augmentation="crop_flip"), EngineChoice("loop", "cpu", "as asked"))
