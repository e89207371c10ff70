"""What methods gain over training alone, said in one sentence."""

from __future__ import annotations

from typing import Any

from idiolect.reports import notes_of
from idiolect.reports.gain_over_local import gains_over_local

HOSPITALS = {"client_names": ["north", "south", "east", "west"], "partition": "natural"}


def values(*each: float) -> dict[str, Any]:
    return {"personal": {(4, "after"): list(each)}}


def test_gain_is_a_mean_of_paired_differences_and_names_who_loses(make_run) -> None:
    local = make_run("Local", **values(0.5, 0.6, 0.7, 0.8), **HOSPITALS)
    fedavg = make_run("FedAvg", **values(0.6, 0.8, 0.7, 0.752), **HOSPITALS)
    (sentence,) = gains_over_local([fedavg, local])
    assert "FedAvg +6.3 points, better for 2 of 4, worse for 1 (west)" in sentence
    assert "one seed tells what happened here" in sentence
    assert notes_of([local, fedavg])[-1] == sentence


def test_several_seeds_are_averaged_by_client(make_run) -> None:
    runs = [
        make_run(label, seed, **values(*each), **HOSPITALS)
        for label, seed, each in [
            ("Local", 0, (0.5, 0.5, 0.5, 0.5)),
            ("Local", 1, (0.6, 0.6, 0.6, 0.6)),
            ("MAP", 0, (0.7, 0.5, 0.5, 0.5)),
            ("MAP", 1, (0.4, 0.6, 0.6, 0.6)),
        ]
    ]
    (sentence,) = gains_over_local(runs)
    assert "MAP +0.0 points, better for 0 of 4, worse for 0" in sentence and "means over 2 seeds" in sentence


def test_runs_of_other_data_or_seeds_are_not_set_beside_local(make_run) -> None:
    local = make_run("Local", **values(0.5, 0.5), **HOSPITALS)
    elsewhere = make_run("FedAvg", **values(0.9, 0.9), **{**HOSPITALS, "partition": "iid"})
    other_seed = make_run("MAP", 1, **values(0.9, 0.9), **HOSPITALS)
    assert gains_over_local([local, elsewhere, other_seed]) == []


def test_a_lower_error_is_a_gain(make_run) -> None:
    facts = HOSPITALS | {
        "primary_metric": "loss",
        "metrics": {"loss": {"higher_is_better": False, "low": 0.0, "high": None}},
    }
    local, better = (
        make_run("Local", **values(0.5, 0.5), **facts),
        make_run("Ditto", **values(0.4, 0.4), **facts),
    )
    for run, error in ((local, 5.0), (better, 3.5)):
        run.rows.loc[run.rows["metric"] == "loss", "value"] = error
    (sentence,) = gains_over_local([local, better])
    assert "Ditto +1.5 loss, better for 2 of 2, worse for 0" in sentence


def test_gains_name_their_scene_and_begin_with_the_largest(make_run) -> None:
    scene = {"partition": "natural", "metrics": {"accuracy": {"higher_is_better": True}}}
    levels = {"Local": 0.5, "FedAvg": 0.4, "MAP": 0.7, "FedPer": 0.6}
    runs = [
        make_run(label, **values(level, level), dataset=dataset, **scene)
        for dataset in ("x", "y")
        for label, level in levels.items()
    ]
    sentences = gains_over_local(runs)
    assert [sentence.partition(": gain over")[0] for sentence in sentences] == ["x", "y"]
    for sentence in sentences:
        assert sentence.index("MAP +20.0") < sentence.index("FedPer +10.0") < sentence.index("FedAvg -10.0")
    (alone,) = gains_over_local(runs[:4])
    assert alone.startswith("gain over training alone (Local)")
