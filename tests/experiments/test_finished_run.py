"""A finished run gives back the models that it trained, from its folder and without its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import idiolect
from idiolect.evaluation import METRICS, score
from idiolect.experiments import Experiment, FinishedRun
from idiolect.experiments.recorded_setting import HERE
from idiolect.experiments.setting import prepare, read_dataset
from idiolect.methods import names

COMPOSED = ("fedavg_lu", "fedrep", "flda", "fedfu", "apfl", "fedphp(inference=ensemble)", "superfed_mm")
NORMALISED = "vgg8_bn"


def recorded_scores(run: FinishedRun, predictor: str, metric: str = "accuracy") -> list[float]:
    rows = run.rows
    wanted = {"predictor": predictor, "split": "test", "population": "all", "metric": metric}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return [float(value) for value in rows.groupby("client")["value"].last()]


def scores_of_models(run: FinishedRun, predictor: str | None = None) -> list[float]:
    """Accuracies of the models on the raw test rows of their clients."""
    experiment = Experiment(**run.manifest["spec"])
    federation, dataset = prepare(experiment, HERE).federation, read_dataset(experiment.dataset)
    found = []
    for name, model in run.models(predictor).items():
        rows = federation.clients[run.number_of(name)].test
        logits = model(torch.from_numpy(dataset.train_x[rows]))
        scored = score([{"model": logits}], [torch.from_numpy(dataset.train_y[rows])], METRICS)
        found.append(scored["model"]["accuracy"][0])
    return found


def check_models(experiment: Experiment, folder: Path) -> FinishedRun:
    idiolect.run(experiment, out=folder, engine="loop")
    run = idiolect.open(next(path for path in folder.iterdir() if path.name.endswith("-s0")))
    assert scores_of_models(run) == recorded_scores(run, run.manifest["headline"])
    return run


@pytest.mark.parametrize("method", COMPOSED)
def test_models_score_what_the_run_recorded(tiny: Experiment, tmp_path: Path, method: str) -> None:
    check_models(replace(tiny, method=method, rounds=1, learning_rate=0.1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", names())
def test_models_of_all_methods_score_what_the_run_recorded(
    tiny: Experiment, tmp_path: Path, method: str
) -> None:
    public = 8 if idiolect.method(method).needs_public else 0
    check_models(replace(tiny, method=method, public=public, learning_rate=0.1), tmp_path)
