"""Measures: quantities accumulated over a split of a client's data, without an optimiser."""

from __future__ import annotations

import torch

from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.objectives import OBJECTIVES
from idiolect.core.part import Batch, Model, View
from idiolect.core.stage import Measure
from idiolect.core.trees import Flat, Slot

__all__ = ["recalibration", "validation"]


def validation() -> Measure:
    """Measures the mean loss and merit of the network that no part has wrapped; the merit of classes is accuracy."""

    def init(model: Model, view: View) -> Slot:
        zero = torch.zeros_like(view.facts.samples)
        return {"loss": zero, "merit": zero, "rows": zero}

    def add(means: Slot, model: Model, batch: Batch, view: View) -> Slot:
        out = view.predict(model, batch)
        merit = OBJECTIVES[view.task.structure.task].merit(out.logits, batch.y)
        rows = means["rows"] + batch.mask.sum()
        share = batch.mask.sum() / rows.clamp(min=1)
        found = {
            "loss": view.task.criterion({"model": model.params}, batch, out),
            "merit": mean_over_rows(merit, batch.mask),
        }
        return {**{k: (1 - share) * means[k] + share * v for k, v in found.items()}, "rows": rows}

    return Measure(init, add)


def recalibration(momentum: float = 0.1) -> Measure:
    """Recomputes normalisation statistics for given parameters; they are ``buffers`` of the result.

        running <- sum_b n_b * statistic_b / sum_b n_b       (reset, cumulative average over batches of n_b rows)

    Args:
        momentum: weight of a new batch in the running statistics of the network's layers, unless its structure states
            another.  A layer whose running statistic is zero returns ``momentum * statistic``.
    """

    def reset(model: Model, view: View) -> Flat:
        own = view.task.structure.own_buffers
        return {k: b if k in own else torch.zeros_like(b) for k, b in model.buffers.items()}

    def init(model: Model, view: View) -> Slot:
        return {"buffers": reset(model, view), "rows": torch.zeros_like(view.facts.samples)}

    def add(means: Slot, model: Model, batch: Batch, view: View) -> Slot:
        start, structure = reset(model, view), view.task.structure
        momenta = dict(structure.momenta)
        _, new = view.task.forward(model.params, start, batch, True)
        rows = means["rows"] + batch.mask.sum()
        share = batch.mask.sum() / rows.clamp(min=1)
        mean = {
            k: old
            if k in structure.own_buffers
            else (1 - share) * old + share * new[k] / momenta.get(k, momentum)
            for k, old in means["buffers"].items()
        }
        return {"buffers": mean, "rows": rows}

    return Measure(init, add)
