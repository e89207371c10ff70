"""A card as a page that reads well as it is and as Markdown."""

from __future__ import annotations

from typing import Any

from idiolect.methods.cards.facts import PERSONALISES, Card
from idiolect.methods.cards.traffic import SYMBOLS

__all__ = ["page"]


def page(found: Card) -> str:
    """The card as a page that reads well as it is and as Markdown."""
    kept = [("The server keeps", found.server_keeps), ("A client keeps", found.client_keeps)]
    shares = {
        "all": "the whole network",
        "body": "the network without its last unit",
        "head": "the last unit",
    }
    state = [f"Shared: {shares.get(found.shared, 'nothing of the network')}."]
    state += [f"{who}, beside what is shared:\n\n{_items(what)}" for who, what in kept if what]
    state += [
        f"Scalars of a selected client in a round: {found.down} down, {found.up} up; {SYMBOLS}.",
        found.traffic,
    ]
    options = [f"- `{name} = {value!r}`: {found.meanings[name]}" for name, value in found.options.items()]
    presets = [f"- {name}: {_values(values)}" for name, values in found.preset_values.items()]
    sections = {
        "": [
            found.idea,
            found.notes,
            found.paper,
            f"Parts: {found.parts}.",
            f"Personalises: {found.personalises}; {PERSONALISES[found.personalises]}.",
            f"Headline predictor: {found.headline}.",
        ],
        "Equations": [f"{name}\n\n```text\n{text}\n```" for name, text in found.equations.items()],
        "State and traffic": state,
        "Options": [
            "\n".join(options) or "None.",
            f"Presets: {', '.join(found.presets) or 'none'}.",
            "\n".join(presets),
        ],
        "Otherwise than the scene": ["\n".join(f"- {text}" for text in found.overrides)],
        "Deviations from the papers": [_items(found.deviations)],
        "Cannot be combined with": [_items(found.refuses)],
    }
    text = f"{found.label}\n{'=' * len(found.label)}\n"
    for title, paragraphs in sections.items():
        body = "\n\n".join(p for p in paragraphs if p)
        heading = f"\n{title}\n{'-' * len(title)}\n" if title else ""
        text += f"{heading}\n{body}\n" if body else ""
    return text


def _items(found: dict[str, str]) -> str:
    return "\n".join(f"- {name}: {text}" for name, text in found.items())


def _values(values: dict[str, Any]) -> str:
    return ", ".join(f"`{name} = {value!r}`" for name, value in values.items())
