"""A dry round: tries every stage and hook of a method on the meta device, for shapes and errors, before a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from idiolect.core import (
    OBJECTIVES,
    Batch,
    Context,
    Facts,
    Initial,
    Messages,
    PrivateState,
    Program,
    ServerState,
    Slot,
    Stage,
    broadcast,
    first_download,
    init_kept,
    init_private,
    init_server,
    keep_uploads,
    make_downloads,
    released,
    server_round,
    without_replaced,
)
from idiolect.core.context import with_download, without_download
from idiolect.core.noise import SecureNoise
from idiolect.core.trees import flatten, stack, tree_map
from idiolect.engines.client_packing import SINGLE, Feed
from idiolect.engines.stages import run_round, run_settling, serve_on
from idiolect.errors import UserError
from idiolect.federation import KeptUploads

__all__ = ["DryClient", "Forms", "ReportedNames", "dry_client", "dry_round", "reads_class_counts"]

T = TypeVar("T")


class ReportedNames(NamedTuple):
    """The names that a client's results have at each moment of a round.

    Args:
        untrained, trained, merged, end: of the predictors before the round, after it, and after each phase.
        remarks: of the numbers that parts want recorded.
    """

    untrained: tuple[str, ...]
    trained: tuple[str, ...]
    merged: tuple[str, ...]
    end: tuple[str, ...]
    remarks: tuple[str, ...]


class Forms(NamedTuple):
    """The shapes of a round, as trees without numbers.

    Args:
        privates: a client's private state at first and after each phase.
        broadcasts: what travels to a client, before and after the merge.
        messages: what a client uploads.
        reported: the names that a client's results have.
        download: by part, what the server sends a client alone.
        kept: by part, what the server keeps of a client.
    """

    privates: list[PrivateState]
    broadcasts: list[ServerState]
    messages: Messages
    reported: ReportedNames
    download: dict[str, Slot] = {}
    kept: dict[str, Slot] = {}

    @property
    def predictors(self) -> tuple[str, ...]:
        """Returns the names of all predictors."""
        return tuple(dict.fromkeys((*self.reported.trained, *self.reported.merged, *self.reported.end)))


def dry_round(
    program: Program, initial: Initial, x: Tensor, n_classes: int, with_numbers: bool = False
) -> Forms:
    """Runs one step of every stage, every phase and every predictor of one client, on rows of zeros.

    Args:
        x: rows of the dtype and shape that the run will use.
        with_numbers: computes on the CPU, for a network whose forward pass may depend on values.  A method whose
            server tells clients apart is always tried so, because its hooks there may look at values.

    Returns:
        Every shape that private state, broadcasts and messages can have.

    Raises:
        UserError: a hook fails, for example because two parts do not fit; the sentence names part and hook.
    """
    method = program.method
    device = "cpu" if with_numbers or method.downloads or method.keeps else "meta"
    try:
        return _attempt(program, initial, x, n_classes, device)
    except UserError:
        raise
    except Exception as error:
        where = " ".join(dict.fromkeys(getattr(error, "__notes__", []))) or "outside any hook"
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{method.name} does not work on this network: {type(error).__name__} {reason} ({where})"
        ) from error


def reads_class_counts(program: Program, initial: Initial, x: Tensor, n_classes: int) -> bool:
    """Returns whether a client's round depends on how many examples of each class it has."""
    client = dry_client(program, initial, x, n_classes)
    asked = False

    class Watched(Facts):
        @property
        def class_counts(self) -> Tensor:
            nonlocal asked
            asked = True
            return self[0]

    run_round(program, SINGLE, client.context._replace(facts=Watched(*client.context.facts)), client.feed)
    return asked


class DryClient(NamedTuple):
    """A client before its first round, on rows of zeros.

    Args:
        server: the server's first state.
        one: the number 1 in the run's precision, on the device.
        feed: returns one step's batches for a stage.
    """

    server: ServerState
    context: Context
    batch: Batch
    one: Tensor
    feed: Callable[[Stage], Feed]


def dry_client(
    program: Program, initial: Initial, x: Tensor, n_classes: int, *, rows: int = 2, device: str = "meta"
) -> DryClient:
    """Returns a client and one batch of ``rows`` zeros on the device.

    Args:
        x: rows of the dtype and shape that the run will use.
    """
    method, structure = program.method, program.task.structure
    given, initial = initial, _initial_on(device, initial)
    server = _moved(init_server(method, initial, structure), device)
    private = _moved(init_private(method, initial, structure, program.scene.buffers), device)
    if method.downloads:
        private["download"] = _moved(
            first_download(program, init_server(method, given, structure), given), device
        )
    one = next(iter(initial.params.values())).new_ones(())
    context = Context(broadcast(method, server), private, Facts(one.new_ones(n_classes), one, one), {})
    widths = {p.name: width(structure) for p in method.parts if (width := p.draws or p.noise)}
    draws = {name: one.new_ones(width) for name, width in widths.items()}
    key = torch.zeros(rows, dtype=torch.int64, device=device)
    inputs = torch.zeros(rows, *x.shape[1:], dtype=x.dtype, device=device)
    targets = key if OBJECTIVES[structure.task].has_classes else one.new_zeros(rows, n_classes)
    batch = Batch(inputs, targets, one.new_ones(rows), key, draws)

    def feed(stage: Stage) -> Feed:
        return iter([((batch,) * stage.batches_per_step, None)])

    return DryClient(server, context, batch, one, feed)


def _one(stacked: T) -> T:
    """Returns the tree of the only client in a stack."""
    return tree_map(lambda leaf: leaf[0], stacked)


def _attempt(program: Program, initial: Initial, x: Tensor, n_classes: int, device: str) -> Forms:
    method, structure = program.method, program.task.structure
    server, context, batch, one, feed = dry_client(program, initial, x, n_classes, device=device)
    sent, own = context.server, context.private.get("download", {})
    context = context._replace(server=without_replaced(sent, own))
    held = [without_download(context.private)]
    names = [tuple(program.predictors(context))]
    context, messages = run_round(program, SINGLE, context, feed)
    held.append(without_download(context.private))
    names.append(_predict(program, context, batch))
    stacked = {part: (stack([value, value]), one.new_ones(2)) for part, (value, _) in messages.items()}
    each = tree_map(lambda leaf: stack([leaf, leaf]), own)
    stacked = released(method, context.server, each, [0, 1], stacked, program.clock, SecureNoise())
    server = server_round(method, server, stacked, program.clock)
    if method.plan(program.scene, program.clock).server:
        server = serve_on(program, server, stacked, feed, one)
    kept: dict[str, Slot] = {}
    if method.reads_single_uploads:
        kept = _moved(init_kept(method, initial, max(2, program.clock.population)), device)
        server, own = _second_download(program, kept, server, stacked, own)
    if method.is_complete(structure):
        program.predict(program.shared_model(server), batch)
    later = broadcast(method, server)
    for phase in ("merged", "end"):
        context = context._replace(server=later, private=with_download(context.private, own), results={})
        private = run_settling(program, SINGLE, phase, context, feed)
        held.append(private)
        context = context._replace(private=private)
        scored = with_download(private, own) if method.scored_with_download else private
        names.append(_predict(program, context._replace(private=scored), batch))
    untrained, trained, merged, end = names
    remarks = tuple(program.remarks(context._replace(private=scored)))
    reported = ReportedNames(untrained, trained, merged, end, remarks)
    return Forms(held, [sent, later], messages, reported, own, kept)


def _second_download(
    program: Program,
    row: dict[str, Slot],
    server: ServerState,
    messages: Messages,
    first: dict[str, Slot],
) -> tuple[ServerState, dict[str, Slot]]:
    """Keeps the uploads of two clients; returns the server's state and what a client is sent then.

    Args:
        row: by part what is kept of a client not heard from, on the device of the server's state.
    """
    kept = KeptUploads.in_memory(row, 2)
    server, clients, rows = keep_uploads(program, server, [0, 1], messages, kept.of, seed=0)
    kept.write(clients, rows)
    again = _one(make_downloads(program, server, [0], kept.of, seed=0))
    if problem := _other_form(again, first):
        raise UserError(
            f"{program.method.name} sends a client {problem}; a download has one form in all rounds"
        )
    return server, again


def _other_form(found: Any, expected: Any) -> str:
    """Returns how two trees differ in names or shapes; nothing if they do not."""
    ours, theirs = flatten(found), flatten(expected)
    if ours[1] != theirs[1]:
        return "other tensors in its second round than in its first"
    pairs = [
        (a, b) for a, b in zip(ours[0], theirs[0], strict=True) if (a.shape, a.dtype) != (b.shape, b.dtype)
    ]
    return (
        f"a tensor {list(pairs[0][0].shape)} where the first was {list(pairs[0][1].shape)}" if pairs else ""
    )


def _predict(program: Program, context: Context, batch: Batch) -> tuple[str, ...]:
    found = program.predictors(context)
    for predictor in found.values():
        program.predict(predictor, batch)
    return tuple(found)


def _initial_on(device: str, initial: Initial) -> Initial:
    """Returns the initial model on the device, where further initialisations are drawn too."""
    return _moved(initial, device)._replace(
        draw=lambda purpose, own: _moved(initial.draw(purpose, own), device),
        spread=lambda purpose, shape: _moved(initial.spread(purpose, shape), device),
    )


def _moved(tree: T, device: str) -> T:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, tree)
