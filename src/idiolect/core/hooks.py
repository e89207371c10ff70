"""Hooks: what a part sees when it is asked, and under whose name its errors are reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from idiolect.core.context import UPLOAD, Context
from idiolect.core.method import Method
from idiolect.core.part import Clock, Model, Part, Scene, Task, View

__all__ = ["call", "view_of"]


def call(part: Part, hook: str, *arguments: Any) -> Any:
    """Calls a part's hook; what goes wrong inside is reported under the part's and the hook's name."""
    try:
        return getattr(part, hook)(*arguments)
    except Exception as error:
        error.add_note(f"in the hook {hook!r} of the part {part.name!r}")
        raise


def view_of(
    part: Part | None, context: Context, method: Method, task: Task, scene: Scene, clock: Clock
) -> View:
    """What ``part`` may read on one client; None sees what all parts see."""
    origin = Model(context.server["params"], {**context.server["buffers"], **context.private["buffers"]})

    def seen_by(part: Part | None) -> View:
        name = part.name if part else ""
        broadcast = part is not None and part.broadcasts
        return View(
            origin=origin,
            received=origin,
            current=origin,
            server=context.server["slots"][name] if broadcast else {},
            private=context.private["slots"].get(name, {}),
            facts=context.facts,
            clock=clock,
            scene=scene,
            task=task,
            complete=method.is_complete(task.structure),
            uploads=context.uploads.get(name, {}),
        )

    params, buffers = {"model": origin.params}, {"model": origin.buffers}
    for keeper in method.parts:
        if keeper.private and keeper.start:
            params, buffers = call(keeper, "start", params, buffers, seen_by(keeper))
    received = Model(params["model"], buffers["model"])
    trained = context.results.get(UPLOAD)
    current = Model(trained.params["model"], trained.buffers["model"]) if trained else received
    return replace(seen_by(part), received=received, current=current)
