"""Private state in a run: the store changes no number, is announced, refused, bounded, and survives a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from idiolect.engines import EngineChoice, LoopEngine
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment, Silent, compare, run
from idiolect.experiments.rounds.private_state_placement import (
    demand_of,
    open_private_state,
    place_private_state,
)
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.records import find_checkpoint, finished_folder
from idiolect.records.reader import Run

HERE = Path(__file__).parent
LOOP = {"engine": "loop", "device": "cpu"}
ON_DISK = Execution(checkpoint_every=1, store="disk", store_cache=0)
PERSFL = "persfl(lambdas=(0.0, 1.0), temperatures=(1.0,), epochs=1)"
METHODS = ("fedavg", "fedper", "fedavg_lu", "map", PERSFL)
HEAD = 8 * 3 * 4 + 32  # bytes of the private head of mlpnet(hidden=8), filled up to 64 bytes
MODEL = 256 + 64 + 256 + 64 + HEAD  # all five tensors likewise


def setting_of(experiment: Experiment) -> Setting:
    return prepare(experiment, EngineChoice("loop", "cpu", "as asked"))


def private_leaves(experiment: Experiment, folder: Path) -> list[bytes]:
    setting = setting_of(experiment)
    found = find_checkpoint(folder)
    assert found is not None
    store = open_private_state(setting, place_private_state(setting, folder, ON_DISK), folder)
    store.restore(found[1]["private"])
    rows = store.rows(range(setting.federation.population))
    store.close()
    return [leaf.numpy().tobytes() for leaf in torch.utils._pytree.tree_leaves(rows)]


def content(experiment: Experiment, done: Run, out: Path) -> tuple[Any, ...]:
    """All numbers of a run; what nobody measured is None, which is alike in two runs."""
    known = done.rounds.drop(columns=["seconds"]).astype(object)
    rounds = known.where(known.notna(), None).to_dict("records")
    folder = finished_folder(out, done.manifest["name"])
    return done.rows.to_dict("records"), rounds, private_leaves(experiment, folder)


# ---- the store changes no number


@pytest.mark.parametrize("method", METHODS)
def test_every_store_gives_the_same_run(method: str, tiny: Experiment, tmp_path: Path) -> None:
    asked = replace(tiny, method=method, participation_rate=0.5, rounds=5, evaluate_every=2)
    found = []
    for name, store, cache in (
        ("a", "host", None),
        ("b", "disk", 0),
        ("c", "disk", 0.002),
        ("d", "auto", None),
    ):
        done = run(asked, out=tmp_path / name, store=store, store_cache=cache, checkpoint_every=2, **LOOP)
        found.append(content(asked, done, tmp_path / name))
        assert done.manifest["private_state"]["store"] == ("host" if store == "auto" else store)
        assert done.manifest["name"] == next(path.name for path in tmp_path.glob("a/*"))
    assert found[1] == found[0] and found[2] == found[0] and found[3] == found[0]
    rows, rounds, _ = found[0]
    assert sorted({row["round"] for row in rows}) == [2, 4, 5]
    assert [row["round"] for row in rounds] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("engine", ["cohort", "pool"])
def test_other_engines_agree_with_themselves(engine: str, tiny: Experiment, tmp_path: Path) -> None:
    asked = replace(tiny, method="map", participation_rate=0.5, rounds=4)
    found = []
    for store in ("host", "disk"):
        options = {"store": store, "store_cache": 0, "checkpoint_every": 1}
        done = run(asked, out=tmp_path / store, engine=engine, device="cpu", **options)
        found.append(content(asked, done, tmp_path / store))
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["fedper", PERSFL, "superfed_mm"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_clients_looked_at_some_at_a_time_give_the_same_rows(
    method: str, chunk: int, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(tiny, method=method, participation_rate=0.25, rounds=3, evaluate_every=1)
    whole = content(asked, run(asked, out=tmp_path / "whole", **LOOP), tmp_path / "whole")
    monkeypatch.setattr("idiolect.experiments.rounds.simulated_clients.CHUNK", chunk)
    done = run(asked, out=tmp_path / "parts", store="disk", store_cache=0, **LOOP)
    assert content(asked, done, tmp_path / "parts") == whole


def test_interrupted_run_may_go_on_with_another_store(tiny: Experiment, tmp_path: Path) -> None:
    asked = replace(tiny, method="map", participation_rate=0.5, rounds=5)
    whole = content(asked, run(asked, out=tmp_path / "whole", **LOOP), tmp_path / "whole")

    class Stopper(Silent):
        def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
            if rounds_done == 4:
                raise KeyboardInterrupt

    for first, then in (("disk", "host"), ("host", "disk")):
        out = tmp_path / first
        options = {"out": out, "checkpoint_every": 1, "store_cache": 0}
        with pytest.raises(KeyboardInterrupt):
            run(asked, store=first, watcher=Stopper(), **options, **LOOP)
        assert content(asked, run(asked, store=then, resume=True, **options, **LOOP), out) == whole


# ---- the next cohort is read ahead


def test_next_cohort_is_prefetched_while_the_current_one_trains(tiny: Experiment) -> None:
    setting = setting_of(replace(tiny, method="fedper", participation_rate=0.5, rounds=4, evaluate_every=9))
    events: list[tuple[str, list[int]]] = []

    class Recorder(LoopEngine):
        def round(self, program: Any, server: Any, privates: Any, observe: bool) -> Any:
            events.append(("train", list(privates)))
            return super().round(program, server, privates, observe)

    simulation = Simulation.start(setting, Recorder(setting.work))
    prefetch = simulation.store.prefetch
    simulation.store.prefetch = lambda c: (events.append(("prefetch", list(c))), prefetch(c))[1]  # type: ignore[method-assign]
    for _ in range(4):
        simulation.advance()
    trained = [clients for event, clients in events if event == "train"]
    before_evaluation = events[:7]
    assert [event for event, _ in before_evaluation] == ["prefetch", "train"] * 3 + ["train"]
    assert [clients for event, clients in before_evaluation if event == "prefetch"] == trained[1:4]


# ---- the estimate


@pytest.mark.parametrize(
    ("method", "row_bytes", "holders", "superseded"),
    [
        ("fedavg", 0, 4, 0),
        ("fedper", HEAD, 4, (4 + 2 * 4) * HEAD),
        ("fedavg_lu", MODEL, 100, 0),
        ("map", MODEL + 64, 4, None),
        (PERSFL, 2 * MODEL + 5 * 64, 100, None),
    ],
)
def test_demand_counts_who_can_come_to_hold_something(
    method: str, row_bytes: int, holders: int, superseded: int | None
) -> None:
    experiment = Experiment(
        method=method,
        dataset="synthetic(n_clients=100, samples_per_client=10, n_features=8, n_classes=3)",
        partition="by_id",
        clients=100,
        model="mlpnet(hidden=8)",
        rounds=2,
        participation_rate=0.02,
    )
    demand = demand_of(setting_of(experiment), 1)
    assert (demand.row_bytes, demand.population, demand.holders) == (row_bytes, 100, holders)
    if superseded is not None:
        assert demand.superseded == superseded


@pytest.mark.parametrize(("store", "heard_by"), [("disk", "say"), ("host", "hint")])
def test_estimate_is_told_before_the_run_begins(
    store: str, heard_by: str, tiny: Experiment, tmp_path: Path
) -> None:
    heard: list[tuple[str, str]] = []

    class Ear(Silent):
        def say(self, sentence: str) -> None:
            heard.append(("say", sentence))

        def hint(self, sentence: str) -> None:
            heard.append(("hint", sentence))

        def begin(self, label: str, rounds: int, done: int) -> None:
            heard.append(("begin", label))

    run(replace(tiny, method="fedper"), out=tmp_path, store=store, store_cache=3, watcher=Ear(), **LOOP)
    where = "in memory" if store == "host" else "on disk with 3.0 MB of it in memory"
    sentence = f"private state: 128 B x 4 clients, at most 512 B, {where}"
    assert heard == [(heard_by, sentence), ("begin", "FedPer")]
    heard.clear()
    run(replace(tiny, method="fedavg"), out=tmp_path, store=store, watcher=Ear(), **LOOP)
    assert heard == [("begin", "FedAvg")]


@pytest.mark.parametrize("store", ["auto", "host", "disk"])
def test_disk_that_is_too_small_is_refused_before_anything_is_written(
    store: str, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 1000)
    asked = replace(tiny, method="map")
    out = tmp_path / "out"
    for start in (
        lambda: run(asked, out=out, store=store, **LOOP),
        lambda: compare(["fedavg", "map"], experiment=tiny, out=out, store=store, **LOOP),
    ):
        with pytest.raises(UserError, match=rf"bytes\) but {out}.* has 1.0 kB free \(1,000 bytes\)"):
            start()
        assert not out.exists()
    assert run(tiny, out=out, store=store, **LOOP).manifest["status"] == "finished"


@pytest.mark.parametrize(("option", "value"), [("store", "tape"), ("store_cache", -1)])
def test_wrong_option_is_refused_before_anything_is_written(
    option: str, value: Any, tiny: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=option):
        run(tiny, out=tmp_path / "out", **{option: value}, **LOOP)
    assert not (tmp_path / "out").exists()


# ---- memory


def program(name: str, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(HERE / name), *words], capture_output=True, text=True, check=False, timeout=7200
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc"
)
def test_disk_store_is_bounded_by_cohort_and_cache(tmp_path: Path) -> None:
    """60 models of 4 MB, of which 2 train at a time: in memory all of them stay, on disk as many as the cache holds."""
    settings = {
        "method": "fedper(count=3)",
        "dataset": "synthetic(n_clients=60, samples_per_client=10, n_features=8, n_classes=3)",
        "partition": "by_id",
        "clients": 60,
        "model": "mlpnet(hidden=1000)",
        "rounds": 24,
        "participation_rate": 0.04,
        "local_epochs": 1,
        "batch_size": 8,
        "evaluate_every": 24,
        "engine": "loop",
        "store_cache": 20,
    }
    grown = {}
    for store in ("host", "disk"):
        found = program(
            "measure_run.py", json.dumps({**settings, "store": store, "out": str(tmp_path / store)})
        )
        grown[store] = (found["resident"][22] - found["resident"][2]) / 1e6
        if store == "disk":
            assert found["peak"] - found["ready"] < 600e6
    assert grown["host"] > 80, "the clients of 20 rounds were to take about 120 MB"
    assert grown["disk"] < 50
