"""The client's side of a round: pure functions that an engine calls for one client or vmaps over many.

An engine runs, for each stage, ``begin``, then ``step`` or ``measure`` batch by batch, then ``end``.  At the upload
mark it calls ``upload``, and after the last stage of a phase ``finish``, ``score`` or ``personalise``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from idiolect.core.context import UPLOAD, Context, Messages, PrivateState, ServerState, State
from idiolect.core.gradient import (
    Differentiate,
    Gradient,
    bare_gradient,
    join_trained,
    split_trained,
    wrapped_gradient,
)
from idiolect.core.method import Method
from idiolect.core.optimiser import Optimiser, local_optimiser
from idiolect.core.part import Batch, Clock, Model, Part, Predictor, Scene, Structure, Task, View
from idiolect.core.schedule import local_schedule
from idiolect.core.sharing import Sharing
from idiolect.core.stage import Result, Stage
from idiolect.core.trees import Flat, Flats, Slot, pick, tree_leaves, tree_structure, where

__all__ = ["Program"]


@dataclass(frozen=True)
class Program:
    """A method bound to a task, a scene and a moment of the run.

    Args:
        differentiate: ``(objective, params) -> (grads, (value, aux))``; the engine's way of taking a gradient.
    """

    method: Method
    task: Task
    scene: Scene
    clock: Clock
    differentiate: Differentiate

    @property
    def sharing(self) -> Sharing:
        return Sharing(self.method, self.task.structure, self.scene.buffers)

    def view(self, part: Part | None, context: Context) -> View:
        return view_of(part, context, self.method, self.task, self.scene, self.clock)

    def ask(self, context: Context, part: Part, hook: str, *arguments: Any) -> Any:
        """Calls a hook with ``arguments`` and the part's view, which is always its last argument."""
        return call(part, hook, *arguments, self.view(part, context))

    def owner(self, stage: Stage) -> Part | None:
        return next((p for p in self.method.parts if p.name == stage.owner), None)

    def begin(self, stage: Stage, context: Context, previous: Result | None) -> State:
        """Returns the state that ``stage`` starts in.

        It starts where its own ``start`` says, else where the stage before it ended, else at the received model.
        """
        if stage.start is not None:
            view = self.view(self.owner(stage), context)
            received = self._merged(context) if stage.on_server else self._received(context)
            params, buffers = stage.start(received, context.results, view)
        elif previous is not None:
            params, buffers = previous.params, previous.buffers
        else:
            params, buffers = self._received(context)
        trained, _ = split_trained(params, stage, self.task.structure)
        view = self.view(self.owner(stage), context)
        zero = torch.zeros_like(context.facts.samples)
        if stage.measure is not None:
            measured = stage.measure.init(Model(params["model"], buffers["model"]), view)
            return State(params, buffers, {}, {}, zero, zero, measured)
        carry = {} if stage.objective else self._carries(params, context)
        return State(params, buffers, self._optimiser(stage).init(trained), carry, zero, zero, {})

    def step(
        self,
        stage: Stage,
        context: Context,
        state: State,
        batches: tuple[Batch, ...],
        active: Tensor | None = None,
    ) -> State:
        """Makes one optimisation step; where ``active`` is given and false, the state stays as it is.

        All models of the step, teachers included, see the same augmented batches.  Measures and predictions see the
        examples without augmentation.
        """
        if self.task.augment is not None:
            batches = tuple(self.task.augment(batch) for batch in batches)
        program = self._at_step(state)
        gradient = program._gradient(stage, context)
        grads, buffers, carry, loss = gradient(state.params, state.buffers, batches, state.carry)
        trained, fixed = split_trained(state.params, stage, self.task.structure)
        lr = program.clock.learning_rate * stage.lr_scale
        trained, memory = self._optimiser(stage).update(grads, state.memory, trained, lr)
        new = State(
            join_trained(trained, fixed, state.params),
            buffers,
            memory,
            carry,
            state.loss + loss,
            state.steps + 1,
            state.measured,
            state.planned,
        )
        return new if active is None else where(active, new, state)

    def measure(
        self, stage: Stage, context: Context, state: State, batch: Batch, active: Tensor | None = None
    ) -> State:
        """Adds one batch to what a measuring stage measures."""
        assert stage.measure is not None
        model = Model(state.params["model"], state.buffers["model"])
        view = self.view(self.owner(stage), context)
        measured = stage.measure.add(state.measured, model, batch, view)
        new = state._replace(measured=measured, steps=state.steps + 1)
        return new if active is None else where(active, new, state)

    def end(self, state: State) -> Result:
        """Returns the result of a stage.  It works element by element, so a stacked cohort can be given as well."""
        mean_loss = state.loss / state.steps.clamp(min=1)
        return Result(state.params, state.buffers, state.carry, state.steps, mean_loss, state.measured)

    def upload(self, context: Context) -> Messages:
        """Returns the messages that a client uploads, by part, without the tensors that never leave it."""
        messages: Messages = {}
        for part in self.method.parts:
            if part.upload:
                message = self.ask(context, part, "upload", context.results)
                value = message.value if part.reveals else self.sharing.public(message.value)
                if tree_leaves(value):
                    messages[part.name] = (value, message.weight)
        averaged = pick(context.results[UPLOAD].buffers["model"], self.sharing.shares_buffer)
        if averaged:
            updates = [p.name for p in self.method.parts if "server update" in p.roles and p.name in messages]
            weight = messages[updates[0]][1] if updates else context.facts.weight
            messages["buffers"] = (averaged, weight)
        return messages

    def finish(self, context: Context) -> PrivateState:
        """Returns the private state after local work; every slot keeps its names and nesting."""
        slots = dict(context.private["slots"])
        for part in self.method.parts:
            if part.finish:
                slot = self.ask(context, part, "finish", context.results)
                if tree_structure(slot) != tree_structure(slots[part.name]):
                    raise TypeError(f"{part.name}.finish returned a slot of another shape than init_client's")
                slots[part.name] = slot
        trained = context.results[UPLOAD].buffers["model"]
        return {"buffers": pick(trained, self.sharing.keeps_buffer), "slots": slots}

    def score(self, context: Context) -> PrivateState:
        """Returns the private state after the stages that follow the merge."""
        return self._settle("score", context)

    def personalise(self, context: Context) -> PrivateState:
        """Returns the private state after the stages that follow the last round."""
        return self._settle("personalise", context)

    def predictors(self, context: Context) -> dict[str, Predictor]:
        """Returns every model that evaluation scores, by name.

        The part with the server update reports first, so that the other parts can replace what it reports.
        """
        found: dict[str, Predictor] = {}
        results = context.results or None
        for part in sorted(self.method.parts, key=lambda part: "server update" not in part.roles):
            if part.predictors:
                reported = call(part, "predictors", self.view(part, context), results)
                found |= {self.method.called(part, name): model for name, model in reported.items()}
        return found

    def serve(self, context: Context, model: Model) -> Model:
        """Returns the shared model after the server's own stages."""
        for part in self.method.parts:
            if part.serve:
                model = call(part, "serve", context.results, self.view(part, context), model)
        return model

    def serve_slots(self, context: Context) -> dict[str, Slot]:
        """Returns the server's slots after its own stages; every slot keeps its names and nesting."""
        slots = dict(context.server["slots"])
        for part in self.method.parts:
            if part.serve_slot:
                slot = call(part, "serve_slot", context.results, self.view(part, context))
                if tree_structure(slot) != tree_structure(slots[part.name]):
                    raise TypeError(
                        f"{part.name}.serve_slot returned a slot of another shape than init_server's"
                    )
                slots[part.name] = slot
        return slots

    def shared_model(self, server: ServerState) -> Predictor:
        """Returns the model that the server would give to a client it knows nothing about."""
        model = Model(server["params"], server["buffers"])
        for part in self.method.parts:
            if part.shared_model:
                slot = server["slots"].get(part.name, {})
                shared: Predictor = call(part, "shared_model", model, slot, self.task)
                return shared
        return Predictor.of(model)

    def remarks(self, context: Context) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for part in self.method.parts:
            if part.remarks:
                found |= self.ask(context, part, "remarks")
        return found

    def predict(self, predictor: Predictor, batch: Batch) -> Tensor:
        forward = predictor.forward or self.task.bare
        return forward(predictor.params, predictor.buffers, batch, False)[0].logits

    def _settle(self, hook: str, context: Context) -> PrivateState:
        slots = dict(context.private["slots"])
        for part in self.method.parts:
            if getattr(part, hook):
                slots[part.name] = self.ask(context, part, hook, context.results)
        return {"buffers": context.private["buffers"], "slots": slots}

    def _merged(self, context: Context) -> tuple[Flats, Flats]:
        """Returns the shared model on the server."""
        return {"model": context.server["params"]}, {"model": context.server["buffers"]}

    def _received(self, context: Context) -> tuple[Flats, Flats]:
        view = self.view(None, context)
        params: Flats = {"model": view.origin.params}
        buffers: Flats = {"model": view.origin.buffers}
        for part in self.method.parts:
            if part.start:
                params, buffers = self.ask(context, part, "start", params, buffers)
        return params, buffers

    def _carries(self, params: Flats, context: Context) -> dict[str, Slot]:
        return {
            part.name: self.ask(context, part, "carry", params) if part.carry else {}
            for part in self.method.parts
            if part.gradient
        }

    def _optimiser(self, stage: Stage) -> Optimiser:
        scene = self.scene
        return stage.optimiser or local_optimiser(
            scene.optimiser, scene.momentum, scene.weight_decay, scene.clip_norm
        )

    def _at_step(self, state: State) -> Program:
        """Returns the program at the learning rate of the coming step, which parts then read from the clock."""
        factor = local_schedule(self.scene.local_schedule) if state.planned else None
        if factor is None:
            return self
        rate: Any = self.clock.learning_rate * factor(state.steps / state.planned["steps"])
        return replace(self, clock=self.clock._replace(learning_rate=rate))

    def _gradient(self, stage: Stage, context: Context) -> Gradient:
        task = self.task
        if stage.objective is not None:
            loss = stage.objective(self.view(self.owner(stage), context))
            return bare_gradient(task.bare, loss, stage, task.structure, self.differentiate)
        ask = partial(self.ask, context)
        return wrapped_gradient(stage, self.method.parts, task, self.differentiate, ask)


def call(part: Part, hook: str, *arguments: Any) -> Any:
    """Calls a hook of a part; an error inside it gets a note that names the part and the hook."""
    try:
        return getattr(part, hook)(*arguments)
    except Exception as error:
        error.add_note(f"in the hook {hook!r} of the part {part.name!r}")
        raise


def with_personal(params: Flat, download: dict[str, Slot], structure: Structure) -> Flat:
    """Returns shared parameters with those in their place that the server made for this client, in the usual order."""
    own = {name: leaf for slot in download.values() for name, leaf in slot.get("params", {}).items()}
    if not own:
        return params
    whole = {**params, **own}
    return {name: whole[name] for name in structure.params if name in whole}


def view_of(
    part: Part | None, context: Context, method: Method, task: Task, scene: Scene, clock: Clock
) -> View:
    """Returns what ``part`` may read on one client; for None, what every part may read."""
    own = context.private.get("download", {})
    params = with_personal(context.server["params"], own, task.structure)
    origin = Model(params, {**context.server["buffers"], **context.private["buffers"]})

    def seen_by(part: Part | None) -> View:
        name = part.name if part else ""
        return View(
            origin=origin,
            received=origin,
            current=origin,
            server=context.server["slots"].get(name, {}),
            download=own.get(name, {}),
            private=context.private["slots"].get(name, {}),
            facts=context.facts,
            clock=clock,
            scene=scene,
            task=task,
            complete=method.is_complete(task.structure),
            uploads=context.uploads.get(name, {}),
        )

    trees: tuple[Flats, Flats] = {"model": origin.params}, {"model": origin.buffers}
    for keeper in method.parts:
        if keeper.private and keeper.start:
            trees = call(keeper, "start", *trees, seen_by(keeper))
    received = Model(trees[0]["model"], trees[1]["model"])
    trained = context.results.get(UPLOAD)
    current = Model(trained.params["model"], trained.buffers["model"]) if trained else received
    return replace(seen_by(part), received=received, current=current)
