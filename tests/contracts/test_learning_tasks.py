"""Every task is learnt: its metrics improve over a few rounds and mean what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from idiolect.engines import LoopEngine

from .made_tasks import made, setting_of
from .sameness import numbers
from .tiny import play

SIZES = (60, 40, 50)
TRAINED = {"rounds": 6, "local_epochs": 3, "batch_size": 8, "evaluate_every": 1, "precision": "float32"}


def rows_of(task: str, method: str, **settings: Any) -> pd.DataFrame:
    setting = setting_of(task, method, SIZES, **{**TRAINED, **settings})
    played = play(setting, LoopEngine(setting.work))
    return pd.DataFrame(numbers(played)["rows"])


def curve(rows: pd.DataFrame, predictor: str, metric: str, moment: str = "before") -> pd.Series:
    kept = rows.query(
        "predictor == @predictor and metric == @metric and moment == @moment and split == 'test'"
    )
    return kept[kept["population"] == "all"].groupby("round")["value"].mean()


@pytest.mark.parametrize(("method", "predictor"), [("fedavg", "global"), ("ditto", "companion")])
def test_regression_is_learnt_in_the_units_of_the_targets(method, predictor):
    rows = rows_of("regression", method)
    r2, rmse = (curve(rows, predictor, name) for name in ("r2", "rmse"))
    assert r2.iloc[-1] > 0.6 and r2.iloc[-1] > r2.iloc[0]
    deviation = made("regression", SIZES).train_y.std(0).mean()
    assert rmse.iloc[-1] < 0.6 * deviation and rmse.iloc[-1] > 0.01 * deviation
    shared = rows.query("split == 'server' and metric == 'rmse'")
    assert len(shared) and (shared["value"] > 1).all()


def test_labels_are_learnt():
    rows = rows_of("multilabel", "fedavg", learning_rate=0.3)
    auroc = curve(rows, "global", "auroc")
    assert auroc.iloc[-1] > 0.85 and auroc.iloc[-1] > auroc.iloc[0]
    assert set(rows["metric"]) == {"macro_f1", "accuracy", "auroc", "loss"}


def test_two_classes_are_learnt_with_their_area_beside():
    rows = rows_of("binary", "fedavg", rounds=3)
    assert curve(rows, "global", "accuracy").iloc[-1] > 0.7
    assert curve(rows, "global", "auroc").iloc[-1] > 0.8


def test_perplexity_of_tokens_is_exp_of_their_loss():
    rows = rows_of("next_token", "fedavg", rounds=2)
    assert set(rows["metric"]) == {"accuracy", "top5", "loss", "perplexity"}
    places = ["round", "client", "split", "predictor", "moment", "population"]
    table = rows.pivot(index=places, columns="metric", values="value")
    np.testing.assert_allclose(table["perplexity"], table["loss"].map(math.exp), rtol=1e-12)
