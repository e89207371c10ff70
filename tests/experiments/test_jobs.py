"""Runs side by side: the numbers of runs one after the other, errors, stops, and code of the user's own."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import idiolect
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Execution, Silent, compare, sweep
from idiolect.experiments.jobs import side_by_side
from idiolect.experiments.jobs.campaign import RunRequest, run_campaign
from idiolect.experiments.progress.time_left import RunTimes
from idiolect.methods.catalogue import METHODS
from idiolect.models.registered_models import REGISTERED
from idiolect.records import read_run

from ..child_process import child_process, children_of, is_running
from ..ray_nodes import head_node

LOOP = {"engine": "loop", "device": "cpu"}


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr(sys.modules[compare.__module__], "write_report", lambda *given: None)


def tables(out: Path) -> dict[str, tuple[object, object]]:
    """Returns by run both of its tables, without the times."""
    folders = {path.parent for path in out.rglob("manifest.json")}
    runs = [read_run(folder) for folder in folders if folder.suffix != ".partial"]
    found = {run.manifest["name"]: run for run in runs}
    return {
        name: (run.rows.to_dict("list"), run.rounds.drop(columns="seconds").to_dict("list"))
        for name, run in sorted(found.items())
    }


def test_own_data_model_and_method_give_the_same_rows_side_by_side(tmp_path, no_report):
    def twice(weight: float = 0.25):
        return idiolect.chain(idiolect.method("fedprox"), idiolect.method(f"ditto(weight={weight})"))

    def narrow(input_shape, outputs, width=4):
        return nn.Sequential(nn.Linear(input_shape[-1], width), nn.Tanh(), nn.Linear(width, outputs))

    random = np.random.default_rng(0)
    data = (random.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 3, np.repeat(["a", "b", "c"], 20))
    idiolect.register("twice", twice)
    try:
        for jobs in (2, 1):
            compare(
                ["twice", "fedavg"],
                data=data,
                model=narrow,
                rounds=2,
                jobs=jobs,
                out=tmp_path / str(jobs),
                **LOOP,
            )
    finally:
        del METHODS["twice"], REGISTERED["narrow"]
    found = tables(tmp_path / "2")
    assert len(found) == 2 and repr(found) == repr(tables(tmp_path / "1"))  # repr, because NaN is not NaN


def test_job_has_the_threads_of_a_run_alone(monkeypatch):
    start = Mock(return_value=Mock(task=None))
    monkeypatch.setattr(side_by_side, "_start_job", start)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 3)
    try:
        for engine in ("loop", "cohort", "pool"):
            with side_by_side.open_jobs(Execution(engine=engine, device="cpu", jobs=2), runs=2):
                pass
    finally:
        torch.set_num_threads(before)
    assert [call.args[0].threads for call in start.call_args_list] == [before + 3] * 6


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_rows_do_not_depend_on_the_number_of_jobs(engine, tmp_path, no_report):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for jobs in (1, 2):
            settings = {"rounds": 3, "clients": 6, "engine": engine, "device": "cpu", "jobs": jobs}
            compare(["fedavg", "fedper"], out=tmp_path / str(jobs), **settings)
    finally:
        torch.set_num_threads(before)
    found = tables(tmp_path / "2")
    assert len(found) == 2 and repr(found) == repr(tables(tmp_path / "1"))


def test_jobs_on_ray_want_a_cluster_that_is_there(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UserError, match="none is named; give its --ray-address"):
        Execution(engine="ray", jobs=2)
    assert Execution(engine="ray", jobs=2, ray_address="127.0.0.1:6379").engine_choice().workers is None
    with pytest.raises(UserError, match="none is named"):
        Execution(engine="ray", jobs=2, ray_address="local")
    with pytest.raises(
        UserError, match="4 runs side by side need a worker each, and --workers is 2; use --jobs 2"
    ):
        Execution(engine="ray", jobs=4, workers=2, ray_address="127.0.0.1:6379")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert Execution(engine="ray", jobs=3, workers=7).engine_choice().workers == 2


@pytest.mark.slow
def test_jobs_share_the_workers_of_a_cluster(tmp_path, no_report):
    pytest.importorskip("ray")
    pytest.importorskip("flwr")
    from idiolect.deploy.processes import free_port  # noqa: PLC0415 - needs the extra flower

    settings = {"rounds": 3, "clients": 6, "precision": "float64"}
    with head_node(free_port(), "--num-cpus=2") as address:
        shared = {"engine": "ray", "ray_address": address, "out": tmp_path / "ray"}
        with pytest.raises(
            UserError, match=r"3 runs side by side need 3 workers, and .* room for 2; use --jobs 2"
        ):
            compare(["fedavg", "fedper", "map"], jobs=3, **settings, **shared)
        with pytest.raises(
            UserError, match=r"2 runs side by side need 4 workers, .* room for 2; use --jobs 1"
        ):
            compare(["fedavg", "fedper", "map"], jobs=2, workers=4, **settings, **shared)
        with pytest.raises(UserError, match="has no room for a worker"):
            compare(["fedavg", "fedper", "map"], jobs=2, gpus_per_worker=1, **settings, **shared)
        compare(["fedavg", "fedper", "map"], jobs=2, **settings, **shared)
    compare(["fedavg", "fedper", "map"], out=tmp_path / "loop", **settings, **LOOP)
    found, alone = tables(tmp_path / "ray"), tables(tmp_path / "loop")
    assert len(found) == 3 and found.keys() == alone.keys()
    for name, (rows, _) in found.items():
        assert np.allclose(rows["value"], alone[name][0]["value"], rtol=1e-9, equal_nan=True), name
    engines = [read_run(path.parent).manifest["engine"] for path in shared["out"].rglob("manifest.json")]
    assert {(engine["engine"], engine["workers"]) for engine in engines} == {("ray", 1)}


@pytest.mark.slow
def test_refusal_in_a_job_is_the_sentence_of_a_run_alone(tiny, tmp_path):
    heard: list[str] = []

    class Ear(Silent):
        def say(self, sentence: str) -> None:
            heard.append(sentence)

    asked = {"vary": ["learning_rate=0.1,1e30"], "experiment": tiny, **LOOP}
    side = sweep(["fedavg"], jobs=2, watcher=Ear(), out=tmp_path / "2", **asked)
    alone = sweep(["fedavg"], out=tmp_path / "1", **asked)
    assert repr(side.tried) == repr(alone.tried) and "not finite" in side.tried[1].failed
    assert any(line.startswith("refused: FedAvg: client 0 got") for line in heard)


def test_comparison_names_the_method_that_was_refused(tiny, tmp_path, no_report):
    with pytest.raises(UserError, match=r"^FedAvg: client 0 got parameters that are not finite"):
        compare(["fedavg", "local"], experiment=replace(tiny, learning_rate=1e30), out=tmp_path, **LOOP)


@pytest.mark.parametrize(
    ("choice", "jobs", "workers"),
    [
        (EngineChoice("pool", "cpu", "", 8), 3, 2),
        (EngineChoice("pool", "cpu", "", 2), 3, 1),
        (EngineChoice("pool", "cpu", ""), 10**6, 1),
        (EngineChoice("loop", "cpu", ""), 3, None),
    ],
)
def test_jobs_share_the_workers(choice, jobs, workers):
    assert choice.for_jobs(jobs).workers == workers
    assert choice.for_jobs(1) == choice


def test_jobs_that_cannot_work_are_refused():
    with pytest.raises(UserError, match="jobs must be in \\[1, 1024\\], got 0"):
        Execution(jobs=0)
    assert "runs side by side" in str(Execution(jobs=2, engine="pool").engine_choice())


PROGRAM = """
import sys
import idiolect
idiolect.compare(["fedavg", "local", "fedper", "map"], out=sys.argv[1], jobs=2, engine=sys.argv[3], device="cpu",
    dataset="synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)", partition="by_id", clients=4,
    model="mlpnet(hidden=8)", rounds=int(sys.argv[2]), checkpoint_every=1, evaluate_every=20, resume=True)
"""


def _grown(folder: Path, checkpoints: int) -> bool:
    return len({path.name for path in folder.rglob("checkpoint-*.safetensors")}) >= checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "pool"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_runs_go_on_with_the_same_rows_and_leave_no_process(how, engine, tmp_path):
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = tmp_path / "stopped"
    with child_process([*command, str(out), "40", engine], env=environment, cwd=Path.cwd()) as child:
        while not _grown(out, 2):
            time.sleep(0.05)
        jobs = children_of(child.pid)
        assert len(jobs) == 2
        servers = [one for job in jobs for one in children_of(job)]
        assert bool(servers) == (engine == "pool")
        child.send_signal(how)
        code = child.wait(60)
        assert code == -how if how == signal.SIGKILL else code != 0
        deadline = time.monotonic() + 20
        if how == signal.SIGINT:  # the command has waited for all of them
            assert not any(map(is_running, [*jobs, *servers]))
        while any(map(is_running, [*jobs, *servers])) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_running, [*jobs, *servers]))
    assert len(tables(out)) < 4
    for folder in (out, tmp_path / "whole"):
        with child_process([*command, str(folder), "40", engine], env=environment, cwd=Path.cwd()) as child:
            assert child.wait(300) == 0
    assert len(tables(out)) == 4 and repr(tables(out)) == repr(tables(tmp_path / "whole"))


def test_time_left_counts_runs_to_come_and_lanes():
    clock = [0.0]
    times = RunTimes(lambda: clock[0])
    times.expect(4, side_by_side=2)
    for lane in (0, 1):
        times.begin(lane, rounds=10, done=0)
    assert times.left_of_all() is None
    clock[0] = 5.0  # the first round starts workers and counts as long as it took
    for lane in (0, 1):
        times.advance(lane, 1)
    assert times.left(0) == pytest.approx(45)
    clock[0] = 6.0
    for lane in (0, 1):
        times.advance(lane, 2)
    assert times.left(0) == pytest.approx(8) and times.rate(0) == pytest.approx(1)
    assert times.left_of_all() == pytest.approx((2 * 8 + 2 * 14) / 2)
    times.ending(0, 5)
    assert times.left(0) == pytest.approx(13)
    clock[0] = 7.0
    times.settle(0, 0.0)
    clock[0] = 9.0
    times.settle(0, 0.25)
    assert times.left(0) == pytest.approx(6)


def test_a_continued_run_does_not_take_its_start_for_all_rounds_before():
    clock = [0.0]
    times = RunTimes(lambda: clock[0])
    times.expect(2)
    times.begin(0, rounds=100, done=95)
    for clock[0], done in ((60.0, 96), (61.0, 97)):  # workers took a minute to start, a round takes a second
        times.advance(0, done)
    assert times.left_of_all() == pytest.approx(3 + 95 + 64)
    for clock[0], done in ((62.0, 98), (63.0, 99), (64.0, 100)):
        times.advance(0, done)
    times.end(0)
    assert times.left_of_all() == pytest.approx(95 + 64)


def test_a_campaign_says_before_it_starts_how_many_runs_it_makes(tiny, tmp_path):
    heard: list[str] = []

    class Ear(Silent):
        def say(self, sentence: str) -> None:
            heard.append(sentence)

        def begin(self, label: str, rounds: int, done: int) -> None:
            heard.append(label)

    asked = [
        RunRequest(seed, replace(tiny, seed=seed), (), lambda run: run.manifest["seed"]) for seed in (0, 1)
    ]
    found = run_campaign(asked, Execution(out=tmp_path, watcher=Ear(), **LOOP))
    assert [one.value for one in found.values()] == [0, 1]
    assert heard == [
        "2 of 2 runs are to be made; fewer with some columns or methods alone",
        "FedAvg",
        "FedAvg",
    ]
    run_campaign(asked, Execution(out=tmp_path, watcher=Ear(), **LOOP))
    assert sum("to be made" in one for one in heard) == 1
