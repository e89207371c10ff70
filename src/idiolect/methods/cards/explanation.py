"""The explanation of a composition: its parts in order, which average is replaced, what it reports, its headline."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import NamedTuple

from idiolect.core import Composition, Placed, compose
from idiolect.methods.cards.docstrings import arguments, one_line, paragraphs
from idiolect.methods.cards.traffic import traffic_notes
from idiolect.methods.catalogue import PARTS
from idiolect.methods.method_text import method, pieces

__all__ = ["Explanation", "explain", "explanation_page"]


class Explanation(NamedTuple):
    """What a composition of methods and parts does.

    Args:
        parts: (part, the piece that brings it) in order; a later one wraps the earlier ones.
        gives_way: plain averages, and the server update that replaces them.
        shared: parts that several pieces bring with the same options.
        predictors: those that evaluation reports; empty if they could not be tried.
        headline: the predictor that stands for the composition in tables.
        reason: why it is that one.
        overrides: in words, where it departs from the scene.
        traffic: remarks about what it sends and which data it needs.
        ideas: by part that is written by itself, what it does; the cards of methods say it of theirs.
        options: by such a part, what each of its options means.
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    gives_way: tuple[str, ...]
    shared: tuple[str, ...]
    predictors: tuple[str, ...]
    headline: str
    reason: str
    overrides: tuple[str, ...]
    traffic: str
    ideas: dict[str, str]
    options: dict[str, dict[str, str]]


def explain(text: str, predictors: Sequence[str] = ()) -> Explanation:
    """Explains the composition that ``text`` writes.

    Args:
        predictors: the names that a round reports, known once it was tried on a network.

    >>> explain("map + fedadam").gives_way
    ('average of map to server_optimiser of fedadam',)
    """
    made, found = method(text), compose(*pieces(text))
    update = next((p for p in found.placed if "server update" in p.part.roles), None)
    shared = dict.fromkeys(p.part.name for p in found.shared)
    owners = {
        name: [p.source for p in (*found.placed, *found.shared) if p.part.name == name] for name in shared
    }
    alone = [p.part.name for p in found.placed if p.alone and p.source in text]
    own = {name: PARTS[name] for name in alone if name in PARTS}
    return Explanation(
        name=text,
        parts=tuple((p.part.written, "" if p.alone else p.source) for p in found.placed),
        gives_way=tuple(f"{_of(p)} to {_of(update)}" for p in found.replaced if update),
        shared=tuple(f"{name} of {' and '.join(sources)}" for name, sources in owners.items()),
        predictors=tuple(predictors),
        headline=made.headline,
        reason=_reason(found),
        overrides=tuple(text for part in made.parts for text in part.overrides),
        traffic=traffic_notes(made),
        ideas={name: one_line(paragraphs(factory)[0]) for name, factory in own.items()},
        options={
            name: {option: said for option, (said, _) in arguments(factory).items()}
            for name, factory in own.items()
        },
    )


def explanation_page(found: Explanation) -> str:
    """Writes the explanation as text that is also Markdown."""
    parts = [f"- {part}" + (f", of {source}" if source else "") for part, source in found.parts]
    overrides = [f"Otherwise than the scene says: {text}." for text in found.overrides]
    options = {
        name: "\n".join(
            f"- `{option} = {signature(PARTS[name]).parameters[option].default!r}`: {said}"
            for option, said in each.items()
        )
        for name, each in found.options.items()
    }
    written = [
        "Parts in order, a later one wraps the earlier ones:",
        "\n".join(parts),
        *(f"Gives way: {what}." for what in found.gives_way),
        *(f"Shared: {what}." for what in found.shared),
        f"Predictors: {', '.join(found.predictors) or 'not known, it does not suit the small network tried'}.",
        f"Headline predictor: {found.headline}, {found.reason}.",
        "\n".join(overrides),
        found.traffic,
        *(f"{name}: {idea}\n\n{options[name]}" for name, idea in found.ideas.items()),
    ]
    return f"{found.name}\n{'=' * len(found.name)}\n\n" + "\n\n".join(p.rstrip() for p in written if p) + "\n"


def _of(placed: Placed) -> str:
    return placed.part.name if placed.alone else f"{placed.part.name} of {placed.source}"


def _reason(found: Composition) -> str:
    chosen, *others = dict.fromkeys(found.headlines or ("global",))
    if not others:
        return "the only one that a part exists for"
    kind = chosen.partition("(")[0]
    equals = [name for name in others if name.partition("(")[0] == kind]
    if equals:
        return f"written before {' and '.join(equals)}, which is as personal"
    return f"more personal than {' and '.join(others)}"
