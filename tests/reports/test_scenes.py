"""Runs grouped by scene."""

from __future__ import annotations

from typing import Any

import pandas as pd

from idiolect.records import Run
from idiolect.reports.run_groups import scenes_of, without_repeated_clients

SPEC = {"dataset": "digits", "partition": "iid", "model": "mlpnet"}


def _run(method: str, seed: int = 0, **spec: Any) -> Run:
    whole = {**SPEC, **spec}
    manifest = {"name": f"{method}-{seed}-{spec}", "method": method, "seed": seed, "spec": whole, **whole}
    return Run(manifest, pd.DataFrame(), pd.DataFrame())


def test_scenes_are_named_by_what_differs() -> None:
    runs = [_run("fedavg"), _run("fedper"), _run("fedavg", partition="label_k(k=2)"), _run("fedavg", seed=1)]
    found = scenes_of(runs)
    assert list(found) == ["iid", "label_k(k=2)"]
    assert {label: len(group) for label, group in found["iid"].items()} == {"fedavg": 2, "fedper": 1}
    assert list(found["label_k(k=2)"]) == ["fedavg"]


def test_single_scene_has_its_usual_name() -> None:
    assert list(scenes_of([_run("fedavg")])) == ["digits, iid, mlpnet"]


def test_other_settings_of_training_stay_in_one_scene() -> None:
    (methods,) = scenes_of([_run("fedavg", learning_rate=0.1), _run("fedavg", learning_rate=0.2)]).values()
    assert list(methods) == ["fedavg (learning_rate=0.1)", "fedavg (learning_rate=0.2)"]


def test_disturbed_scene_stands_beside_the_clean_one() -> None:
    runs = [_run("fedavg"), _run("fedavg", under=["drift(at=0.5)"])]
    assert list(scenes_of(runs)) == ["undisturbed", "under drift(at=0.5)"]


def test_disturbed_versions_of_a_scene_are_no_scenes_of_their_own() -> None:
    scenes = scenes_of(
        [
            _run("fedavg", under=["drift(at=0.5)"]),
            _run("fedavg"),
            _run("fedavg", partition="label_k(k=2)", under=["drift(at=0.5)"]),
        ]
    )
    firsts = {name: groups["fedavg"][0] for name, groups in scenes.items()}
    assert without_repeated_clients(firsts) == list(scenes)[1:]


def test_single_disturbed_scene_says_so() -> None:
    (name,) = scenes_of([_run("fedavg", under=["drift(at=0.5)"])])
    assert name == "digits, iid, mlpnet, under drift(at=0.5)"
