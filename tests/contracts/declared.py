"""What each method declares to keep and to send; a method that is not listed shares the whole model and no more.

With W parameters, U running statistics, d features and K classes a client sends and receives W + U scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from idiolect.core import Structure

__all__ = ["Declared", "declared", "kept_names", "secret_names"]


class Declared(NamedTuple):
    """Args:
    private: (unit, number of units) -> whether the unit never leaves the client.
    layers: a word in the names of layers that never leave the client.
    up, down: scalars beyond the shared model, of (W, structure).
    models: whole models with their statistics that travel each way; ``models_up``: those that travel up, if others.
    names: tensors sent up that are not named after the model's.
    revealed: the layers that the client keeps are in its message all the same.
    wire: scalars of one upload that travel beyond the shared model, of (classes the client holds, structure); None is
        all of them.
    at_most: what travels is bounded by this, and less where it is of low rank.
    """

    private: Callable[[int, int], bool] = lambda unit, units: False
    layers: str | None = None
    up: Callable[[int, Structure], int] = lambda parameters, structure: 0
    down: Callable[[int, Structure], int] = lambda parameters, structure: 0
    models: int = 1
    models_up: int | None = None
    names: frozenset[str] = frozenset()
    revealed: bool = False
    wire: Callable[[int, Structure], int] | None = None
    at_most: bool = False


def _last(count: int) -> Callable[[int, int], bool]:
    return lambda unit, units: unit >= units - count


def _head(structure: Structure) -> int:
    """A linear layer from features to classes."""
    return structure.n_classes * (structure.n_features + 1)


def _valve(structure: Structure) -> int:
    """An embedding of each class, and two linear layers from features to features with a normalisation each."""
    width = structure.n_features
    return structure.n_classes * width + 2 * (width**2 + 3 * width)


def _matrices(structure: Structure) -> int:
    """Convolutions and linear layers, whose ranks go with an update."""
    return sum(name.endswith(("convolution.weight", "linear.weight")) for name in structure.params)


_VARIATES = Declared(up=lambda w, _: w, down=lambda w, _: w)
_DECLARED = {
    "local": Declared(private=lambda unit, units: True),
    "fedper": Declared(private=_last(1)),
    "fedper(count=2, fine_tune_epochs=1)": Declared(private=_last(2)),
    "fedrep": Declared(private=_last(1)),
    "fedbabu": Declared(private=_last(1)),
    "fedas": Declared(private=_last(1)),
    "fedbn": Declared(layers="normalisation"),
    "lg_fedavg": Declared(private=lambda unit, units: unit < units - 1),
    "scaffold": _VARIATES,
    "scars": _VARIATES,
    "scamap": _VARIATES,
    "fedcurv": Declared(up=lambda w, _: 2 * w, down=lambda w, _: 2 * w),
    "fednova": Declared(up=lambda w, _: 1, names=frozenset({"norm"})),
    "fedfu": Declared(
        up=lambda w, s: s.n_features, down=lambda w, s: s.n_features, names=frozenset({"fusion"})
    ),
    "feddbe": Declared(
        up=lambda w, s: s.n_features, down=lambda w, s: s.n_features + 1, names=frozenset({"mean"})
    ),
    "fedcp": Declared(
        up=lambda w, s: 2 * (s.n_features**2 + 3 * s.n_features),
        down=lambda w, s: 2 * (s.n_features**2 + 3 * s.n_features),
        names=frozenset(f"{m}.{n}" for m in ("shared", "own") for n in ("weight", "bias", "scale", "shift")),
    ),
    "gpfl": Declared(
        private=_last(1),
        up=lambda w, s: _valve(s),
        down=lambda w, s: _valve(s),
        names=frozenset({"classes"})
        | {f"{m}.{n}" for m in ("gamma", "beta") for n in ("weight", "bias", "scale", "shift")},
    ),
    "fedgh": Declared(
        private=lambda unit, units: unit < units - 1,  # up: as many means and flags as the header has numbers
        names=frozenset({"means", "held"}),
        wire=lambda held, s: held * (s.n_features + 1) - _head(s),  # in the place of the header
    ),
    "feddistill": Declared(
        private=lambda unit, units: True,
        up=lambda w, s: s.n_classes**2,
        down=lambda w, s: s.n_classes * (s.n_classes + 1),
        names=frozenset({"mean"}),
        wire=lambda held, s: held * (s.n_classes + 1),
    ),
    "fedfomo": Declared(
        private=lambda unit, units: True,
        up=lambda w, _: w + 2 * 5,
        down=lambda w, _: 5 * w + 5,
        names=frozenset({"weights", "from"}),
        revealed=True,
    ),
    "apple": Declared(
        private=lambda unit, units: True,
        up=lambda w, _: w + 6 + 5,
        down=lambda w, _: 6 * w + 6 + 5,
        names=frozenset({"relations", "from"}),
        revealed=True,
    ),
    "fedpac": Declared(
        private=_last(1),
        up=lambda w, s: _head(s) + s.n_classes * (2 * s.n_features + 1) + 1,
        down=lambda w, s: _head(s) + s.n_classes * s.n_features,
        names=frozenset({"sum", "count", "means", "variance"}),
        revealed=True,
        wire=lambda held, s: _head(s) + s.n_classes * s.n_features + 1 + held * (s.n_features + 1),
    ),
    "fedgen": Declared(
        up=lambda w, s: s.n_classes,
        down=lambda w, s: 64 * (32 + s.n_classes + 1 + s.n_features) + s.n_features + s.n_classes,
        names=frozenset({"labels"}),
    ),
    "fedkd": Declared(up=lambda w, s: _matrices(s), wire=lambda held, s: 0, at_most=True),
    "floco": Declared(
        up=lambda w, s: 9 * s.n_classes * s.n_features,
        down=lambda w, s: 9 * s.n_classes * s.n_features + 10 + 1,
        names=frozenset({"corners"}),
    ),
    "fedem": Declared(models=3),
    "fedcac": Declared(up=lambda w, _: w),
    "cfl": Declared(down=lambda w, _: 1),
    "ifca": Declared(models=2, models_up=1, up=lambda w, _: 2, names=frozenset({"choice"})),
    "fedproto": Declared(
        private=lambda unit, units: True,
        up=lambda w, s: s.n_classes * (s.n_features + 1),
        down=lambda w, s: s.n_classes * s.n_features,
        names=frozenset({"sum", "count"}),
        wire=lambda held, s: held * (s.n_features + 1),
    ),
}


def declared(method: str) -> Declared:
    """By the method as it is written, then by the name it begins with."""
    name = method.partition("(")[0].partition(" ")[0]
    return _DECLARED.get(method, _DECLARED.get(name, Declared()))


def kept_names(method: str, structure: Structure) -> frozenset[str]:
    """Parameters and statistics that never leave a client."""
    promise = declared(method)
    return frozenset(
        name
        for name, unit in structure.unit_of.items()
        if promise.private(unit, structure.n_units) or (promise.layers is not None and promise.layers in name)
    )


def secret_names(method: str, structure: Structure) -> frozenset[str]:
    """Parameters and statistics that no message holds."""
    return frozenset() if declared(method).revealed else kept_names(method, structure)
