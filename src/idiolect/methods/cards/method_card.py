"""The card of a method: its idea, equations, state, traffic, options and refusals, as a value and as a page.

Everything on it is read from the method's signature, from docstrings and from a round without steps.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

from idiolect.core import Method, chain
from idiolect.errors import UserError, unknown_name
from idiolect.methods.cards.docstrings import (
    deviations,
    equations,
    known_parts,
    meaning,
    one_line,
    paragraphs,
)
from idiolect.methods.cards.traffic import SYMBOLS, probe, traffic_notes, travels
from idiolect.methods.catalogue import METHODS, PARTS, find

__all__ = ["KEPT", "PERSONALISES", "Card", "card", "of_kind", "page"]

PERSONALISES = {
    "nothing": "one shared model serves every client",
    "layers": "some layers, or a head beside the shared one, are the client's own",
    "everything": "every client keeps its whole model",
    "download": "the server makes a model for every client, which trains it, or a model of its own near it",
    "clusters": "every cluster of clients has a model of its own",
    "companion": "every client keeps a private model beside the shared one",
    "mixture": "a private and the shared model, or several shared ones, are mixed",
    "after-training": "the final shared model is adapted once, after the last round",
}

PAPERS = {  # where the method's own docstring names none
    "local": "Baseline of FedPHP, ECML-PKDD 2021, and of FedPer, https://arxiv.org/abs/1912.00818",
    "fedprox_lu": "Baseline of SuPerFed, https://arxiv.org/abs/2109.07628, after https://arxiv.org/abs/1910.10252",
    "persfl_gd": "Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191",
    "superfed_lm": "Hahn, Jeong, Lee 2022, https://arxiv.org/abs/2109.07628",
}
KEPT = {  # by part, in words: what the server keeps, and what a client keeps
    "adaptive_aggregation": ("", "its last model's mixed units, their weights, and how often it took part"),
    "adaptive_companion": ("", "the private model, and the map between the features of both"),
    "alternating_layers": ("", "the private layers"),
    "attentive_mixture": ("", "its model"),
    "chosen_clusters": ("the models of the other clusters", "the number of its cluster"),
    "class_prototypes": ("the prototype of every class", ""),
    "component_mixture": ("the other components", "its shares of the components"),
    "conditional_features": ("the embeddings of the classes and the valve", "the private head"),
    "conditional_policy": ("the policy", "its own head"),
    "contrastive": ("", "the last local model, and how often it took part"),
    "control_variates": ("the control c", "the control c_k"),
    "critical_parameters": ("the overlap from which clients share", ""),
    "curvature": ("the sums U and V", "its own share of U and V, and the round it is from"),
    "directed_relationships": ("", "its mixture of core models, and its own share in it"),
    "dynamic_regulariser": ("the dual h", "the dual g_k"),
    "feature_alignment": ("", "its mean feature of every class, and how often it took part"),
    "feature_fusion": ("the fusion operator", ""),
    "feature_generator": ("the generator, and how many rows of each label its clients have", ""),
    "fine_tune": ("", "the tuned model, after the last round"),
    "fixed_head": ("", "the head as it was initialised"),
    "gated_companion": ("", "the private model and the gate"),
    "hypernetwork": ("the hypernetwork", ""),
    "global_header": ("", "the extractor"),
    "inherited_model": ("", "the inherited model and its counter"),
    "inherited_teacher": ("", "the inherited model and its counter"),
    "label_distillation": (
        "for each label the sum of the clients' mean predictions, and the round it is from",
        "its mean predictions, and the round they are from",
    ),
    "low_rank_average": ("the rank of each matrix of its last update", ""),
    "meta_gradient": ("", "the adapted model, after the last round"),
    "mixed_companion": ("", "the private model and alpha"),
    "mixed_subspace": ("", "the private model"),
    "moreau_envelope": ("", "the personal model"),
    "mutual_companion": ("", "the private model"),
    "nearest_neighbours": (
        "",
        "after the last round a store with room for the features and labels of as many rows as its cap, and lambda",
    ),
    "normalised_average": ("the momentum, where there is one", ""),
    "optimal_teacher": ("", "the best teacher, its loss and round; after the last round the student"),
    "personal_head": ("", "the private head"),
    "private_layers": ("", "the private layers"),
    "private_normalisation": ("", "its batch normalisation"),
    "proximal_companion": ("", "the private model"),
    "representation_bias": ("the mean feature that all agreed on", "the vector added to its features"),
    "similarity_mixture": ("", "its last model of the second phase, and how often it took part in it"),
    "server_optimiser": ("the moments of the optimiser", ""),
    "solution_simplex": ("the other corners, and how clients are placed by their updates", ""),
    "split_clusters": ("the models of the clusters, and where each was split", ""),
}


class Card(NamedTuple):
    """All that is known about a method without running it.

    Args:
        personalises: a word of ``PERSONALISES``.
        equations: by part, and by module that several parts use: the docstring of the module.
        shared: what the server holds of the network: all, body, head or nothing.
        server_keeps, client_keeps: by part, beside the shared model: what it keeps, and how many scalars before
            round 1.
        kept_of_clients: by part, how many scalars the server keeps of each client on its disk.
        down, up: scalars that a selected client receives and sends in a round.
        traffic: remarks about what is sent and which data are needed.
        options: with their defaults; ``meanings`` say what they are and their ranges.
        presets: ``paper`` where the paper states values, ``official`` where the authors' code has others; their
            options are in ``preset_values``.
        overrides: in words, where it departs from the scene.
        refuses: by part that cannot be added, the reason.
        deviations: from the papers, by part.
    """

    name: str
    label: str
    personalises: str
    idea: str
    notes: str
    paper: str
    parts: str
    equations: dict[str, str]
    shared: str
    server_keeps: dict[str, str]
    client_keeps: dict[str, str]
    kept_of_clients: dict[str, str]
    down: str
    up: str
    traffic: str
    options: dict[str, Any]
    meanings: dict[str, str]
    presets: tuple[str, ...]
    preset_values: dict[str, dict[str, Any]]
    headline: str
    overrides: tuple[str, ...]
    refuses: dict[str, str]
    deviations: dict[str, str]


def card(name: str) -> Card:
    """Returns the card of a method with its default options.

    >>> card("scaffold").up, card("fedper").up, card("fedper").personalises
    ('2P', 'P_B', 'layers')
    """
    name, entry = find(name)
    made = entry.make()
    first, *others = [one_line(p) for p in paragraphs(entry.make) if not p.startswith("Args:")]
    papers = [p for p in others if re.search(r"\b(19|20)\d\d\b|https://", p)]
    found = travels(made)
    signature = inspect.signature(entry.make).parameters
    return Card(
        name=name,
        label=entry.label,
        personalises=_personalises(made),
        idea=first,
        notes=" ".join(p for p in others if p not in papers),
        paper=" ".join(papers) or PAPERS.get(name, ""),
        parts=" + ".join(part.name for part in made.parts),
        equations=equations(made),
        shared=found.shared,
        server_keeps=_kept(found.server, 0),
        client_keeps=_kept(found.private, 1),
        kept_of_clients={part: count for part, count in found.kept.items() if count != "0"},
        down=found.down,
        up=found.up,
        traffic=traffic_notes(made),
        options={option: parameter.default for option, parameter in signature.items()},
        meanings={option: meaning(entry.make, made, option) for option in signature},
        presets=tuple(entry.presets),
        preset_values=entry.presets,
        headline=made.headline,
        overrides=tuple(text for part in made.parts for text in part.overrides),
        refuses=_refuses(made),
        deviations={part: text for part in known_parts(made) if (text := deviations(PARTS[part]))},
    )


def of_kind(kind: str | None) -> list[Card]:
    """Returns the cards of all methods, or of those that personalise in the way ``kind``."""
    if kind is not None and kind not in PERSONALISES:
        raise unknown_name("way to personalise", kind, PERSONALISES)
    return [found for name in METHODS if (found := card(name)).personalises == (kind or found.personalises)]


def _kept(counts: dict[str, str], place: int) -> dict[str, str]:
    """Joins words and counts by part; ``place`` is 0 for the server and 1 for a client."""
    words = {part: KEPT.get(part, ("", ""))[place] for part in counts}
    both = {part: [w for w in (words[part], count) if w and w != "0"] for part, count in counts.items()}
    return {part: ": ".join(found) for part, found in both.items() if found}


def _personalises(made: Method) -> str:
    structure = probe().structure
    last = next((part for part in reversed(made.parts) if part.headline == made.headline), None)
    private = [made.is_private(name, structure) for name in structure.params]
    if made.headline == "global" or last is None:
        return "nothing"
    if "client clusters" in last.roles:
        return "clusters"
    if last.personalise:
        return "after-training"
    if made.headline.startswith("mix("):
        return "mixture"
    if made.downloads and not any(private):
        return "download"
    if made.headline == "composed":
        mixed = "companion training" in last.roles and "logit map" not in last.roles
        return "everything" if all(private) else "mixture" if mixed else "layers"
    return "companion"


def _refuses(made: Method) -> dict[str, str]:
    found = {}
    for name, factory in PARTS.items():
        if name not in known_parts(made):
            try:
                chain(made, factory())
            except UserError as error:
                found[name] = str(error)
    return found


def page(found: Card) -> str:
    """Writes the card as text that is also Markdown."""
    kept = [("The server keeps", found.server_keeps), ("A client keeps", found.client_keeps)]
    kept += [("The server keeps of each client, on its disk", found.kept_of_clients)]
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
    for title, texts in sections.items():
        body = "\n\n".join(each for each in texts if each)
        heading = f"\n{title}\n{'-' * len(title)}\n" if title else ""
        text += f"{heading}\n{body}\n" if body else ""
    return text


def _items(found: dict[str, str]) -> str:
    return "\n".join(f"- {name}: {text}" for name, text in found.items())


def _values(values: dict[str, Any]) -> str:
    return ", ".join(f"`{name} = {value!r}`" for name, value in values.items())
