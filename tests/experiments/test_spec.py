"""The frozen spec: what it refuses, what it promises of the learning rate, what its hash covers."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Experiment, prepare, with_settings
from idiolect.experiments.identity import hash_of
from idiolect.experiments.manifest import describe_run

LEAST = {
    "clients": 0,
    "newcomers": 0,
    "rounds": 1,
    "local_epochs": 0,
    "batch_size": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "min_local_steps": 0,
    "warmup_rounds": 0,
    "evaluate_every": 1,
}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_number_below_its_least_is_refused_by_name(name, least):
    assert getattr(Experiment(**{name: least}), name) == least
    with pytest.raises(UserError, match=f"{name} must be at least {least}, got {least - 1}"):
        Experiment(**{name: least - 1})


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("participation_rate", 0),
        ("participation_rate", 1.1),
        ("momentum", -0.1),
        ("momentum", 1.1),
        ("clip_norm", 0),
        ("weighting", "size"),
        ("buffers", "shared"),
        ("observe", "never"),
        ("calibration", "bins"),
        ("precision", "bfloat16"),
        ("seed", -1),
        ("lr_decay", 0),
        ("test", 0),
    ],
)
def test_value_outside_its_range_is_refused_with_the_range(name, bad):
    with pytest.raises(UserError, match=f"{name} must be (in|at least|one of|above) .*got {bad!r}"):
        Experiment(**{name: bad})


def test_nan_is_refused():
    with pytest.raises(UserError, match="learning_rate must be a finite number at least 0, got nan"):
        Experiment(learning_rate=float("nan"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 1.0),
        ("rounds", "3"),
        ("rounds", True),
        ("rounds", None),
        ("learning_rate", "fast"),
        ("learning_rate", False),
        ("learning_rate", None),
        ("weighting", 1),
        ("clip_norm", "none"),
        ("seed", 0.5),
    ],
)
def test_setting_of_another_kind_is_refused_by_name(key, value):
    with pytest.raises(UserError, match=f"setting {key} must be .*, got {value!r}"):
        with_settings(Experiment(), {key: value})


def test_setting_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(UserError, match=r"no setting 'rouns'.*rounds.*seed"):
        with_settings(Experiment(), {"rouns": 3})


def test_settings_replace_fields_and_nothing_else():
    before = Experiment()
    after = with_settings(
        before, {"rounds": 3, "learning_rate": 1, "clip_norm": None, "weighting": "samples"}
    )
    changed = {"rounds": 3, "learning_rate": 1, "weighting": "samples"}
    assert dataclasses.asdict(after) == dataclasses.asdict(before) | changed


# ---- learning rate


@pytest.mark.parametrize("round", range(8))
def test_learning_rate_warms_up_linearly(round):
    rate = Experiment(learning_rate=0.4, warmup_rounds=5).learning_rate_at(round)
    assert rate == pytest.approx(0.4 * min((round + 1) / 5, 1), rel=1e-12)


def test_learning_rate_decays_by_a_factor_each_round():
    experiment = Experiment(learning_rate=0.5, lr_decay=0.9)
    assert [experiment.learning_rate_at(r) for r in (0, 1, 10)] == pytest.approx([0.5, 0.45, 0.5 * 0.9**10])


def test_learning_rate_is_constant_by_default():
    experiment = Experiment(learning_rate=0.5)
    assert {experiment.learning_rate_at(r) for r in range(50)} == {0.5}


def test_warm_up_and_decay_multiply():
    experiment = Experiment(learning_rate=1.0, warmup_rounds=4, lr_decay=0.5)
    assert [experiment.learning_rate_at(r) for r in range(5)] == [0.25, 0.25, 0.1875, 0.125, 0.0625]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("linear(final=0.5)", [0.5, 1.0, 1.0, 0.875, 0.75, 0.625]),
        ("cosine(final=0.2)", [0.5, 1.0, 1.0, 0.6 + 0.4 * 0.5**0.5, 0.6, 0.6 - 0.4 * 0.5**0.5]),
        ("step(every=2, factor=0.5)", [0.5, 1.0, 1.0, 1.0, 0.5, 0.5]),
    ],
)
def test_schedule_starts_after_the_warm_up_and_decay_is_a_further_factor(schedule, rates):
    experiment = Experiment(learning_rate=1.0, warmup_rounds=2, rounds=6, schedule=schedule)
    assert [experiment.learning_rate_at(r) for r in range(6)] == pytest.approx(rates, rel=1e-12)
    decayed = replace(experiment, lr_decay=0.9)
    assert [decayed.learning_rate_at(r) for r in range(6)] == pytest.approx(
        [rate * 0.9**r for r, rate in enumerate(rates)], rel=1e-12
    )


def test_warm_up_longer_than_the_run_leaves_nothing_to_the_schedule():
    experiment = Experiment(learning_rate=1.0, warmup_rounds=10, rounds=2, schedule="linear")
    assert [experiment.learning_rate_at(r) for r in range(2)] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean cosine?"),
        ({"schedule": "step(each=3)"}, "schedule step has no option 'each'; known: every, factor"),
        ({"schedule": "step(every=0)"}, "every must be at least 1, got 0"),
        ({"schedule": "linear(final=-1)"}, "final must be in [0, 1], got -1"),
        ({"local_schedule": "step"}, "unknown local_schedule 'step'; known: constant, cosine, linear"),
        ({"optimiser": "adamx"}, "unknown optimiser 'adamx'; did you mean adam or adamw?"),
    ],
)
def test_unusable_schedule_or_optimiser_is_refused_at_once(settings, sentence):
    with pytest.raises(UserError) as refused:
        Experiment(**settings)
    assert str(refused.value) == sentence


# ---- hash

OTHER = {
    "optimiser": "adam",
    "schedule": "cosine",
    "local_schedule": "linear",
    "method": "fedper",
    "dataset": "mnist",
    "partition": "iid",
    "model": "mlpnet",
    "initialisation": "xavier",
    "clip_norm": 1.0,
    "weighting": "samples",
    "selection": "poisson",
    "buffers": "private",
    "observe": "always",
    "calibration": "per_batch",
    "metrics": "auroc",
    "precision": "float64",
    "augmentation": "crop_flip",
    "participation_rate": 0.123,
    "momentum": 0.5,
    "pool": "train_and_test",
    "client_test": "official",
    "data_seed": 3,
    "under": ("dropout",),
}
WITH = {"client_test": {"test": 0.0}}  # what a value cannot do without


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Experiment)])
def test_hash_changes_with_every_field_but_the_seed(name):
    before = Experiment()
    other = OTHER[name] if name in OTHER else getattr(before, name) + 1
    after = replace(before, **{name: other}, **WITH.get(name, {}))
    assert after != before
    assert (hash_of(after) == hash_of(before)) == (name == "seed")


def test_hash_is_the_same_whatever_the_engine(tiny):
    described = []
    for engine in ("loop", "cohort"):
        where = EngineChoice(engine, "cpu", "as asked")
        described.append(describe_run(prepare(tiny, where), where))
    assert [d["engine"]["engine"] for d in described] == ["loop", "cohort"]
    assert described[0]["spec_hash"] == described[1]["spec_hash"] == hash_of(tiny)
