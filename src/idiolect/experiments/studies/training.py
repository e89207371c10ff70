"""A study's training: a plain loop over epochs that records the head after each of them, written like a run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core.seeds import derive
from idiolect.data import Dataset, load
from idiolect.data.dataset import normalised
from idiolect.evaluation import accumulated_gradient_norms
from idiolect.experiments.progress import Watcher
from idiolect.experiments.studies.observation import observe_epoch, observe_features
from idiolect.experiments.studies.study import Study
from idiolect.models import How, Net, build
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

__all__ = ["study_run"]

KIND = "study"


class Samples(NamedTuple):
    """Images [N, C, H, W] and labels [N] on the device."""

    x: Tensor
    y: Tensor


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
    writer = RunWriter(out, name, manifest)
    rows, rounds = RowBuffer(), RoundBuffer()
    watcher.begin(name, study.epochs, 0)
    try:
        _train(study, data, device, rows, rounds, watcher)
    finally:
        watcher.end()
    return read_run(writer.finish(rounds.table(), rows.table()))


def _train(
    study: Study, data: Dataset, device: str, rows: RowBuffer, rounds: RoundBuffer, watcher: Watcher
) -> None:
    net = build(study.model, data.shape, data.n_classes, seed=derive(study.seed, "initial")).to(device)
    train, test = _train_samples(study, data, device), _samples(data, data.test_x, data.test_y, device)
    weight = next(p for name, p in net.units[-1].named_parameters() if name.endswith("weight"))
    optimiser = torch.optim.SGD(
        net.parameters(),
        lr=study.learning_rate,
        momentum=study.momentum,
        weight_decay=study.weight_decay,
    )
    for epoch in range(1, study.epochs + 1):
        began, losses, gradients = time.perf_counter(), [], torch.zeros_like(weight)
        for batch in _batches(study, len(train.y), epoch):
            optimiser.zero_grad()
            _, logits = net(train.x[batch], How.plain(len(batch), net.n_units, train=True, device=device))
            loss = F.cross_entropy(logits, train.y[batch])
            loss.backward()
            gradients += torch.zeros_like(weight) if weight.grad is None else weight.grad
            optimiser.step()
            losses.append(float(loss.detach()))
        norms = accumulated_gradient_norms([gradients])
        features, logits = _evaluated(net, test.x)
        observe_epoch(rows, epoch, study, weight.detach(), norms, logits, test.y)
        rounds.add(epoch, time.perf_counter() - began, 1, 0, 0, float(np.mean(losses)))
        watcher.advance(epoch, {"loss": float(np.mean(losses))})
    if weight.shape[1] == 2:
        observe_features(rows, study, weight.detach(), features, test.y)


def _train_samples(study: Study, data: Dataset, device: str) -> Samples:
    kept = np.flatnonzero(data.train_y < study.observed)
    return _samples(data, data.train_x[kept], data.train_y[kept], device)


def _samples(data: Dataset, x: np.ndarray, y: np.ndarray, device: str) -> Samples:
    images = torch.from_numpy(normalised(x, data.mean, data.std)).to(device)
    return Samples(images, torch.from_numpy(y).to(device))


def _batches(study: Study, samples: int, epoch: int) -> Iterator[Tensor]:
    """All samples in an order drawn for the epoch; a last batch of one sample is left out."""
    order = np.random.default_rng(derive(study.seed, "batches", epoch)).permutation(samples)
    for first in range(0, samples, study.batch_size):
        batch = order[first : first + study.batch_size]
        if len(batch) > 1:
            yield torch.from_numpy(batch)


@torch.no_grad()
def _evaluated(net: Net, x: Tensor, at_once: int = 512) -> tuple[Tensor, Tensor]:
    """Features and logits of all samples."""
    found = [net(part, How.plain(len(part), net.n_units, device=x.device)) for part in x.split(at_once)]
    features, logits = zip(*found, strict=True)
    return torch.cat(features), torch.cat(logits)
