"""Stage and Plan: a client's local work described as data.  The engine runs the loops over batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from torch import Tensor

from idiolect.core.optimiser import Optimiser
from idiolect.core.trees import Flats, Slot
from idiolect.errors import refuse_unknown_choice

if TYPE_CHECKING:
    from idiolect.core.part import Batch, Loss, Model, Results, Scene, Structure, View

__all__ = ["Measure", "Plan", "Result", "Stage", "Trees", "as_received", "default_plan", "steps_of"]

SPLITS = ("train", "valid", "public", "none")
SAMPLINGS = ("shuffled", "poisson")
Trees: TypeAlias = tuple[Flats, Flats]  # (params, buffers) of all models that a stage trains


class Result(NamedTuple):
    """The result of a stage."""

    params: Flats  # as trained, the main model under "model"
    buffers: Flats  # as training left them
    carry: dict[str, Slot]  # by part
    steps: Tensor  # that were made
    loss: Tensor  # mean training loss over the steps made
    measured: Slot  # what a measuring stage measured


class Measure(NamedTuple):
    """A quantity accumulated batch by batch over a split, without an optimiser."""

    init: Callable[[Model, View], Slot]  # what is measured before the first batch
    add: Callable[[Slot, Model, Batch, View], Slot]  # the same with one more batch


@dataclass(frozen=True)
class Stage:
    """One run over batches: training, or measuring.

    Args:
        name: what its result is called among the results of the round: ``results[name]``.
        owner: the part whose view ``start`` and ``objective`` get.
        start: (received, results so far, view) -> (params, buffers), where ``received`` are the trees that a
            round would start from, on the server the merged model; None continues from the stage before, or starts
            from ``received``.
        objective: view -> loss on the network that no part has wrapped; None trains the method's own loss.
        measure: what is measured instead of training; the stage then makes no step.
        epochs: None means ``share`` of the scene's local epochs.
        share: of the scene's local epochs; 0.5 is half of local training.
        steps: a fixed number of steps instead of epochs.
        min_steps: the least number of steps, whatever the epochs give.
        has_minimum: whether the scene's least number of local steps applies.
        rounding: ``ceil`` or ``floor``, how a fraction of a step is rounded.
        lr_scale: what the learning rate of the round is multiplied by.
        trainable: names that are trained; None trains all.  Units without a trained tensor run in
            evaluation mode.
        batches_per_step: batches that one step consumes.
        sampling: how batches are drawn: ``shuffled`` passes over the data, or ``poisson``: every step takes each
            example with the same probability, so that batches have any size, on average that of the scene.
        stream: which shuffle of the data is read; stages with one stream see the same batches.
        split: the split read, never ``test``; on the server ``public``, or ``none`` where the objective needs no
            data.
        optimiser: None is the scene's.  Every stage begins with a fresh one.
    """

    name: str = "main"
    owner: str = ""
    start: Callable[[Trees, Results, View], Trees] | None = None
    objective: Callable[[View], Loss] | None = None
    measure: Measure | None = None
    epochs: float | None = None
    share: float = 1.0
    steps: int | None = None
    min_steps: int = 0
    has_minimum: bool = False
    rounding: str = "ceil"
    lr_scale: float = 1.0
    trainable: Callable[[str, Structure], bool] | None = None
    batches_per_step: int = 1
    sampling: Literal["shuffled", "poisson"] = "shuffled"
    stream: str = "main"
    split: Literal["train", "valid", "public", "none"] = "train"
    optimiser: Optimiser | None = None

    @property
    def on_server(self) -> bool:
        return self.split in ("public", "none")

    def __post_init__(self) -> None:
        refuse_unknown_choice(f"the split of the stage {self.name!r}", self.split, SPLITS)
        refuse_unknown_choice(f"the sampling of the stage {self.name!r}", self.sampling, SAMPLINGS)


class Plan(NamedTuple):
    """The stages of a round before and after the upload, on the server, after the merge, and at the end of the run."""

    before: tuple[Stage, ...]
    after: tuple[Stage, ...] = ()
    server: tuple[Stage, ...] = ()  # on the server, with the merged model
    merged: tuple[Stage, ...] = ()  # on every client, with the new shared model
    end: tuple[Stage, ...] = ()  # on every client, once


def as_received(received: Trees, results: Results, view: View) -> Trees:
    """A ``start`` of a stage: the main model as a round would start it, without other trees."""
    params, buffers = received
    return {"model": params["model"]}, {"model": buffers["model"]}


def default_plan() -> Plan:
    return Plan(before=(Stage(has_minimum=True),))


def steps_of(stage: Stage, scene: Scene, n_batches: int) -> int:
    """Returns how many steps a client with ``n_batches`` batches per epoch makes in ``stage``."""
    if stage.steps is not None:
        return stage.steps
    epochs = stage.share * scene.local_epochs if stage.epochs is None else stage.epochs
    whole = {"ceil": math.ceil, "floor": math.floor}[stage.rounding]
    nudge = -1e-9 if stage.rounding == "ceil" else 1e-9
    steps = whole(epochs * n_batches / stage.batches_per_step + nudge)
    floor = scene.min_local_steps if stage.has_minimum and epochs > 0 else 0
    return max(steps, stage.min_steps, floor, 0)
