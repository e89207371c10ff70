"""Tasks without classes: every method that needs none runs alike on all engines, and the others refuse by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from idiolect.core import Context, Model, broadcast
from idiolect.core.trees import tree_map
from idiolect.engines import CohortEngine, EngineChoice
from idiolect.errors import UserError
from idiolect.experiments.setting import prepare
from idiolect.methods import method as read_method
from idiolect.methods import names, without_classes
from idiolect.parts.squared_gradients import squared_gradients

from .made_tasks import made, setting_of
from .sameness import assert_equal, assert_exact, states
from .tiny import make_engine, play

TASKS = ("regression", "multilabel")
SERVING = (
    *without_classes(),
    "fedprox + inherited_model(transfer=l2)",
    "fedrod(gamma=0)",
    "fedphp(transfer=prox)",
)
SHORT = ("fedavg", "scaffold", "fedcurv", "perfedavg_hf", "ditto")  # the others in the long suite with labels
CASES = [
    *((name, "regression") for name in SERVING),
    *(pytest.param(name, "multilabel", marks=[] if name in SHORT else pytest.mark.slow) for name in SERVING),
]
NEEDING = {
    "fedrs": "restricted_softmax",
    "dittors": "restricted_softmax",
    "scars": "restricted_softmax",
    "map": "restricted_softmax",
    "scamap": "restricted_softmax",
    "fedproto": "class_prototypes",
    "fedrod": "personal_head",
    "fedaws": "spread_out",
    "feddml": "mutual_companion",
    "persfl": "optimal_teacher",
    "persfl_gd": "optimal_teacher",
    "fedas": "feature_alignment",
    "gpfl": "conditional_features",
    "fedgh": "global_header",
    "fedgen": "feature_generator",
    "fedkd": "adaptive_companion",
    "feddistill": "label_distillation",
    "fedlc": "calibrated_softmax",
    "fedntd": "not_true_distillation",
    "feddf": "ensemble_distillation",
    "fedem": "component_mixture",
    "knn_per": "nearest_neighbours",
    "fedpac": "class_prototypes",
}
BY_OPTION = {
    "fedphp(transfer=kd)": "inherited_teacher",
    "fedphp(inference=ensemble)": "inherited_teacher",
    "fedavg + inherited_model": "inherited_model",
    "fedavg + received_teacher(transfer=kd)": "received_teacher",
}


@pytest.mark.parametrize(("name", "task"), CASES)
def test_methods_without_classes_run_alike_on_loop_and_cohort(name: str, task: str) -> None:
    setting = setting_of(task, name)
    loop, cohort = (play(setting, make_engine(engine, setting)) for engine in ("loop", "cohort"))
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("task", TASKS)
def test_traced_lanes_of_a_gpu_equal_loop(task: str) -> None:
    """The steps that a GPU runs, here in plain PyTorch: batches of numbers [B, K] are copied into lanes."""
    setting = setting_of(task, "ditto")
    lanes = play(setting, CohortEngine(setting.work, compile="trace"))
    assert_equal(states(lanes), states(play(setting, make_engine("loop", setting))))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA GPU here")
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedcurv"])
def test_gpu_equals_loop(name: str, task: str) -> None:
    setting = setting_of(task, name)
    placed = prepare(setting.experiment, EngineChoice("cohort", "cuda", "as asked"), dataset=made(task))
    found = states(play(placed, CohortEngine(placed.work)))
    assert_equal(
        tree_map(lambda leaf: leaf.cpu(), found), states(play(setting, make_engine("loop", setting)))
    )


@pytest.mark.parametrize("task", TASKS)
def test_squared_gradients_are_those_of_the_loss_of_each_row(task: str) -> None:
    setting = setting_of(task, "fedcurv")
    program, work = setting.program(0), setting.work
    params = {name: p.clone().requires_grad_() for name, p in setting.initial(0).params.items()}
    rows = np.arange(5)
    assert work.y.dtype == work.like.dtype == torch.float64
    batch = work.single(rows, np.array([True] * 4 + [False]), rows, {})
    context = Context(
        broadcast(setting.method, setting.first_server()), setting.first_private(0), work.facts(0), {}
    )
    measure, model = squared_gradients(), Model(setting.initial(0).params, {})
    view = program.view(None, context)
    found = measure.add(measure.init(model, view), model, batch, view)["sum"]
    wanted = {name: torch.zeros_like(p) for name, p in params.items()}
    for row in range(4):
        one = work.single(rows[row : row + 1], np.array([True]), rows[row : row + 1], {})
        out, _ = setting.task.forward(params, {}, one, False)
        gradients = torch.autograd.grad(_loss_by_hand(task, out.logits, one.y), list(params.values()))
        for name, gradient in zip(params, gradients, strict=True):
            wanted[name] += gradient**2
    assert_equal(found, wanted)


def _loss_by_hand(task: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if task == "regression":
        return (outputs - targets).pow(2).mean()
    right = torch.where(targets > 0, outputs, -outputs)
    return -torch.sigmoid(right).log().mean()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_pool_is_exactly_loop(task: str) -> None:
    setting = setting_of(task, "ditto")
    loop, pool = (play(setting, make_engine(engine, setting)) for engine in ("loop", "pool"))
    assert_exact(states(pool), states(loop))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("name", "part"), (NEEDING | BY_OPTION).items())
def test_methods_that_need_classes_refuse_by_name(name: str, part: str, task: str) -> None:
    public = {"public": 1} if name == "feddf" else {}
    with pytest.raises(UserError) as refusal:
        setting_of(task, name, **public)
    said = str(refusal.value)
    assert said.startswith(f"{read_method(name).name} cannot be used for {task}, because its part {part}")
    advice = said.partition("; ")[2]
    assert "fedavg" in advice and "ditto" in advice and "fedrs" not in advice


def test_every_method_serves_or_refuses() -> None:
    assert set(without_classes()) | set(NEEDING) == set(names())
    assert not set(without_classes()) & set(NEEDING)
