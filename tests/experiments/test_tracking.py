"""Trackers: what they are told is what the record says, once, and nothing without their package."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from idiolect.errors import UserError
from idiolect.experiments import Simulation, compare, run
from idiolect.experiments.tracking import TRACKERS, open_log
from idiolect.records import Run

LOOP = {"engine": "loop", "device": "cpu"}


def logged_to_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every point that is drawn, by tag, as (round, value)."""
    pytest.importorskip("tensorboard", reason="the extra tracking is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    events = EventAccumulator(str(folder), {"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def logged_to_mlflow(out: Path, name: str) -> tuple[dict[str, dict[int, list[float]]], dict, str]:
    """Every value ever told, by metric and round; the parameters; the status."""
    mlflow = pytest.importorskip("mlflow", reason="the extra tracking is not installed")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{out}/mlflow.db")
    (home,) = [one for one in client.search_experiments() if one.name == "idiolect"]
    (found,) = client.search_runs([home.experiment_id], f"tags.`idiolect.run` = '{name}'")
    told: dict[str, dict[int, list[float]]] = {}
    for metric in found.data.metrics:
        for point in client.get_metric_history(found.info.run_id, metric):
            told.setdefault(metric, {}).setdefault(point.step, []).append(point.value)
    return told, found.data.params, found.info.status


def logged_to_wandb(out: Path) -> list[dict[str, Any]]:
    """What each offline run folder holds, in the order of writing: id, config, summary, files and points by series."""
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415
    from wandb.sdk.internal.datastore import DataStore  # noqa: PLC0415

    found = []
    for file in sorted(out.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        one: dict[str, Any] = {"config": {}, "summary": {}, "files": set(), "points": {}}
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                one["id"] = record.run.run_id
                one["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            for item in record.summary.update:
                one["summary"][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            for item in record.history.item:
                series = one["points"].setdefault("/".join(item.nested_key), [])
                series.append((record.history.step.num, json.loads(item.value_json)))
            one["files"] |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}
            one["files"] |= {entry.path for entry in record.artifact.manifest.contents}
        store.close()
        found.append(one)
    return found


def losses(done: Run) -> list[tuple[int, float]]:
    pairs = zip(done.rounds["round"], done.rounds["train_loss"], strict=True)
    return [(number, pytest.approx(loss)) for number, loss in pairs]


def mean(done: Run, **which: object) -> float:
    rows = done.rows
    for column, value in which.items():
        rows = rows[rows[column] == value]
    assert len(rows)
    return float(rows["value"].mean())


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tracking server of the machine, and no way to reach one."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB__DISABLE_STATS", "true")
    honest = socket.socket.connect

    def connect(one: socket.socket, address: object) -> None:
        assert one.family == socket.AF_UNIX, f"something wants to use the network: {address}"
        honest(one, address)

    monkeypatch.setattr("socket.socket.connect", connect)


@pytest.mark.usefixtures("offline")
def test_tensorboard_holds_the_numbers_of_the_record(tiny, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tracking is not installed")
    done = run(
        replace(tiny, method="superfed_mm(phase_one=0.0)", evaluate_every=1),
        out=tmp_path,
        log=["tensorboard"],
        **LOOP,
    )
    found = logged_to_tensorboard(tmp_path / "tensorboard" / done.manifest["name"])
    assert found["round/train_loss"] == losses(done)
    assert found["round/bytes_up"][-1] == (2, done.rounds["bytes_up"].iloc[-1])
    for predictor, tag in (("global", "global"), ("mix(0.5)", "mix-0.5"), ("mix(oracle)", "mix-oracle")):
        rows = {"split": "test", "population": "all", "predictor": predictor, "metric": "loss"}
        expected = [(number, pytest.approx(mean(done, round=number, **rows))) for number in (1, 2)]
        assert found[f"test/all/before/{tag}/loss"] == expected


@pytest.mark.usefixtures("offline")
def test_mlflow_holds_the_numbers_of_the_record(tiny, tmp_path):
    pytest.importorskip("mlflow", reason="the extra tracking is not installed")
    done = run(replace(tiny, method="fedavg_lu"), out=tmp_path, log=["mlflow"], **LOOP)
    told, parameters, status = logged_to_mlflow(tmp_path, done.manifest["name"])
    assert status == "FINISHED"
    assert parameters["method"] == "fedavg_lu" and parameters["learning_rate"] == "0.03"
    assert told["server/all/before/global/accuracy"] == {
        2: [pytest.approx(mean(done, split="server", metric="accuracy"))]
    }
    end = mean(done, moment="end", split="test", predictor="LU", metric="accuracy")
    assert told["test/all/end/LU/accuracy"] == {2: [pytest.approx(end)]}
    assert sorted(told["round/train_loss"]) == [1, 2]
    _open_in_another_process(done)


PLAIN_CLIENT = """
import sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("idiolect").experiment_id])
print(run.info.status, run.data.metrics["round/bytes_up"])
found = [file.path for folder in (None, "report") for file in client.list_artifacts(run.info.run_id, folder)]
print(*found, open(client.download_artifacts(run.info.run_id, "record.manifest.json")).read().count("spec_hash"))
"""


def _open_in_another_process(done: Run) -> None:
    """A plain client finds numbers and files in the database that the command line names."""
    out = done.folder.parent
    look = open_log(["mlflow"], out).look[0]
    assert look == f"MLflow: mlflow ui --backend-store-uri sqlite:///{out}/mlflow.db"
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAIN_CLIENT, look.split()[-1]], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    first, second = answer.stdout.splitlines()
    assert first == f"FINISHED {float(done.rounds['bytes_up'].iloc[-1])}", answer.stderr
    *files, hashes = second.split()
    tables = {"record.clients.parquet", "record.rounds.parquet", "record.costs.parquet"}
    tables |= {"record.calibration.parquet", "record.confusion.parquet"}
    assert {file for file in files if file.startswith("record.")} == {"record.manifest.json", *tables}
    assert "report/table.md" in files
    assert {"report/curves.png", "report/clients.png"} < set(files) and hashes == "1"


@pytest.mark.usefixtures("offline")
def test_offline_folder_of_wandb_holds_the_numbers_of_the_record(tiny, tmp_path):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    done = run(replace(tiny, method="fedavg_lu"), out=tmp_path, log=["wandb"], **LOOP)
    (found,) = logged_to_wandb(tmp_path)
    assert found["points"]["round/train_loss"] == losses(done)
    end = mean(done, moment="end", split="test", predictor="LU", metric="accuracy")
    assert found["points"]["test/all/end/LU/accuracy"] == [(2, pytest.approx(end))]
    assert found["config"]["method"] == "fedavg_lu" and found["config"]["learning_rate"] == 0.03
    assert found["summary"]["status"] == "finished"
    assert found["summary"]["test/all/end/LU/accuracy"] == pytest.approx(end)
    assert {
        "record.manifest.json",
        "record.clients.parquet",
        "record.rounds.parquet",
        "report/table.md",
    } < found["files"]
    assert found["points"]["report/curves/_type"] == [(2, "image-file")]


def test_wandb_is_online_only_for_who_asks_or_is_logged_in(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    keys = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(keys))
    assert "wandb sync" in open_log(["wandb"], tmp_path).look[0]
    keys.write_text("machine api.wandb.ai login user password key\n")
    assert open_log(["wandb"], tmp_path).look == ["Weights & Biases: the project idiolect"]
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert "wandb sync" in open_log(["wandb"], tmp_path).look[0]


@pytest.mark.usefixtures("offline")
def test_resumed_run_is_logged_as_if_never_stopped(tiny, tmp_path, monkeypatch):
    """Stopped in its third round before any checkpoint: two rounds are run again, and none is told twice."""
    for name in TRACKERS:
        pytest.importorskip(name, reason="the extra tracking is not installed")
    experiment = replace(tiny, rounds=4, evaluate_every=2)
    honest = Simulation.advance

    def advance(simulation: Simulation) -> None:
        if simulation.round == 2:
            raise KeyboardInterrupt
        honest(simulation)

    asked = {"out": tmp_path, "log": TRACKERS, "checkpoint_every": 3, **LOOP}
    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "advance", advance)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, **asked)
    (name,) = [path.name for path in (tmp_path / "tensorboard").iterdir()]
    assert logged_to_mlflow(tmp_path, name)[2] == "KILLED"
    done = run(experiment, resume=True, **asked)
    assert done.manifest["name"] == name
    told, _, status = logged_to_mlflow(tmp_path, name)
    assert status == "FINISHED"
    assert told["round/train_loss"] == {number: [loss] for number, loss in losses(done)}
    assert logged_to_tensorboard(tmp_path / "tensorboard" / name)["round/train_loss"] == losses(done)
    before, after = logged_to_wandb(tmp_path)
    assert before["id"] == after["id"] and before["summary"]["status"] == "stopped"
    assert before["points"]["round/train_loss"] + after["points"]["round/train_loss"] == losses(done)


def test_log_changes_no_number(tiny, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tracking is not installed")
    plain = run(tiny, out=tmp_path / "a", **LOOP)
    told = run(tiny, out=tmp_path / "b", log=["tensorboard"], **LOOP)
    assert plain.rows.equals(told.rows)


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_package_is_one_sentence_and_nothing_is_run(name, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    for module in [module for module in sys.modules if module.startswith(f"{name}.")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"idiolect.experiments.tracking.{name}_tracker", raising=False)
    extra = "wandb" if name == "wandb" else "tracking"
    with pytest.raises(UserError, match=rf"logging to {name} needs .*pip install 'idiolect\[{extra}\]'"):
        compare(["fedavg"], experiment=tiny, out=tmp_path, log=[name], **LOOP)
    assert not list(tmp_path.iterdir())


def test_unknown_tracker_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="log must be one of tensorboard, mlflow, wandb; got 'comet'"):
        open_log(["comet"], tmp_path)


@pytest.mark.usefixtures("offline")
def test_place_that_mlflow_cannot_use_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra tracking is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://somewhere")
    with pytest.raises(UserError, match="MLflow cannot log to nonsense://somewhere"):
        open_log(["mlflow"], tmp_path)
