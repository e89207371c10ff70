"""Trackers as the command line names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def test_runs_of_a_comparison_are_logged_beside_it(idiolect, small: tuple[str, ...]) -> None:
    pytest.importorskip("tensorboard", reason="the extra tracking is not installed")
    answer = idiolect("compare", "--methods", "fedavg,fedper", *small, "--log", "tensorboard", "--out", "out")
    assert answer.code == 0, answer.err
    folders = {path.parent.name.partition("-")[0] for path in Path("out").rglob("events.out.*")}
    assert folders == {"fedavg", "fedper", "compare"}
    (folder,) = Path("out").iterdir()
    assert f"TensorBoard: tensorboard --logdir {folder}/tensorboard" in answer.out


def test_unknown_tracker_is_refused_before_anything_is_run(
    idiolect, refused: Callable, small: tuple[str, ...]
) -> None:
    answer = idiolect("run", "--method", "fedavg", *small, "--log", "comet", "--out", "out")
    refused(answer, "log must be one of tensorboard, mlflow, wandb; got 'comet'")
    assert not Path("out").exists()
