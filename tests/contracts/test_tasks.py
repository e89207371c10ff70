"""Tasks without classes: every method that needs none runs alike on all engines, and the others refuse by name."""

from __future__ import annotations

import pytest

from idiolect.errors import UserError
from idiolect.methods import method as read_method
from idiolect.methods import names, without_classes

from .made_tasks import setting_of
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
    "feddf": "ensemble_distillation",
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
