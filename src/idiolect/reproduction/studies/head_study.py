"""A study: one network trained on some classes and observed epoch by epoch; also which studies a figure needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from idiolect.option_parsing import parse_call
from idiolect.reproduction.scenarios import find_scenario

__all__ = ["FigureStudy", "Study", "studies_of"]

QUICK_DATASET, QUICK_EPOCHS, QUICK_CLASSES = "fashion-mnist-12k", 3, 10
CLASSES = {"cifar10": 10, "cifar100": 100, "mnist": 10}
OBSERVED = {"map-o1-8": 8, "map-o1-5": 5, "map-o1-2": 2, "map-o2": 8}
TARGETS = tuple(range(10, 90, 10))  # of CIFAR-100, in map-o3


@dataclass(frozen=True)
class Study:
    """Everything that changes the numbers of a study.

    Args:
        observed: how many classes, counted from the first, the network is trained on; the others are missing.
        targets: numbers of first classes; the network is scored on the test samples of each such set.
        live_start: draws the first values again until every feature is above zero on some samples; a ReLU that is
            never above zero has no gradient, and a network of two features is then lost from the start.
    """

    dataset: str
    model: str
    observed: int
    targets: tuple[int, ...]
    epochs: int
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    seed: int = 0
    live_start: bool = False


class FigureStudy(NamedTuple):
    """A study of a figure: the scenario that describes it, and its label in the figure."""

    scenario: str
    label: str
    study: Study


def studies_of(kind: str, scenarios: tuple[str, ...], seed: int, quick: bool) -> list[FigureStudy]:
    """Returns the studies of a figure of that kind."""
    found = []
    for name in scenarios:
        base = _study_of(name, seed)
        if kind == "subsets":
            found += _subsets(name, base)
        elif kind == "features":
            for word, relu in (("with ReLU", True), ("without ReLU", False)):
                study = replace(base, model=f"{base.model}(relu={relu})", live_start=relu)
                found.append(FigureStudy(name, f"{base.observed} classes {word}", study))
        else:
            found.append(FigureStudy(name, f"{base.observed} observed classes", base))
    return [one._replace(study=_quick(one.study)) for one in found] if quick else found


def _study_of(scenario: str, seed: int) -> Study:
    settings = {key: layer.value for key, layer in find_scenario(scenario).settings().items()}
    observed = OBSERVED.get(scenario, CLASSES[settings["dataset"]])
    return Study(
        dataset=settings["dataset"],
        model=settings["model"],
        observed=observed,
        targets=(observed,),
        epochs=settings["rounds"],
        learning_rate=settings["learning_rate"],
        momentum=settings["momentum"],
        weight_decay=settings["weight_decay"],
        batch_size=settings["batch_size"],
        seed=seed,
    )


def _subsets(name: str, base: Study) -> list[FigureStudy]:
    """Returns M1, trained on the target classes alone, once for each number of them, and M2, trained once on all."""
    own = [FigureStudy(name, "M1", replace(base, observed=n, targets=(n,))) for n in TARGETS]
    return [*own, FigureStudy(name, "M2", replace(base, targets=TARGETS))]


def _quick(study: Study) -> Study:
    """Returns the study on the embedded data, with a small network, few epochs, and the same fraction of classes."""
    share = QUICK_CLASSES / CLASSES[study.dataset]
    small = parse_call(study.model)[0].startswith("lenet")
    return replace(
        study,
        dataset=QUICK_DATASET,
        model=study.model if small else "lenet5",
        observed=max(1, round(share * study.observed)),
        targets=tuple(max(1, round(share * n)) for n in study.targets),
        epochs=min(study.epochs, QUICK_EPOCHS),
    )
