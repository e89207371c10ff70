"""A study as a record: its head is observed after every epoch, and all is written like a run."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from idiolect.data import Dataset, load
from idiolect.evaluation import accumulated_gradient_norms
from idiolect.experiments.progress import Watcher
from idiolect.records import (
    RoundBuffer,
    RowBuffer,
    Run,
    RunWriter,
    finished,
    finished_folder,
    read_run,
    run_name,
    spec_hash,
)
from idiolect.reproduction.studies.federation import StudyFederation
from idiolect.reproduction.studies.observation import observe_epoch, observe_features
from idiolect.reproduction.studies.study import Study

__all__ = ["study_run"]

KIND = "study"


def study_run(
    study: Study, out: str | Path, device: str, data_dir: str | Path | None, watcher: Watcher
) -> Run:
    """Trains, records and returns the record; a study that is finished already is read instead."""
    spec = dataclasses.asdict(study)
    del spec["seed"]
    name = run_name(f"{KIND}-{study.observed}-classes", study.dataset, "", spec_hash(spec), study.seed)
    if finished(out, name):
        watcher.say(f"{name} is finished already: read, not run again")
        return read_run(finished_folder(out, name))
    data = load(study.dataset, data_dir)
    manifest = {
        **{"method": KIND, "kind": KIND, "label": name, "seed": study.seed, "headline": "head"},
        **{"dataset": study.dataset, "model": study.model, "spec": dataclasses.asdict(study)},
        **{"spec_hash": spec_hash(spec), "source": dict(data.manifest), "notes": []},
    }
    rows, rounds = RowBuffer(), RoundBuffer()
    with RunWriter(out, name, manifest) as writer:
        watcher.begin(name, study.epochs, 0)
        try:
            _train(study, data, device, rows, rounds, watcher)
        finally:
            watcher.end()
        return read_run(writer.finish(rounds.table(), rows.table()))


def _train(
    study: Study, data: Dataset, device: str, rows: RowBuffer, rounds: RoundBuffer, watcher: Watcher
) -> None:
    federation = StudyFederation.of(study, data, device)
    now = federation.start()
    for epoch in range(1, study.epochs + 1):
        began = time.perf_counter()
        now = federation.advance(epoch - 1, now)
        norms = accumulated_gradient_norms([now.gradients])
        features, logits = federation.tested(now)
        observe_epoch(rows, epoch, study, federation.head(now), norms, logits, federation.test_y)
        rounds.add(epoch, time.perf_counter() - began, 1, 0, 0, now.loss)
        watcher.advance(epoch, {"loss": now.loss})
    if federation.task.structure.n_features == 2:
        observe_features(rows, study, federation.head(now), features, federation.test_y)
