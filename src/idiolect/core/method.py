"""Method: a chain of parts, and the rules by which parts and methods are combined or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from idiolect.core.objectives import OBJECTIVES
from idiolect.core.part import Choice, Clock, Part, Scene, Structure
from idiolect.core.stage import Plan, default_plan
from idiolect.errors import UserError

__all__ = ["Composition", "Method", "Placed", "chain", "compose"]

ROLES = {  # a method has at most one part with each of these; the text says why
    "server update": "each sets the shared model from the uploads",
    "robust mean": "each puts another mean in the place of the weighted one",
    "uploaded models": "one reads the clients' models on the server, the other sends something else in their place",
    "logit map": "each sets what the one head gives while it trains",
    "companion training": "each trains a second model or head in the steps of the main one",
    "client clusters": "each says which clients share a model",
    "gradient rule": "each decides what a local step is, or counts its steps",
    "main stage": "each sets how long the main stage of local training is, or what a step of it is",
    "main predictor": "each replaces what the network predicts while it trains",
    "private layers": "each says which layers of the model stay on the clients",
    "proximal term": "each keeps the local model near the received one",
    "round start": "each prepares the model that local training begins with",
    "inherited model": "each keeps a moving average of the local models",
}
NAMED = {  # any number of parts may have these roles; the value is the predictor that such a part reports
    "companion predictor": "companion",
    "composed predictor": "composed",
    "tuned predictor": "LU",
}
FIRST_ROUND = Clock(round=0, rounds=1, participation_rate=1.0, cohort_size=1, population=1, learning_rate=0.1)
KINDS = ("companion", "ensemble", "mix", "LU", "composed", "after-local", "global")  # most personal first


@dataclass(frozen=True, repr=False)
class Method:
    """A chain of parts.

    Args:
        headline: the predictor that stands for the method in tables.
        renamed: (part, its predictor, the new name) where two parts report a predictor of the same name.
    """

    name: str
    parts: tuple[Part, ...]
    headline: str
    renamed: tuple[tuple[str, str, str], ...] = ()

    def __repr__(self) -> str:
        return f"<Method {self.name}: {' + '.join(part.written for part in self.parts)}; headline {self.headline}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the parts in order, each with the hooks by which it acts."""
        rows = "".join(
            f"<tr><td><code>{escape(part.written)}</code></td><td>{escape(', '.join(part.hooks))}</td></tr>"
            for part in self.parts
        )
        head = "<thead><tr><th>Part</th><th>Acts by</th></tr></thead>"
        title = f"<p><b>{escape(self.name)}</b>, reported by its predictor <code>{escape(self.headline)}</code></p>"
        return f"{title}<table>{head}<tbody>{rows}</tbody></table>"

    def called(self, part: Part, predictor: str) -> str:
        """Returns the name in results of a predictor that ``part`` reports."""
        new = (name for owner, old, name in self.renamed if (owner, old) == (part.name, predictor))
        return next(new, predictor)

    def is_private(self, name: str, structure: Structure) -> bool:
        return any(p.private(name, structure) for p in self.parts if p.private)

    def never_leaves(self, name: str, structure: Structure) -> bool:
        """Whether no message holds a tensor: it is private, and no part reveals what is."""
        return self.is_private(name, structure) and not any(p.reveals for p in self.parts)

    def is_complete(self, structure: Structure) -> bool:
        """Whether the server holds every parameter of the model."""
        return not any(self.is_private(name, structure) for name in structure.params)

    def plan(self, scene: Scene, clock: Clock) -> Plan:
        plan = default_plan()
        for part in sorted(self.parts, key=lambda part: part.reduce is not None):
            if part.stages:
                plan = part.stages(plan, scene, clock)
        for phase in plan._fields:
            names = [stage.name for stage in getattr(plan, phase)]
            if len(set(names)) < len(names):
                raise UserError(f"{self.name} has two stages of one name among {', '.join(names)}")
        return plan

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Predictors picked on validation data."""
        return tuple(choice for part in self.parts for choice in part.choices)

    @property
    def needs_public(self) -> bool:
        return any(p.needs_public for p in self.parts)

    @property
    def uses_validation(self) -> bool:
        """Whether something is chosen on validation data.  Without such data a ``Choice`` reports its oracle alone."""
        return bool(self.choices) or self.needs_validation

    @property
    def downloads(self) -> bool:
        """Whether the server sends each client something made for it."""
        return any(p.personal_download for p in self.parts)

    @property
    def keeps(self) -> bool:
        """Whether the server keeps something of each client."""
        return any(p.init_kept for p in self.parts)

    @property
    def scored_with_download(self) -> bool:
        """Whether clients are scored with what the server would send each of them at that moment."""
        return any(p.scored_with_download for p in self.parts)

    @property
    def reads_single_uploads(self) -> bool:
        """Whether the server reads uploads one by one, so that it cannot work with their sum alone."""
        return any(_reads_single_uploads(p) or (p.gather and not p.guarantee) for p in self.parts)

    @property
    def hides_clients(self) -> bool:
        """Whether the server hides who took part in a round, so that not even their number may be made use of."""
        return any(p.guarantee and p.guarantee.observer == "receivers" for p in self.parts)

    @property
    def own_weights(self) -> frozenset[str]:
        """Which messages have weights that a part makes itself: the part's, and buffers beside a server update."""
        weighing = [p for p in self.parts if p.weighs]
        buffers = ["buffers"] if any("server update" in p.roles for p in weighing) else []
        return frozenset([*(p.name for p in weighing), *buffers])

    @property
    def needs_validation(self) -> bool:
        """Whether the method cannot run without validation data."""
        return any(p.needs_validation for p in self.parts)

    @property
    def needs_classes(self) -> tuple[str, ...]:
        """The parts, as they are written, that read labels as classes or outputs as their logits."""
        return tuple(part.written for part in self.parts if part.needs_classes)

    def check(self, structure: Structure, scene: Scene, instead: Sequence[str] = ()) -> None:
        """Refuses a network, a scene or a task that a part cannot serve.

        Args:
            instead: methods that would serve the task, for the message.
        """
        if self.needs_classes and not OBJECTIVES[structure.task].has_classes:
            ways = (
                f"use {', '.join(instead)}, or another option of the part"
                if instead
                else "use another method"
            )
            raise UserError(
                f"{self.name} cannot be used for {structure.task}, because its part {self.needs_classes[0]} works on "
                f"one class for each row; {ways}"
            )
        for part in self.parts:
            if part.needs_head and not structure.has_head:
                raise UserError(
                    f"{part.name} needs a network with a head, and none is found in this one; name its last "
                    'linear layer by from_module(module, head="...")'
                )
            if part.check:
                part.check(structure, scene)


class Placed(NamedTuple):
    """A part of a composition and the piece that brings it: a method, or the part itself."""

    part: Part
    piece: int  # the position of the piece
    source: str  # the piece as it is written

    @property
    def alone(self) -> bool:
        """Whether the piece is the part itself."""
        return self.source == self.part.written

    @property
    def named(self) -> str:
        return self.part.name if self.alone else f"{self.source} ({self.part.name})"


class Conflict(NamedTuple):
    one: Placed
    other: Placed
    reason: str
    advice: str = "use one of them"


class Composition(NamedTuple):
    """The parts of several pieces put together, and how their conflicts are settled.

    Args:
        placed: the parts that act, in order.
        replaced: plain averages, in whose place another server update acts.
        shared: parts left out because an earlier piece brings the same part with the same options.
        renamed: see ``Method``.
        headlines: the predictors that parts exist for, the most personal first.
    """

    placed: tuple[Placed, ...]
    replaced: tuple[Placed, ...]
    shared: tuple[Placed, ...]
    renamed: tuple[tuple[str, str, str], ...]
    headlines: tuple[str, ...]


def chain(*pieces: Part | Method, name: str | None = None) -> Method:
    """Returns the method made of ``pieces``, parts and whole methods, in order; a later part wraps the earlier ones.

    A plain average gives way to any other server update.  Pieces that bring the same part with the same options share
    it, at its first place.  Predictors of one name are told apart by the piece that they come from:
    ``companion(ditto)`` and ``companion(fedphp)``.

    The headline is the most personal predictor that a part exists for, whatever the order of the pieces: a companion,
    else an ensemble, a mixture, a tuned model (``LU``), a composed one, ``after-local``, and last ``global``; a name
    that is none of these comes first.  Of two of one kind it is the one that is written first.

    >>> chain(Part("average", headline="global"), Part("proximal")).name
    'average + proximal'
    """
    for piece in pieces:
        if not isinstance(piece, Part | Method):
            advice = (
                f"write method({piece!r})" if isinstance(piece, str) else "make them with idiolect.method"
            )
            raise UserError(f"chain takes parts and methods, got {piece!r}; {advice}")
    found = compose(*pieces)
    joined = " + ".join(piece.name for piece in pieces)
    parts = tuple(placed.part for placed in found.placed)
    return Method(name or joined, parts, next(iter(found.headlines), "global"), found.renamed)


def compose(*pieces: Part | Method) -> Composition:
    """Puts pieces together as ``chain`` says.

    Raises:
        UserError: two pieces cannot be combined; the sentence says why, and what can be written instead.
    """
    brought = _brought(pieces)
    placed, replaced, shared = _settled(brought)
    if conflict := _conflict(brought):
        raise UserError(_refusal(pieces, conflict))
    renamed = tuple(name for role in NAMED for name in _renamed(placed, role))
    new = {(part, old): name for part, old, name in renamed}
    headlines = [new.get((p.part.name, p.part.headline), p.part.headline) for p in placed if p.part.headline]
    return Composition(placed, replaced, shared, renamed, tuple(sorted(headlines, key=_impersonality)))


def _brought(pieces: tuple[Part | Method, ...]) -> tuple[Placed, ...]:
    found = []
    for number, piece in enumerate(pieces):
        source = piece.name if isinstance(piece, Method) else piece.written
        found += [Placed(p, number, source) for p in (piece.parts if isinstance(piece, Method) else (piece,))]
    return tuple(found)


def _settled(
    brought: tuple[Placed, ...],
) -> tuple[tuple[Placed, ...], tuple[Placed, ...], tuple[Placed, ...]]:
    """Sorts parts into those that act, plain averages that are replaced, and parts that are there already."""
    updates = [p for p in brought if "server update" in p.part.roles]
    plain = [p for p in updates if p.part.gives_way]
    replaced = tuple(plain) if len(plain) < len(updates) else ()
    placed: list[Placed] = []
    shared: list[Placed] = []
    for one in (p for p in brought if p not in replaced):
        (shared if any(_same(one.part, earlier.part) for earlier in placed) else placed).append(one)
    return tuple(placed), replaced, tuple(shared)


def _same(one: Part, other: Part) -> bool:
    known = one.name == other.name and one.options is not None
    return one == other or (known and one.options == other.options)


def _conflict(brought: tuple[Placed, ...]) -> Conflict | None:
    """Returns the first two parts that cannot act together, if there are any."""
    placed, _, _ = _settled(brought)
    names: dict[str, Placed] = {}
    taken: dict[str, Placed] = {}
    for one in placed:
        if (other := names.get(one.part.name)) is not None:
            return Conflict(
                other,
                one,
                f"both bring the part {one.part.name}, as {other.part.written} and as {one.part.written}",
                "use one of them, or give both the same options",
            )
        names[one.part.name] = one
        for role in one.part.roles:
            if role in taken and role not in NAMED:
                reason = ROLES.get(role, f"each has the role {role!r}")
                return Conflict(taken[role], one, reason)
            taken[role] = one
    for keeper in (p for p in placed if p.part.private):
        for needy in (p for p in placed if p.part.needs_whole):
            kept = f"{keeper.part.name} keeps layers on the clients"
            return Conflict(
                keeper, needy, f"{kept}, and {needy.part.name} needs every layer of the shared model"
            )
    for robust in (p for p in placed if p.part.robust):
        for other in placed:
            if reason := _unprotected(other.part):
                return Conflict(other, robust, f"{reason}, so that {robust.part.name} would protect nothing")
    for private in (p for p in placed if p.part.guarantee):
        for other in (p for p in placed if p is not private):
            if reason := _revealing(other.part, private.part):
                return Conflict(other, private, reason)
    return None


def _unprotected(part: Part) -> str:
    """Returns why no mean of the uploads, however robust, makes a part withstand hostile ones; empty if one may."""
    if part.mean_alone:
        return f"{part.name} {part.mean_alone}"
    if part.weighs:
        return f"{part.name} weighs uploads by what the clients say of themselves"
    if _reads_single_uploads(part):
        return f"{part.name} makes use of single uploads beside their mean"
    return ""


def _revealing(part: Part, private: Part) -> str:
    """Returns why a part tells more of a client than the noise of ``private`` covers, or works with no noise at all."""
    assert private.guarantee is not None
    if part.weighs:
        return f"{part.name} weighs uploads by numbers that it takes from the data, which no noise covers"
    beside = part.upload and "server update" not in part.roles
    if private.guarantee.unit == "client" and part.keep and beside:
        return f"{part.name} sends what the server must read exactly, and noise would destroy it"
    own = "; with where=local each client adds noise to its own upload, and both go together"
    if private.guarantee.observer == "receivers" and _reads_single_uploads(part):
        return f"{part.name} makes use of single uploads, and only their mean has noise{own}"
    if private.guarantee.observer == "receivers" and part.gather:
        return f"{part.name} lets one upload change what becomes of the others, which the noise does not cover{own}"
    if private.guarantee.unit == "example" and beside:
        return f"{part.name} sends more than the model, which alone is trained with noise"
    if private.guarantee.unit == "example" and not part.apart:
        return _beside_noisy_steps(part)
    return ""


def _beside_noisy_steps(part: Part) -> str:
    """Returns what a part does with examples before the upload beside the steps of the main model."""
    if {"companion training", "main predictor"} & {*part.roles}:
        return f"{part.name} trains something of its own in the same steps, to which no noise is added"
    plan = part.stages(default_plan(), Scene(), FIRST_ROUND) if part.stages else default_plan()
    for stage in plan.before:
        if stage.measure:
            return f"{part.name} measures the examples without noise before the upload, in its stage {stage.name!r}"
        if stage.objective:
            return f"{part.name} trains without noise before the upload, in its stage {stage.name!r}"
    return ""


def _reads_single_uploads(part: Part) -> bool:
    """Whether a part reads uploads one by one after they were merged."""
    return bool(part.individual or part.keep or part.personal_download)


def _refusal(pieces: tuple[Part | Method, ...], conflict: Conflict) -> str:
    one, other = conflict.one, conflict.other
    instead = [text for loser in (one, other) if (text := _without(pieces, loser))]
    ways = ", or ".join([conflict.advice, *([f"write {' or '.join(instead)}"] if instead else [])])
    return f"{one.named} and {other.named} cannot be combined: {conflict.reason}; {ways}"


def _without(pieces: tuple[Part | Method, ...], loser: Placed) -> str:
    """Writes the composition without ``loser``, the other parts of its piece staying; empty if that does not work."""
    piece = pieces[loser.piece]
    if not isinstance(piece, Method):
        return ""
    others = tuple(p for p in piece.parts if p is not loser.part and not p.gives_way)
    left = (*pieces[: loser.piece], *others, *pieces[loser.piece + 1 :])
    if not others or _conflict(_brought(left)):
        return ""
    return " + ".join(p.name if isinstance(p, Method) else p.written for p in left)


def _renamed(placed: tuple[Placed, ...], role: str) -> list[tuple[str, str, str]]:
    """Names the predictors of one role after their pieces, or after their parts where two pieces have one name."""
    reporting = [p for p in placed if role in p.part.roles]
    if len(reporting) < 2:
        return []
    labels = [p.source.partition("(")[0] for p in reporting]
    if len(set(labels)) < len(labels):
        labels = [p.part.name for p in reporting]
    old = NAMED[role]
    return [(p.part.name, old, f"{old}({label})") for p, label in zip(reporting, labels, strict=True)]


def _impersonality(predictor: str) -> int:
    kind = predictor.partition("(")[0]
    return KINDS.index(kind) if kind in KINDS else -1
