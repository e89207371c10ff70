"""Counts of the final evaluation: on whom they are recorded, and that they agree with the rows beside them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from idiolect.evaluation import count_predictions
from idiolect.experiments import run
from idiolect.experiments.rounds.client_scoring import ClientScores, plain_scores, scores_of_plain

KINDS = ["split", "predictor", "moment", "population"]
KEYS = ["round", "client", *KINDS]


def kinds(frame) -> set[tuple[str, ...]]:
    return set(frame[KINDS].itertuples(index=False, name=None))


@pytest.mark.parametrize("method", ["superfed_mm", "fedavg_lu"])
@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_final_rows_follow_from_the_counts(method, engine, tiny, tmp_path):
    """SuPerFed chooses a mixture on validation data, FedAvg-LU trains at the end of the run."""
    data = tiny.dataset.replace("samples_per_client=20", "samples_per_client=40")
    asked = replace(tiny, dataset=data, method=method, newcomers=1, rounds=3, evaluate_every=1)
    found = run(asked, out=tmp_path, engine=engine, device="cpu")
    rows = found.rows[(found.rows["round"] == 3) & (found.rows["population"] != "selected")]
    rows = rows[rows["split"].isin(["test", "server"])]
    rows = rows[~((rows["population"] == "new") & (rows["moment"] == "before"))]
    assert kinds(found.calibration) == kinds(found.confusion) == kinds(rows)
    assert set(found.calibration["round"]) == {3}
    bins = found.calibration.assign(
        gap=(found.calibration["correct"] - found.calibration["confidence"]).abs()
    )
    by_cell = bins.groupby(KEYS)[["gap", "count", "correct"]].sum()
    expected = rows[rows["metric"] == "ece"].set_index(KEYS)["value"]
    assert (by_cell["gap"] / by_cell["count"] - expected).abs().max() < 1e-9
    hits = (
        found.confusion[found.confusion["truth"] == found.confusion["predicted"]].groupby(KEYS)["count"].sum()
    )
    accuracy = rows[rows["metric"] == "accuracy"].set_index(KEYS)["value"]
    right = hits.reindex(accuracy.index, fill_value=0) / by_cell["count"]
    assert (right - accuracy).abs().max() < 1e-9 and len(right) == len(accuracy)
    chosen = {"mix(validated)", "mix(oracle)"} & set(rows["predictor"])
    assert bool(chosen) == (method == "superfed_mm")


def test_a_task_without_classes_has_no_counts(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
    clients = {f"c{k}": (x[k::2], x[k::2] @ [1.0, 2.0, 3.0]) for k in range(2)}
    found = run(
        "fedavg",
        data=clients,
        task="regression",
        rounds=1,
        out=tmp_path,
        engine="loop",
        model="mlpnet(hidden=4)",
    )
    assert found.calibration.empty and found.confusion.empty and len(found.costs) == 2


def test_scores_come_back_from_what_json_holds():
    counts = count_predictions([{"own": torch.eye(3)}], [torch.tensor([0, 1, 0])], [7])
    scores = ClientScores([7], {"own": {"accuracy": [2 / 3]}}, {}, counts)
    again = scores_of_plain(json.loads(json.dumps(plain_scores(scores))))
    assert again[:3] == scores[:3]
    for one, other in zip(again.counts["own"], counts["own"], strict=True):
        assert one.tolist() == other.tolist()
