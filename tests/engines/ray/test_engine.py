"""The duties of the engine ray beyond its numbers: what it refuses, what it leaves behind, what it holds on to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas
import pytest

from idiolect.engines import choose, place
from idiolect.errors import UserError
from idiolect.experiments import Experiment, prepare
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.records import read_run

from ...child_process import child_process
from ...ray_nodes import family, head_node, node, wait_until_gone

SCENE = Experiment(
    method="fedper",
    dataset="synthetic",
    partition="iid",
    clients=8,
    model="mlpnet(hidden=400)",
    rounds=200,
    participation_rate=0.5,
    evaluate_every=1000,
)
RUN = ["--method", "fedper", "--quick", "--rounds", "4", "--precision", "float64"]

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="the extra ray is not installed: pip install 'idiolect[ray]'"
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "idiolect", "run", "--engine", "ray", *arguments]


def test_without_the_extra_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'idiolect\[ray\]'"):
        place("ray", "auto")


@needs_ray
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"engine": "ray", "device": "cuda"}, "--gpus-per-worker"),
        ({"engine": "ray", "device": "cpu", "workers": 0}, r"workers must be in \[1, 4096\], got 0"),
        ({"engine": "loop", "device": "cpu", "workers": 2}, "pool and ray"),
        ({"engine": "cohort", "device": "cpu", "ray_address": "auto"}, "--engine ray"),
        ({"engine": "ray", "device": "cpu", "gpus_per_worker": -1.0}, "gpus_per_worker must be at least 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        place(**asked)


@needs_ray
def test_an_address_where_nobody_answers_is_refused() -> None:
    where = place("ray", "auto", ray_address="127.0.0.1:1")
    setting = prepare(SCENE, where)
    engine = choose.choose_engine(where, setting.work)
    with pytest.raises(UserError, match=r"no Ray cluster can be used at 127\.0\.0\.1:1"):
        Simulation.start(setting, engine).advance()


@pytest.fixture
def simulation(ray_session: None) -> Iterator[Simulation]:
    where = place("ray", "auto", workers=2)
    setting = prepare(SCENE, where)
    engine = choose.choose_engine(where, setting.work)
    yield Simulation.start(setting, engine)
    engine.close()


def test_more_workers_than_the_cluster_holds_are_refused(simulation: Simulation) -> None:
    simulation.engine.workers = 1000
    with pytest.raises(UserError, match="1000 workers with 1 CPU each do not fit the cluster"):
        simulation.advance()
    simulation.engine.workers, simulation.engine.gpus_per_worker = 1, 1.0
    with pytest.raises(UserError, match="1 workers with 1 GPU each do not fit the cluster"):
        simulation.advance()


def test_a_node_with_another_version_is_refused(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from idiolect.engines.ray import workers  # noqa: PLC0415 - needs Ray

    ours = workers.versions()
    monkeypatch.setattr(workers, "versions", lambda: {**ours, "idiolect": "0.0.1"})
    with pytest.raises(UserError, match=rf"idiolect {ours['idiolect']} and this machine 0\.0\.1"):
        simulation.advance()


@pytest.mark.parametrize("call", ["about", pytest.param("place", marks=pytest.mark.slow)])
def test_worker_that_does_not_start_for_want_of_memory_costs_one_sentence(
    call: str, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's report names every process of the node and fills a page."""
    from idiolect.engines.ray import workers  # noqa: PLC0415 - needs Ray

    report = (
        "1 worker(s) were killed due to the node running low on memory.\nMemory on the node (IP: 127.0.0.1, ID: 9f1) "
        "was 7.37GB / 23.54GB (0.313000), which exceeds the memory usage threshold of 0.05"
        + "; more of it"
        * 200
    )

    def dies(actor: Any, *arguments: Any) -> None:
        from ray.exceptions import OutOfMemoryError  # noqa: PLC0415 - runs in the worker

        raise OutOfMemoryError(report)

    monkeypatch.setattr(workers, "RayActor", type("RayActor", (workers.RayActor,), {call: dies}))
    with pytest.raises(UserError, match=r"7\.37GB / 23\.54GB in use.*fewer workers with --workers") as raised:
        simulation.advance()
    assert len(str(raised.value)) < 300 and "\n" not in str(raised.value)


@pytest.mark.slow
def test_nothing_grows_over_200_rounds(simulation: Simulation) -> None:
    seen = []
    for _ in range(SCENE.rounds):
        simulation.advance()
        seen.append(holdings(simulation.engine))
    for what in (
        "MiB",
        "objects",
    ):  # more and less with every copy, in a saw whose feet must stay where they are
        series = [held[what] for held in seen]
        assert min(series[-50:]) <= min(series[:50]) + 3, series
    assert seen[-1]["entries"] == SCENE.clients
    assert seen[-1]["rows"] <= 2 * SCENE.clients


def holdings(engine: Any) -> dict[str, float]:
    """What lies in the object store, in the driver's ledger and in the workers' memory."""
    import ray  # noqa: PLC0415 - may not be installed
    from ray._private.internal_api import memory_summary  # noqa: PLC0415

    used, objects = re.search(r"usage (\d+) MiB, (\d+) objects", memory_summary(stats_only=True)).groups()
    members = engine._workers.members.values()
    rows = ray.get([m.handle.__ray_call__.remote(lambda actor: len(actor._rows)) for m in members])
    entries = len(engine._ledger.entries)
    return {"MiB": int(used), "objects": int(objects), "entries": entries, "rows": sum(rows)}


@needs_ray
@pytest.mark.slow
def test_a_run_leaves_no_process_behind(tmp_path: Path) -> None:
    words, pipe = command(*RUN, "--workers", "2", "--out", str(tmp_path)), subprocess.PIPE
    seen: set[int] = set()
    with child_process(words, stdout=pipe, stderr=pipe) as run:
        while run.poll() is None:
            seen |= family(run.pid)
            time.sleep(0.2)
        _, errors = run.communicate()
    assert run.returncode == 0, errors.decode()
    assert len(seen) > 4
    wait_until_gone(seen)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process_behind(how: signal.Signals, tmp_path: Path) -> None:
    endless = ["--method", "fedper", "--rounds", "100000", "--set", "evaluate_every=100000"]
    words, pipe = command(*endless, "--workers", "2", "--out", str(tmp_path)), subprocess.PIPE
    with child_process(words, stdout=pipe, stderr=pipe) as run:
        deadline = time.monotonic() + 120
        while not any(tmp_path.glob("*.partial/checkpoint-*")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        seen = family(run.pid)
        assert len(seen) > 4
        os.kill(run.pid, how)
        _, errors = run.communicate(timeout=60)
        assert b"Traceback" not in errors
        wait_until_gone(seen)


@needs_ray
@pytest.mark.slow
def test_two_nodes_give_the_numbers_of_one_machine(tmp_path: Path) -> None:
    with head_node(26379, "--num-cpus=1") as address, node(f"--address={address}", "--num-cpus=1"):
        options = ["--ray-address", address, "--workers", "2", "--out", str(tmp_path / "ray")]
        done = subprocess.run(command(*RUN, *options), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    loop = [
        sys.executable,
        "-m",
        "idiolect",
        "run",
        "--engine",
        "loop",
        *RUN,
        "--out",
        str(tmp_path / "loop"),
    ]
    subprocess.run(loop, check=True, capture_output=True, timeout=300)
    ours, theirs = (read_run(next((tmp_path / engine).iterdir())) for engine in ("ray", "loop"))
    assert ours.manifest["engine"]["ray_address"] == address
    pandas.testing.assert_frame_equal(ours.rows, theirs.rows, rtol=1e-9, atol=1e-12)
