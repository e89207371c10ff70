"""A part whose server tells clients apart, and one that trains a slot on the server, for tests of what carries them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Method,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    ServerView,
    Slot,
    Stage,
    Trees,
    Uploaded,
    View,
    chain,
    sgd,
)
from idiolect.parts import average

NAME = "remembering"


def remembering(scored: bool = True) -> Part:
    """The server sends each client the middle of the shared model and the client's own last upload.

    It also sends how often the client was heard, which the client keeps; the server counts all uploads in its slot.
    """

    def init_server(shared: Flat, initial: Initial) -> Slot:
        return {"uploads": next(iter(initial.params.values())).new_zeros(())}

    def init_client(initial: Initial) -> Slot:
        return {"times": next(iter(initial.params.values())).new_zeros(())}

    def init_kept(initial: Initial, population: int) -> Slot:
        zero = next(iter(initial.params.values())).new_zeros(())
        return {"model": dict(initial.params), "times": zero}

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        before = view.kept.rows(uploaded.clients)
        slot = {"uploads": view.slot["uploads"] + len(uploaded.clients)}
        return {"model": uploaded.value, "times": before["times"] + 1}, slot

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        kept = view.kept.rows(clients)
        middle = {n: (kept["model"][n] + view.shared.params[n]) / 2 for n in view.shared.params}
        return {"params": middle, "times": kept["times"]}

    def finish(results: Results, view: View) -> Slot:
        return {"times": view.download["times"].clone()}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"mine": Predictor.of(view.current), "received": Predictor.of(view.origin)}

    return average()._replace(
        name=NAME,
        init_server=init_server,
        init_client=init_client,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        scored_with_download=scored,
        finish=finish,
        predictors=predictors,
        headline="mine",
        gives_way=False,
        options=(),
    )


def told_apart(scored: bool = True) -> Method:
    return chain(remembering(scored), name="told_apart")


def drawn_slot(steps: int = 2) -> Part:
    """A slot that the server trains towards the draws of its steps, and towards the mean of the uploaded heads."""

    def init_server(shared: Flat, initial: Initial) -> Slot:
        return {"own": next(iter(initial.params.values())).new_zeros(3)}

    def start(received: Trees, results: Results, view: View) -> Trees:
        return {**received[0], "slot": view.server}, received[1]

    def objective(view: View) -> Loss:
        target = view.uploads["params"][view.task.structure.classifier].mean()

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            return ((params["slot"]["own"] - batch.draws["drawn_slot"] - target) ** 2).sum() / 2

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        stage = Stage(
            "slot",
            "drawn_slot",
            start=start,
            objective=objective,
            steps=steps,
            lr_scale=0.5,
            trainable=lambda name, structure: name == "own",
            optimiser=sgd(0.0),
            split="none",
        )
        return plan._replace(server=(*plan.server, stage))

    def serve_slot(results: Results, view: View) -> Slot:
        return results["slot"].params["slot"]

    return Part(
        "drawn_slot",
        init_server=init_server,
        stages=stages,
        serve_slot=serve_slot,
        draws=lambda structure: 3,
        individual=True,
        broadcasts=True,
        options=(),
    )
