"""Which studies a figure needs, from the scenarios that describe them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from idiolect.options import parse_call
from idiolect.reproduction.scenarios import find
from idiolect.reproduction.studies.study import Study

__all__ = ["Wanted", "studies_of"]

QUICK_DATASET, QUICK_EPOCHS, QUICK_CLASSES = "fashion-mnist-12k", 3, 10
ALL = {"cifar10": 10, "cifar100": 100, "mnist": 10}
OBSERVED = {"map-o1-8": 8, "map-o1-5": 5, "map-o1-2": 2, "map-o2": 8}
TARGETS = tuple(range(10, 90, 10))  # of CIFAR-100, in map-o3


class Wanted(NamedTuple):
    """A study and what it is called in the figure."""

    scenario: str
    label: str
    study: Study


def studies_of(kind: str, scenarios: tuple[str, ...], seed: int, quick: bool) -> list[Wanted]:
    """The studies of a figure of that kind."""
    found = []
    for name in scenarios:
        base = _base(name, seed)
        if kind == "subsets":
            found += _subsets(name, base)
        elif kind == "features":
            for word, relu in (("with ReLU", True), ("without ReLU", False)):
                study = replace(base, model=f"{base.model}(relu={relu})")
                found.append(Wanted(name, f"{base.observed} classes {word}", study))
        else:
            found.append(Wanted(name, f"{base.observed} observed classes", base))
    return [one._replace(study=_quick(one.study)) for one in found] if quick else found


def _base(name: str, seed: int) -> Study:
    given = {key: one.value for key, one in find(name).given().items()}
    dataset = given["dataset"]
    observed = OBSERVED.get(name, ALL[dataset])
    kept = {key: given[key] for key in ("model", "learning_rate", "momentum", "weight_decay", "batch_size")}
    return Study(
        dataset=dataset, observed=observed, targets=(observed,), epochs=given["rounds"], seed=seed, **kept
    )


def _subsets(name: str, base: Study) -> list[Wanted]:
    """M1 trained on the target classes alone, once for each number of them; M2 trained once on all."""
    own = [Wanted(name, "M1", replace(base, observed=n, targets=(n,))) for n in TARGETS]
    return [*own, Wanted(name, "M2", replace(base, targets=TARGETS))]


def _quick(study: Study) -> Study:
    """The embedded data, a small network, few epochs, and as large a share of the classes."""
    share = QUICK_CLASSES / ALL[study.dataset]
    small = parse_call(study.model)[0].startswith("lenet")
    return replace(
        study,
        dataset=QUICK_DATASET,
        model=study.model if small else "lenet5",
        observed=max(1, round(share * study.observed)),
        targets=tuple(max(1, round(share * n)) for n in study.targets),
        epochs=min(study.epochs, QUICK_EPOCHS),
    )
