"""The same seed gives the same numbers in another process; another seed gives others, in every draw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from idiolect.core import Stage
from idiolect.core.trees import tree_leaves
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.methods import names
from idiolect.testing.recorder import Recorder

from .cases import spelt
from .midway import midway
from .sameness import leaves
from .tiny import TINY, make_engine, play, setting_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def second_process() -> dict[str, str]:
    """Digests of all methods midway, made in a process whose strings hash otherwise."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.contracts.digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", names())
def test_second_process_gives_the_same_numbers(name: str, second_process: dict[str, str]) -> None:
    assert midway(spelt(name)).digest() == second_process[name]


def test_another_seed_gives_other_numbers(method: str) -> None:
    ours, theirs = midway(method), midway(method, seed=TINY.seed + 1)
    same, other = (leaves([at.sent, at.privates]) for at in (ours, theirs))
    varied = [
        path for path, leaf in same.items() if leaf.unique().numel() > 1 and not leaf.equal(leaf.round())
    ]  # not one value throughout as at first, nor numbers of clients, of which there are few
    assert varied
    assert not any(same[path].equal(other[path]) for path in varied)


def _cohorts(setting: Setting) -> list[list[int]]:
    recorder = Recorder(make_engine("loop", setting))
    play(setting, recorder)
    return [list(passed.privates) for passed in recorder.rounds]


def _plans(setting: Setting, round: int, client: int, stage: Stage = Stage()) -> tuple[Any, ...]:  # noqa: B008
    """Index, mask and keys of a client's batches and the draws of its parts, over the same rows for every seed."""
    work = replace(setting_of("fedavg").work, seed=setting.experiment.seed)
    plan, draws = work.plan(setting.program(round), stage, client)
    return (*plan, *draws.values())


DRAWS: dict[str, Callable[[Setting], Any]] = {
    "selection": _cohorts,
    "initialisation": lambda setting: Simulation.start(setting, make_engine("loop", setting)).server[
        "params"
    ],
    "own initialisation": lambda setting: setting.first_private(0)["slots"]["mixed_subspace"],
    "split": lambda setting: setting.federation.clients[3],
    "batches": lambda setting: _plans(setting, 0, 3)[0],
    "keys": lambda setting: _plans(setting, 0, 3)[2],
    "mixing draws": lambda setting: _plans(setting, 0, 3)[3],
}


@pytest.mark.parametrize("what", DRAWS)
def test_another_seed_changes_every_draw(what: str) -> None:
    name = "superfed_lm(own_init=client)"
    first, again, other = (DRAWS[what](setting_of(name, seed=seed)) for seed in (0, 0, 1))
    assert _alike(first, again)
    assert not _alike(first, other)


@pytest.mark.parametrize("field", [0, 2, 3], ids=["batches", "keys", "mixing draws"])
def test_another_round_and_client_change_every_draw(field: int) -> None:
    setting = setting_of("superfed_lm")
    here, later, elsewhere = (_plans(setting, *at)[field][0].tolist() for at in ((0, 3), (1, 3), (0, 0)))
    assert here != later
    assert here != elsewhere


def test_another_round_selects_other_clients() -> None:
    cohorts = _cohorts(setting_of("fedavg"))
    assert len({tuple(cohort) for cohort in cohorts}) > 1


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(a[key].equal(b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("own_init", "same"), [("shared", True), ("client", False)])
def test_second_initialisation_is_one_for_all_or_one_for_each(own_init: str, same: bool) -> None:
    setting = setting_of(f"superfed_mm(own_init={own_init})")
    one, other = (tree_leaves(setting.first_private(client)["slots"]) for client in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True)) == same
