"""Presets: without one a method is its signature; ``paper`` gives what the paper states, typed in by hand."""

from __future__ import annotations

import inspect

import pytest

from idiolect import UserError, methods
from idiolect.methods.catalogue import METHODS
from idiolect.methods.resolution import beyond_defaults, resolved

PAPER = {
    "fedprox": {"weight": 1.0},
    "fedmmd": {"weight": 0.1},
    "scaffold": {"step": 1.0, "control": "option_two", "momentum": 0.0, "lr_scale": 1.0, "clip_norm": None},
    "feddf": {"steps": 10000, "learning_rate": 1e-3},
    "fedavgm": {"learning_rate": 1.0, "momentum": 0.9},
    "fedadagrad": {"tau": 1e-3},
    "fedadam": {"beta_one": 0.9, "beta_two": 0.99, "tau": 1e-3},
    "fedyogi": {"beta_one": 0.9, "beta_two": 0.99, "tau": 1e-3},
    "moon": {"weight": 5.0, "temperature": 0.5},
    "fedper": {"count": 2},
    "fedrep": {"head_epochs": 10, "body_epochs": 1},
    "pfedme": {
        "weight": 15,
        "inner_steps": 5,
        "inner_rate": 0.09,
        "outer_rate": 0.005,
        "beta": 1,
        "steps": 20,
    },
    "perfedavg_fo": {"inner_rate": 0.01, "outer_rate": 0.001},
    "perfedavg_hf": {"inner_rate": 0.01, "outer_rate": 0.001, "difference": 1e-3},
    "fedproto": {"weight": 1.0},
    "ditto": {"weight": 1.0, "form": "sq_half"},
    "fedrod": {"gamma": 1.0},
    "fedrs": {"alpha": 0.9, "rule": "paper"},
    "fedphp": {"transfer": "mmd", "transfer_weight": 0.01, "momentum": 0.9, "momentum_max": 1.0},
    "map": {
        "alpha": 0.9,
        "transfer": "kd",
        "transfer_weight": 0.01,
        "temperature": 4.0,
        "private_share": 0.5,
    },
    "scamap": {"alpha": 0.9, "transfer": "kd", "transfer_weight": 0.01, "temperature": 4.0},
    "persfl": {"lambdas": [0.0, 0.25, 0.5, 0.75, 1.0], "temperatures": [1.0, 5.0, 25.0], "soft_loss": "kl"},
    "persfl_gd": {"lambdas": [0.0, 0.25, 0.5, 0.75, 1.0], "temperatures": [1.0, 5.0, 25.0]},
    "superfed_mm": {"orthogonality": 2.0, "proximity": 0.01, "phase_one": 0.4, "own_init": "shared"},
    "superfed_lm": {"orthogonality": 2.0, "proximity": 0.01, "phase_one": 0.4, "own_init": "shared"},
}


@pytest.mark.parametrize("name", methods.names())
def test_without_a_preset_a_method_is_its_signature(name):
    ((_, options),) = resolved(name)
    assert list(options) == list(inspect.signature(METHODS[name].make).parameters)
    assert beyond_defaults(name, options) == {}


@pytest.mark.parametrize("name", methods.names())
def test_preset_paper_gives_what_the_paper_states(name):
    assert ("paper" in METHODS[name].presets) == (name in PAPER)
    if name in PAPER:
        ((_, options),) = resolved(f"{name}(preset=paper)")
        assert {key: options[key] for key in PAPER[name]} == PAPER[name]


@pytest.mark.parametrize("name", methods.names())
def test_every_preset_can_be_built_and_is_overruled_by_the_text(name):
    for preset, values in METHODS[name].presets.items():
        assert methods.method(f"{name}(preset={preset})").parts
        first, value = next(iter(values.items()))
        other = value + 1 if isinstance(value, int | float) else value
        ((_, options),) = resolved(f"{name}(preset={preset}, {first}={other!r})")
        assert options[first] == (list(other) if isinstance(other, tuple) else other)


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
