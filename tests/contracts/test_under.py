"""Every method runs under disturbances; engines agree on them, resuming too, and neutral ones change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import idiolect
from idiolect.records import load_checkpoint

from .cases import METHODS, spelt
from .sameness import assert_equal, assert_exact, numbers, privates, states
from .test_resume import Interrupter
from .tiny import experiment_of, finished_run, play

ALL = (
    "label_noise(share=0.5)",
    "label_flip(share=0.2)",
    "corrupted_test",
    "drift(at=0.4)",
    "drift(at=0.6, kind=clients)",
    "dropout(rate=0.3)",
    "deadline(seconds=2.5, jitter=0.2)",
    "sign_flip(share=0.4, factor=0.5, rate=0.7)",
    "upload_noise(share=0.4, scale=0.1, at=0.3)",
    "late(share=0.8)",
)
NEUTRAL = (
    "label_noise(rate=0.0)",
    "dropout(rate=0.0)",
    "sign_flip(rate=0.0)",
    "late(share=0.0)",
)
FEW = ("fedavg", "scaffold", "map")
SECONDS = {  # of the deadline, for methods that make more steps before the upload
    "fedrep": 30.0,
    "fedala": 5.0,
    "fedas": 5.0,
    "fedpac": 5.0,
    "fedper(count=2, fine_tune_epochs=1)": 5.0,
}


def all_for(name: str) -> tuple[str, ...]:
    """Returns all disturbances, with a deadline that fits the method."""
    return tuple(one.replace("seconds=2.5", f"seconds={SECONDS.get(name, 2.5)}") for one in ALL)


def in_turn(quick: tuple[str, ...]) -> list[Any]:
    return [pytest.param(spelt(m), marks=[] if m in quick else [pytest.mark.slow]) for m in METHODS]


@pytest.mark.parametrize("name", in_turn(FEW))
def test_engines_agree_under_all_disturbances_at_once(name: str) -> None:
    loop = finished_run(name, under=all_for(name))
    assert len(loop.late.waiting) > 0, "an upload of the last round is late, so that lateness was met"
    cohort, pool = (
        finished_run(name, "cohort", under=all_for(name)),
        finished_run(name, "pool", under=all_for(name)),
    )
    assert_equal(states(cohort), states(loop))
    assert_exact(states(pool), states(loop))
    assert numbers(pool) == numbers(loop)


@pytest.mark.parametrize("name", ["fedavg", "scamap"])
def test_neutral_disturbances_change_nothing(name: str) -> None:
    clean, neutral = finished_run(name), finished_run(name, under=NEUTRAL)
    assert_exact(states(neutral), states(clean))
    assert numbers(neutral) == numbers(clean)


@pytest.mark.parametrize("name", in_turn(("scaffold",)))
def test_resumed_run_with_uploads_on_the_way_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    experiment = experiment_of(name, under=all_for(name))
    options: dict[str, Any] = {"out": tmp_path, "engine": "loop", "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        idiolect.run(experiment, watcher=Interrupter(3), **options)
    (folder,) = tmp_path.iterdir()
    found = load_checkpoint(folder)
    assert found is not None and found[0] == 2 and found[1]["late"]
    done = idiolect.run(experiment, resume=True, quiet=True, **options)
    expected = finished_run(name, under=all_for(name))
    front = ["run", "method", "seed", "data_seed", "scene"]
    rows = done.rows.drop(columns=[c for c in front if c in done.rows]).to_dict("records")
    assert [row["value"] for row in rows] == [row["value"] for row in numbers(expected)["rows"]]
    checkpoint = load_checkpoint(next(tmp_path.iterdir()))
    assert checkpoint is not None
    assert_exact(checkpoint[1]["server"], expected.server)
    assert_exact(checkpoint[1]["late"], expected.late.state())
    assert len(privates(expected)) == len(done.manifest["samples"])


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", ["fedper", "scamap"])
def test_ray_is_exactly_loop_under_all_disturbances(name: str) -> None:
    from .test_ray import on_ray  # noqa: PLC0415 - needs Ray

    loop = finished_run(name, under=ALL, rounds=5)
    found = play(loop.setting, on_ray(loop.setting))
    assert_exact(states(found), states(loop))
    assert numbers(found) == numbers(loop)
