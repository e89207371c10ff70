"""Presets: without one a method is its signature; ``paper`` gives what the paper states, typed in by hand."""

from __future__ import annotations

import inspect

import pytest

from idiolect import UserError, methods
from idiolect.methods.catalogue import METHODS
from idiolect.methods.method_text import beyond_defaults, resolved

PLAIN_STEPS = {"lr_scale": 1.0, "clip_norm": None, "control_rate": "population"}
CODE_STEPS = {**PLAIN_STEPS, "control_rate": "cohort"}
INHERITED = {"momentum": 0.9, "schedule": "mu_a", "momentum_max": 1.0}
TWO_STAGES = {"alpha": 0.9, "rule": "paper", "min_count": 1, "transfer": "kd", "transfer_weight": 0.01}
TWO_STAGES |= {"temperature": 4.0, "kd_form": "kl", **INHERITED, "shared_share": 0.5, "private_share": 0.5}
TWO_STAGES |= {"private_lr_scale": 1.0, "private_min_steps": 0}
CODE = {"kd_form": "teacher_only", "momentum_max": 0.9, "hpm_init": "theta0", "hpm_statistics": "recompute"}
CODE |= {"shared_share": 1.0, "private_share": 0.1, "private_lr_scale": 0.2, "private_min_steps": 5}

OFFICIAL = {
    "fedprox": {"form": "mean_smooth_l1"},
    "feddf": {"steps": 300, "learning_rate": 1e-3, "weight_decay": 1e-6, "every": 2},
    "moon": {"previous_init": "theta0"},
    "ditto": {"form": "mean_smooth_l1"},
    "fedrs": {"rule": "freq_max"},
    "dittors": {"form": "mean_smooth_l1", "rule": "freq_max"},
    "scaffold": CODE_STEPS,
    "scars": {"rule": "uniform", **CODE_STEPS},
    "fedphp": {"kd_form": "teacher_only", "momentum_max": 0.9, "hpm_init": "theta0"},
    "map": {"rule": "uniform", **CODE},
    "scamap": {"rule": "uniform", **CODE, "private_share": 0.2, "private_lr_scale": 0.5, **CODE_STEPS},
    "superfed_mm": {"own_init": "client", "proximity_form": "norm"},
    "superfed_lm": {"own_init": "client", "proximity_form": "norm"},
    "fedcac": {"share": 0.5, "rounds": 100},
    "floco": {"endpoints": 10, "radius": 0.3, "phase_one": 0.5},
    "fedgen": {
        "weight": 10.0,
        "diversity": 1.0,
        "steps": 50,
        "learning_rate": 3e-4,
        "samples": 32,
        "noise": 32,
        "width": 256,
    },
    "cfl": {"mean_norm": 0.4, "client_norm": 1.6, "gamma": 0.0},
    "apple": {
        "models": None,
        "rate": 1e-3,
        "weight": 0.2,
        "share": 0.1,
        "schedule": "exponential",
        "core_lr_scale": 1.0,
    },
}

PAPER = {
    "fedprox": {"weight": 1.0, "form": "sq_half"},
    "fedmmd": {"weight": 0.1},
    "scaffold": {"step": 1.0, "control": "option_two", "momentum": 0.0, **PLAIN_STEPS},
    "feddf": {"steps": 10000, "learning_rate": 1e-3, "every": 1},
    "fedavgm": {"learning_rate": 1.0, "momentum": 0.9},
    "fedadagrad": {"tau": 1e-3},
    "fedadam": {"beta_one": 0.9, "beta_two": 0.99, "tau": 1e-3},
    "fedyogi": {"beta_one": 0.9, "beta_two": 0.99, "tau": 1e-3},
    "moon": {"weight": 5.0, "temperature": 0.5},
    "fedper": {"count": 2, "head_init": "random", "fine_tune_epochs": 0},
    "fedrep": {"head_epochs": 10, "body_epochs": 1},
    "pfedme": {
        "weight": 15,
        "inner_steps": 5,
        "inner_rate": 0.09,
        "outer_rate": 0.005,
        "beta": 1,
        "steps": 20,
    },
    "perfedavg_fo": {"inner_rate": 0.01, "outer_rate": 0.001, "adapt_steps": 1},
    "perfedavg_hf": {"inner_rate": 0.01, "outer_rate": 0.001, "adapt_steps": 1, "difference": 1e-3},
    "fedproto": {"weight": 1.0},
    "fedamp": {"weight": 1.0},
    "knn_per": {"count": 10, "scale": 1.0},
    "ifca": {"clusters": 4, "averaging": "model"},
    "fedkd": {"energy_start": 0.95, "energy_end": 0.98, "hidden_weight": 1.0},
    "pfedsim": {"generalisation": 0.5},
    "fedpac": {"weight": 1.0, "head_epochs": 1},
    "fedbabu": {"count": 1, "epochs": 5, "tuned": "all"},
    "fedala": {"count": 1, "share": 0.8, "rate": 1.0},
    "feddbe": {"weight": 50.0, "momentum": 1.0},
    "gpfl": {"weight": 0.01, "decay": 0.1, "valve_scale": 1.0},
    "fedcp": {"weight": 5.0},
    "fedntd": {"weight": 1.0, "temperature": 1.0},
    "fedem": {"components": 3},
    "ditto": {"weight": 1.0, "form": "sq_half"},
    "fedrod": {"gamma": 1.0, "prior": "additive"},
    "fedrs": {"alpha": 0.9, "rule": "paper", "min_count": 1},
    "fedphp": {"transfer": "mmd", "transfer_weight": 0.01, "kd_form": "kl", **INHERITED, "inference": "hpm"},
    "map": TWO_STAGES,
    "scars": {"alpha": 0.9, "rule": "paper", "min_count": 1, "momentum": 0.0, **PLAIN_STEPS},
    "scamap": TWO_STAGES | PLAIN_STEPS,
    "persfl": {
        "lambdas": [0.0, 0.25, 0.5, 0.75, 1.0],
        "temperatures": [1.0, 5.0, 25.0],
        "teacher": "optimal",
        "soft_loss": "kl",
    },
    "persfl_gd": {
        "lambdas": [0.0, 0.25, 0.5, 0.75, 1.0],
        "temperatures": [1.0, 5.0, 25.0],
        "teacher": "optimal",
    },
    "superfed_mm": {
        "orthogonality": 2.0,
        "proximity": 0.01,
        "phase_one": 0.4,
        "own_init": "shared",
        "proximity_form": "sq",
    },
    "superfed_lm": {
        "orthogonality": 2.0,
        "proximity": 0.01,
        "phase_one": 0.4,
        "own_init": "shared",
        "proximity_form": "sq",
    },
}


@pytest.mark.parametrize("name", methods.names())
def test_without_a_preset_a_method_is_its_signature(name):
    ((_, options),) = resolved(name)
    assert list(options) == list(inspect.signature(METHODS[name].make).parameters)
    assert beyond_defaults(name, options) == {}


@pytest.mark.parametrize("name", methods.names())
@pytest.mark.parametrize(("preset", "stated"), [("paper", PAPER), ("official", OFFICIAL)])
def test_preset_gives_what_the_paper_or_its_code_states(name, preset, stated):
    assert (preset in METHODS[name].presets) == (name in stated)
    if name in stated:
        assert set(METHODS[name].presets[preset]) == set(stated[name])
        ((_, options),) = resolved(f"{name}(preset={preset})")
        assert {key: options[key] for key in stated[name]} == stated[name]


@pytest.mark.parametrize("name", methods.names())
def test_every_preset_can_be_built_and_each_number_is_overruled_by_the_text(name):
    for preset, values in METHODS[name].presets.items():
        assert methods.method(f"{name}(preset={preset})").parts
        for key, value in values.items():
            if isinstance(value, int | float):
                ((_, options),) = resolved(f"{name}(preset={preset}, {key}={value + 1})")
                assert options[key] == value + 1


def test_preset_that_is_no_word_is_refused():
    with pytest.raises(UserError, match="fedprox has no preset"):
        methods.method("fedprox(preset=[1])")


def test_method_whose_paper_states_nothing_has_no_preset():
    with pytest.raises(UserError, match="fedavg has no preset 'paper'; known: it has none"):
        methods.method("fedavg(preset=paper)")
    with pytest.raises(UserError, match="pfedme has no preset 'original'; known: paper"):
        methods.method("pfedme(preset=original)")


# ---- texts that mean the same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("map", "map(alpha=0.9)"),
        ("map", "MAP( transfer = 'kd' )"),
        ("fedprox(weight=1)", "fedprox(weight=1.0, form=sq_half)"),
        ("persfl", "persfl(lambdas=[0, 0.25, 0.5, 0.75, 1])"),
        ("fedrs(preset=official)", "fedrs(rule=freq_max)"),
        ("fedavg + fine_tune(epochs=2)", "FedAvg()+fine_tune(epochs=2.0, lr_scale=1)"),
        ("scamap", "scamap(step=1)"),
    ],
)
def test_different_spellings_resolve_to_the_same(one, other):
    assert resolved(one) == resolved(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("map", "map(alpha=0.5)"),
        ("fedavg + proximal + fine_tune", "fedavg + fine_tune + proximal"),
        ("fedper(count=1)", "lg_fedavg(count=1)"),
        ("fedavgm", "fedavgm(nesterov=True)"),
    ],
)
def test_different_methods_resolve_to_others(one, other):
    assert resolved(one) != resolved(other)
