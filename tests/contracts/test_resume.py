"""A run that was interrupted and taken up again is the run that was not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import idiolect
from idiolect.experiments.progress.watcher import Silent
from idiolect.experiments.rounds.personal_downloads import kept_of_finished
from idiolect.experiments.rounds.private_state_placement import open_private_state, place_private_state
from idiolect.records import ROUND_SCHEMA, ROW_SCHEMA, RunWriter, load_checkpoint
from idiolect.records.reader import Run

from .sameness import assert_exact, numbers, privates
from .tiny import TINY, experiment_of, finished_run

SOME = (
    "fedavg_lu",
    "fedper",
    "map",
    "persfl(lambdas=(0.0, 1.0), temperatures=(1.0,), epochs=1)",
    "superfed_mm",
)
ON_DISK = idiolect.Execution(checkpoint_every=1, store="disk", store_cache=0)
CALLS = {"after the last round": TINY.rounds, "after the last stages": TINY.rounds + 1}


@dataclass
class Interrupter(Silent):
    """Stops a run as a user would, when it is told for the n-th time how far the run is."""

    call: int
    told: int = 0

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        self.told += 1
        if self.told == self.call:
            raise KeyboardInterrupt


def run(method: str, out: Path, **options: Any) -> Run:
    return idiolect.run(experiment_of(method), out=out, engine="loop", checkpoint_every=1, **options)


def interrupt(method: str, out: Path, call: int) -> Path:
    with pytest.raises(KeyboardInterrupt):
        run(method, out, watcher=Interrupter(call))
    (folder,) = out.iterdir()
    assert folder.name.endswith(".partial")
    return folder


def assert_same_record(found: Run, out: Path, method: str) -> None:
    """The record and the last checkpoint are those of a run that nobody interrupted."""
    expected = finished_run(method)
    rows = found.rows[ROW_SCHEMA.names].to_dict("records")
    known = found.rounds[ROUND_SCHEMA.names].drop(columns="seconds").astype(object)
    rounds = known.where(known.notna(), None).to_dict("records")
    assert {"rows": rows, "rounds": rounds} == numbers(expected)
    for name, table in {**expected.counts.tables(), "costs": expected.costs.table()}.items():
        assert getattr(found, name)[table.column_names].to_dict("records") == table.to_pylist()
        assert table.num_rows > 0
    assert found.manifest["choices"] == expected.picks
    assert found.manifest["never_selected"] == 1
    (folder,) = out.iterdir()
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None and checkpoint[0] == TINY.rounds
    mark = checkpoint[1].pop("private")
    kept = kept_of_finished(expected.setting, folder, TINY.clients, checkpoint[1])
    assert (checkpoint[1].pop("kept", None) is not None) == expected.setting.method.keeps
    if kept is not None:
        uploads = expected.participants.downloads.kept
        assert kept.heard == uploads.heard and uploads.heard
        assert_exact(kept.together(list(kept.heard)), uploads.together(list(kept.heard)))
        kept.store.close()
    del checkpoint[1]["resources"]  # what it took of the machine is its own
    assert_exact(checkpoint[1], expected.state())
    placement = place_private_state(expected.setting, folder, ON_DISK)
    store = open_private_state(expected.setting, placement, folder)
    store.restore(mark)
    assert len(store) == len(expected.store)
    assert_exact(store.rows(range(TINY.clients)), privates(expected))
    store.close()


def test_resumed_run_is_the_uninterrupted_one(method: str, tmp_path: Path) -> None:
    folder = interrupt(method, tmp_path, 3)
    found = load_checkpoint(folder)
    assert found is not None and found[0] == 2
    assert_same_record(run(method, tmp_path, resume=True), tmp_path, method)


@pytest.mark.parametrize("name", SOME)
def test_damaged_checkpoint_costs_rounds_not_the_run(name: str, tmp_path: Path) -> None:
    folder = interrupt(name, tmp_path, 3)
    newest = folder / "checkpoint-2.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8] + b"\0" * 8)
    found = load_checkpoint(folder, say=lambda sentence: None)
    assert found is not None and found[0] == 1
    assert_same_record(run(name, tmp_path, resume=True), tmp_path, name)


@pytest.mark.parametrize("moment", CALLS)
@pytest.mark.parametrize("name", SOME)
def test_moment_of_interruption_changes_nothing(name: str, moment: str, tmp_path: Path) -> None:
    interrupt(name, tmp_path, CALLS[moment])
    assert_same_record(run(name, tmp_path, resume=True), tmp_path, name)


@pytest.mark.parametrize("name", SOME)
def test_interruption_while_the_record_is_written_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(name, tmp_path)
    assert_same_record(run(name, tmp_path, resume=True), tmp_path, name)


@pytest.mark.slow
def test_own_normalisation_in_a_deep_network_survives_a_stop(tmp_path: Path) -> None:
    settings = {"model": "vgg8_bn", "dataset": "tiny(channels=3, size=32)"}
    experiment, options = experiment_of("fedbn", **settings), {"engine": "loop", "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        idiolect.run(experiment, out=tmp_path, watcher=Interrupter(3), **options)
    idiolect.run(experiment, out=tmp_path, resume=True, **options)
    (folder,) = tmp_path.iterdir()
    found, whole = load_checkpoint(folder), finished_run("fedbn", **settings)
    assert found is not None
    assert_exact(
        {name: found[1]["server"][name] for name in ("params", "buffers")}, _without_slots(whole.server)
    )
    placement = place_private_state(whole.setting, folder, ON_DISK)
    store = open_private_state(whole.setting, placement, folder)
    store.restore(found[1]["private"])
    rows = store.rows(range(TINY.clients))
    store.close()
    assert_exact(rows, privates(whole))
    scale = "units.3.normalisation.weight"
    assert scale in whole.setting.task.structure.params and scale not in whole.server["params"]
    one, other = (rows[client]["slots"]["private_normalisation"][scale] for client in (1, 3))
    assert not one.equal(other)


def _without_slots(server: Any) -> dict[str, Any]:
    return {name: server[name] for name in ("params", "buffers")}
