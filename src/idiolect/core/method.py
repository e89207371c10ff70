"""Method: a chain of parts, and what cannot be chained."""

from __future__ import annotations

from dataclasses import dataclass

from idiolect.core.part import Choice, Clock, Part, Scene, Structure
from idiolect.core.stage import Plan, default_plan
from idiolect.errors import UserError

__all__ = ["Method", "chain"]

ROLES = {
    "server update": "each sets the shared model from the uploads",
    "logit map": "each sets what the one head gives while it trains",
    "companion training": "each trains a second model or head beside the main one",
    "gradient rule": "each decides what a local step is, or counts its steps",
    "main stage": "each sets how long the main stage of local training is, or what a step of it is",
    "main predictor": "each replaces what the network predicts while it trains",
    "proximal term": "each keeps the local model near the received one",
    "inherited model": "each keeps a moving average of the local models",
    "companion predictor": "each reports a private model of its own as companion",
    "composed predictor": "each reports a model of its own as composed",
    "tuned predictor": "each reports a model of its own as LU",
}


@dataclass(frozen=True)
class Method:
    """A chain of parts.

    Args:
        headline: the predictor that stands for the method in tables.
    """

    name: str
    parts: tuple[Part, ...]
    headline: str

    def is_private(self, name: str, structure: Structure) -> bool:
        return any(p.private(name, structure) for p in self.parts if p.private)

    def is_complete(self, structure: Structure) -> bool:
        """Whether the server holds every parameter of the model."""
        return not any(self.is_private(name, structure) for name in structure.params)

    def plan(self, scene: Scene, clock: Clock) -> Plan:
        plan = default_plan()
        for part in self.parts:
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
        """Whether something is chosen on validation data; a ``Choice`` can go without, its oracle being left."""
        return bool(self.choices) or self.needs_validation

    @property
    def needs_validation(self) -> bool:
        """Whether the method cannot run without validation data."""
        return any(p.needs_validation for p in self.parts)

    def check(self, structure: Structure, scene: Scene) -> None:
        for part in self.parts:
            if part.check:
                part.check(structure, scene)


def chain(*pieces: Part | Method, name: str | None = None) -> Method:
    """The method made of ``pieces`` in order; a later part wraps the earlier ones.

    >>> chain(Part("average", headline="global"), Part("proximal")).name
    'average + proximal'
    """
    parts = tuple(p for piece in pieces for p in (piece.parts if isinstance(piece, Method) else (piece,)))
    _refuse_conflicts(parts)
    joined = " + ".join(piece.name for piece in pieces)
    ours = [p.headline for p in parts if p.headline and "server update" in p.roles]
    headlines = ours + [p.headline for p in parts if p.headline and "server update" not in p.roles]
    return Method(name=name or joined, parts=parts, headline=headlines[-1] if headlines else "global")


def _refuse_conflicts(parts: tuple[Part, ...]) -> None:
    taken: dict[str, str] = {}
    names: set[str] = set()
    for part in parts:
        if part.name in names:
            raise UserError(f"{part.name} stands twice in one method; give it once with the options you want")
        names.add(part.name)
        for role in part.roles:
            if role in taken:
                raise UserError(f"{taken[role]} and {part.name} cannot be combined: {ROLES[role]}")
            taken[role] = part.name
    for keeper in (p for p in parts if p.private):
        for part in (p for p in parts if p.needs_whole):
            raise UserError(
                f"{keeper.name} and {part.name} cannot be combined: {keeper.name} keeps layers on the clients, "
                f"and {part.name} needs every layer of the shared model"
            )
