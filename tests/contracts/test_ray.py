"""ray agrees with loop, whatever the number of workers, and whichever of them dies."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from idiolect.core import Batch
from idiolect.engines import CohortEngine, Engine
from idiolect.engines.cohort.cpu.traced_stages import MANY_ROUNDS
from idiolect.engines.worker_calls import worker_engine
from idiolect.errors import UserError
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.methods import names

from .cases import spelt
from .midway import midway
from .sameness import assert_equal, assert_exact, numbers, states
from .test_divergence import BROKEN, broken
from .tiny import finished_run, play, setting_of

pytestmark = pytest.mark.usefixtures("ray_session")

ROUNDS = 5
SOME = ("fedper", "map", "scamap", "persfl", "superfed_mm", "ditto")
CASES = [
    pytest.param(method, workers, marks=[] if (method, workers) == ("fedper", 2) else pytest.mark.slow)
    for method in SOME
    for workers in (1, 2, 3)
]
CASES += [pytest.param(method, 2, marks=pytest.mark.slow) for method in names() if method not in SOME]


def on_ray(setting: Setting, workers: int = 2, **options: Any) -> Engine:
    from idiolect.engines.ray import RayEngine  # noqa: PLC0415 - needs Ray

    return RayEngine(setting.work, workers=workers, **options)


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_ray_is_exactly_loop(name: str, workers: int) -> None:
    method = spelt(name)
    loop = finished_run(method, rounds=ROUNDS)
    found = play(loop.setting, on_ray(loop.setting, workers))
    assert_exact(states(found), states(loop))
    assert numbers(found) == numbers(loop)


@pytest.mark.slow
def test_workers_that_batch_their_clients_equal_loop() -> None:
    loop = finished_run("ditto", model="mlpnet(hidden=8)", rounds=MANY_ROUNDS)
    assert isinstance(worker_engine(loop.setting.work, loop.setting.program(0)), CohortEngine)
    found = play(loop.setting, on_ray(loop.setting))
    assert_equal(states(found), states(loop))


def deadly(setting: Setting, armed: Path) -> Setting:
    """Every forward pass takes a file out of the folder ``armed``; the process that takes the last is killed."""
    forward, folder = setting.task.forward, str(armed)

    def killing(params: Any, buffers: Any, batch: Batch, train: Any) -> Any:
        for name in sorted(os.listdir(folder))[:1]:
            os.unlink(os.path.join(folder, name))
            if not os.listdir(folder):
                os.kill(os.getpid(), signal.SIGKILL)
        return forward(params, buffers, batch, train)

    return replace(setting, task=setting.task._replace(forward=killing))


def arm(folder: Path, passes: int) -> None:
    for number in range(passes):
        (folder / str(number)).touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "workers", "copy_every"),
    [
        ("scamap", 1, 2),  # all rows are lost, and two rounds of some are made again
        pytest.param("fedper", 2, 100, marks=pytest.mark.slow),  # nothing was copied before
        pytest.param("persfl", 2, 1, marks=pytest.mark.slow),  # all clients change in every round
    ],
)
def test_a_killed_worker_changes_no_number(name: str, workers: int, copy_every: int, tmp_path: Path) -> None:
    loop = finished_run(spelt(name), rounds=ROUNDS)
    setting, said = deadly(loop.setting, tmp_path), []
    engine = on_ray(setting, workers, copy_every=copy_every, say=said.append)
    simulation = Simulation.start(setting, engine)
    try:
        for round in range(ROUNDS):
            arm(tmp_path, 3 if round == 3 else 0)
            simulation.advance()
        simulation.finish()
    finally:
        engine.close()
    assert len(said) == 1
    assert "died" in said[0]
    assert "recomputes the" in said[0] and "rows that it kept" in said[0]
    assert_exact(states(simulation), states(loop))
    assert numbers(simulation) == numbers(loop)


@pytest.mark.slow
def test_a_client_that_fails_is_named_and_the_engine_goes_on() -> None:
    at = midway("fedper")
    engine = on_ray(at.setting, 1)

    def failing(*_: Any) -> Any:
        raise ValueError("this network is broken")

    try:
        wrong = replace(at.program, task=at.program.task._replace(forward=failing))
        with pytest.raises(RuntimeError, match=r"(?s)this network is broken.*on client \d in round 2"):
            engine.round(wrong, at.sent, at.privates, False)
        assert len(engine.round(at.program, at.sent, at.privates, False)) == len(at.privates)
        setting = broken(setting_of("fedper"))
        with pytest.raises(UserError, match=rf"client {BROKEN} .*round 2"):
            play(setting, on_ray(setting, 1))
    finally:
        engine.close()


@pytest.mark.slow
def test_clients_that_kill_every_worker_end_the_run(tmp_path: Path) -> None:
    at = midway("fedper")
    setting = deadly(at.setting, tmp_path)

    def dying(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    program = replace(setting.program(2), task=setting.task._replace(forward=dying))
    engine = on_ray(at.setting, 1)
    try:
        with pytest.raises(UserError, match=r"died as did 2 before it on clients \[0\]"):
            engine.round(program, at.sent, {0: at.privates[0]}, False)
    finally:
        engine.close()
