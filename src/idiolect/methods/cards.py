"""Method cards: what a method is, made from its signature, its docstrings and a round without steps.

A card holds the idea, the equations of its parts, what is shared and what is kept, what travels, the options and
what cannot be added to it.  Counts are symbols: P parameters of the network, P_B below the last unit and P_H in it,
d features, K classes, n_obs classes that the client holds.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Context,
    Facts,
    Flat,
    Initial,
    Method,
    Model,
    Out,
    Program,
    Scene,
    Structure,
    Task,
    Tree,
    broadcast,
    chain,
    init_private,
    init_server,
)
from idiolect.errors import UserError, unknown_name
from idiolect.methods.catalogue import METHODS, PARTS, find

__all__ = ["PERSONALISES", "Card", "Pair", "card", "of_kind", "page", "pairs", "pairs_page"]

PERSONALISES = {
    "nothing": "one shared model serves every client",
    "layers": "some layers, or a head beside the shared one, are the client's own",
    "everything": "every client keeps its whole model",
    "companion": "every client keeps a private model beside the shared one",
    "mixture": "a private and the shared model are mixed",
    "after-training": "the final shared model is adapted once, after the last round",
}

PAPERS = {  # where the method's own docstring names none
    "local": "Baseline of FedPHP, ECML-PKDD 2021, and of FedPer, https://arxiv.org/abs/1912.00818",
    "fedprox_lu": "Baseline of SuPerFed, https://arxiv.org/abs/2109.07628, after https://arxiv.org/abs/1910.10252",
    "persfl_gd": "Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191",
    "superfed_lm": "Hahn, Jeong, Lee 2022, https://arxiv.org/abs/2109.07628",
}

SYMBOLS = (
    "P parameters, of which P_H are in the last unit and P_B below it, d features, K classes, "
    "n_obs of them held by the client; running statistics travel once, with the network they belong to"
)

KEPT = {  # by part: in words, what the server and what a client keeps
    "alternating_layers": ("", "the private layers"),
    "class_prototypes": ("the prototype of every class", ""),
    "contrastive": ("", "the last local model, and how often it took part"),
    "control_variates": ("the control c", "the control c_k"),
    "curvature": ("the sums U and V", "its own share of U and V, and the round it is from"),
    "dynamic_regulariser": ("the dual h", "the dual g_k"),
    "feature_fusion": ("the fusion operator", ""),
    "fine_tune": ("", "the tuned model, after the last round"),
    "gated_companion": ("", "the private model and the gate"),
    "inherited_model": ("", "the inherited model and its counter"),
    "inherited_teacher": ("", "the inherited model and its counter"),
    "meta_gradient": ("", "the adapted model, after the last round"),
    "mixed_companion": ("", "the private model and alpha"),
    "mixed_subspace": ("", "the private model"),
    "moreau_envelope": ("", "the personal model"),
    "mutual_companion": ("", "the private model"),
    "normalised_average": ("the momentum, where there is one", ""),
    "optimal_teacher": ("", "the best teacher, its loss and round; after the last round the student"),
    "personal_head": ("", "the private head"),
    "private_layers": ("", "the private layers"),
    "proximal_companion": ("", "the private model"),
    "server_optimiser": ("the moments of the optimiser", ""),
}


class Card(NamedTuple):
    """All that is known of a method without running it.

    Args:
        personalises: a word of ``PERSONALISES``.
        equations: by part, and by what parts have in common: the docstring of its module.
        shared: what the server holds of the network: all, body, head or nothing.
        server_keeps, client_keeps: by part, beside the shared model: what and how many scalars before round 1.
        down, up: scalars that a selected client receives and sends in a round.
        traffic: what else is to be said of it.
        options: with their defaults; ``meanings`` say what they are and their ranges.
        presets: beside ``paper``, which is the defaults.
        overrides: what it does otherwise than the scene says.
        refuses: by part that cannot be added: why.
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
    """The card of a method with its default options.

    >>> card("scaffold").up, card("fedper").up, card("fedper").personalises
    ('2P', 'P_B', 'layers')
    """
    name, entry = find(name)
    made = entry.make()
    first, *others = [_line(p) for p in _paragraphs(entry.make) if not p.startswith("Args:")]
    papers = [p for p in others if re.search(r"\b(19|20)\d\d\b|https://", p)]
    found = _travels(made)
    signature = inspect.signature(entry.make).parameters
    return Card(
        name=name,
        label=entry.label,
        personalises=_personalises(made),
        idea=first,
        notes=" ".join(p for p in others if p not in papers),
        paper=" ".join(papers) or PAPERS.get(name, ""),
        parts=" + ".join(part.name for part in made.parts),
        equations=_equations(made),
        shared=found.shared,
        server_keeps=_kept(found.server, 0),
        client_keeps=_kept(found.private, 1),
        down=found.down,
        up=found.up,
        traffic=_traffic(made),
        options={option: parameter.default for option, parameter in signature.items()},
        meanings={option: _meaning(entry.make, made, option) for option in signature},
        presets=tuple(entry.presets),
        preset_values=entry.presets,
        headline=made.headline,
        overrides=tuple(text for part in made.parts for text in part.overrides),
        refuses=_refuses(made),
        deviations={part: text for part in _known(made) if (text := _deviations(PARTS[part]))},
    )


def of_kind(kind: str | None) -> list[Card]:
    """The cards of all methods, or of those that personalise in one way."""
    if kind is not None and kind not in PERSONALISES:
        raise unknown_name("way to personalise", kind, PERSONALISES)
    return [found for name in METHODS if (found := card(name)).personalises == (kind or found.personalises)]


# ---- from docstrings


def _paragraphs(thing: Any) -> list[str]:
    return (inspect.getdoc(thing) or "").split("\n\n")


def _line(text: str) -> str:
    return " ".join(text.split())


def _deviations(make: Callable[..., Any]) -> str:
    found = (p for p in _paragraphs(make) if p.startswith("Deviations:"))
    return _line(next(found, "").removeprefix("Deviations:"))


def _arguments(thing: Any) -> dict[str, tuple[str, bool]]:
    """By argument: what the Args paragraph says, and whether it says it of this one alone."""
    text = next((p for p in _paragraphs(thing) if p.startswith("Args:")), "")
    found = {}
    for entry in re.split(r"\n    (?=\S)", text)[1:]:
        names, _, meaning = entry.partition(": ")
        for name in names.split(", "):
            found[name] = _line(meaning), "," not in names
    return found


def _meaning(make: Callable[..., Any], made: Method, option: str) -> str:
    """What the method says of its option, or the method it refers to; the part's words where it gives no range."""
    own, _ = _arguments(make).get(option, ("", True))
    referred = re.search(r"(?:see|as in) ([\w-]+)", own)
    other = next((e for e in METHODS.values() if referred and e.label == referred[1].rstrip(".")), None)
    if other is not None and option in _arguments(other.make):
        return _meaning(other.make, other.make(), option)
    if re.search(r"\[|>|``\w+``(?!`)(?!\.$)", own) and "see ``" not in own:
        return own
    asked = [_arguments(place).get(option, ("", False)) for place in _places(made)]
    said = {text for text, alone in asked if alone} - {own}
    own = "" if "see " in own else own.rstrip(".")
    return "; ".join(filter(None, [own, *said])) if len(said) == 1 else own


def _places(made: Method) -> Iterator[Any]:
    """The parts' factories, and the classes of the room that they are built with."""
    for part in _known(made):
        yield PARTS[part]
        for thing in vars(sys.modules[PARTS[part].__module__]).values():
            if inspect.isclass(thing) and thing.__module__.startswith("idiolect.parts."):
                yield thing


def _known(made: Method) -> list[str]:
    return [part.name for part in made.parts if part.name in PARTS]


def _equations(made: Method) -> dict[str, str]:
    """Docstrings of the parts' modules, then of the modules that several parts are built from."""
    own = {part: sys.modules[PARTS[part].__module__] for part in _known(made)}
    homes = {factory.__module__ for factory in PARTS.values()}
    common = {
        thing.__module__
        for module in own.values()
        for thing in vars(module).values()
        if getattr(thing, "__module__", None) and str(thing.__module__).startswith("idiolect.parts.")
    } - homes
    shared = {name.rpartition(".")[2]: sys.modules[name] for name in sorted(common)}
    return {name: inspect.getdoc(module) or "" for name, module in (own | shared).items()}


# ---- from the parts


def _personalises(made: Method) -> str:
    structure = _probe().structure
    last = next((part for part in reversed(made.parts) if part.headline == made.headline), None)
    private = [made.is_private(name, structure) for name in structure.params]
    if made.headline == "global" or last is None:
        return "nothing"
    if last.personalise:
        return "after-training"
    if made.headline.startswith("mix("):
        return "mixture"
    if made.headline == "composed":
        mixed = "companion training" in last.roles and "logit map" not in last.roles
        return "everything" if all(private) else "mixture" if mixed else "layers"
    return "companion"


def _refuses(made: Method) -> dict[str, str]:
    found = {}
    for name, factory in PARTS.items():
        if name not in _known(made):
            try:
                chain(made, factory())
            except UserError as error:
                found[name] = str(error)
    return found


def _kept(counts: dict[str, str], place: int) -> dict[str, str]:
    words = {part: KEPT.get(part, ("", ""))[place] for part in counts}
    both = {part: [w for w in (words[part], count) if w and w != "0"] for part, count in counts.items()}
    return {part: ": ".join(found) for part, found in both.items() if found}


def _traffic(made: Method) -> str:
    said = []
    if made.plan(Scene(), CLOCK).merged:
        said.append("Every client, selected or not, receives each new shared model to score it.")
    if any(part.individual for part in made.parts):
        said.append("The server looks at single uploads, not only at their mean.")
    if made.needs_public:
        said.append("The server trains on public inputs without labels.")
    if made.needs_validation:
        said.append("Something is chosen on the clients' validation splits.")
    return " ".join(said)


# ---- from a round without steps

CLOCK = Clock(round=0, rounds=1, participation_rate=1.0, cohort_size=1, population=1, learning_rate=0.1)
N_FEATURES, N_CLASSES, N_INPUTS, N_OBSERVED = 5, 4, 3, 2
NAMED = {N_FEATURES: "d", N_CLASSES: "K"}
PARTIAL = {N_OBSERVED * (N_FEATURES + 1): "n_obs (d + 1)"}  # of messages of which not all travels


class Travels(NamedTuple):
    shared: str
    server: dict[str, str]  # scalars by part
    private: dict[str, str]
    down: str
    up: str


def _probe() -> Task:
    """A network of two linear layers without statistics."""
    params = ("body", "head")

    def forward(params: Flat, buffers: Flat, batch: Batch, train: Any) -> tuple[Out, Flat]:
        features = batch.x @ params["body"].T
        return Out(features, features @ params["head"].T), buffers

    def criterion(params: Tree, batch: Batch, out: Out) -> Tensor:
        return torch.nn.functional.cross_entropy(out.logits, batch.y)

    def head(params: Flat, features: Tensor) -> Tensor:
        return features @ params["head"].T

    layers = (("body",), ("head",))
    units = {"body": 0, "head": 1}
    structure = Structure(params, (), units, 2, layers, True, N_FEATURES, N_CLASSES)
    return Task(forward, criterion, head, structure)


def _travels(made: Method) -> Travels:
    """What is kept and sent by one client whose stages make no step; only measures read a batch."""
    task, scene = _probe(), Scene()
    params = {"body": torch.ones(N_FEATURES, N_INPUTS), "head": torch.ones(N_CLASSES, N_FEATURES)}
    initial = Initial(params, {}, lambda purpose, own: Model(params, {}), task.structure)
    server = init_server(made, initial, task.structure)
    private = init_private(made, initial, task.structure, scene.buffers)
    sent = broadcast(made, server)
    one = torch.ones(())
    counts = (torch.arange(N_CLASSES) < N_OBSERVED).float()
    labels = torch.arange(N_OBSERVED)
    batch = Batch(torch.ones(N_OBSERVED, N_INPUTS), labels, torch.ones(N_OBSERVED), labels, {})
    program = Program(made, task, scene, CLOCK, differentiate=lambda objective, params: (params, (one, {})))
    context, previous = Context(sent, private, Facts(counts, one, one), {}), None
    for stage in made.plan(scene, CLOCK).before:
        state = program.begin(stage, context, previous)
        if stage.measure is not None:
            state = program.measure(stage, context, state, batch)
        previous = program.end(state)
        mark = {} if stage.measure is not None else {UPLOAD: previous}
        context = context._replace(results={**context.results, stage.name: previous, **mark})
    messages = {part: value for part, (value, _) in program.upload(context).items()}
    partly = {part.name: part.scalars for part in made.parts if part.scalars and part.name in messages}
    travelling = [PARTIAL.get(count(messages.pop(part)), part) for part, count in partly.items()]
    shared = "+".join(name for name in params if not made.is_private(name, task.structure))
    return Travels(
        {"body+head": "all", "": "nothing"}.get(shared, shared),
        {part: _sum(slot) for part, slot in server["slots"].items()},
        {part: _sum(slot) for part, slot in private["slots"].items()},
        _sum(sent),
        _sum(messages, travelling),
    )


def _sum(tree: Tree, more: list[str] | None = None) -> str:
    """The scalars of a tree in symbols.

    >>> _sum({"body": torch.ones(5, 3), "head": torch.ones(4, 5), "seen": torch.ones(())})
    'P + 1'
    """
    terms: dict[str, int] = {}
    for name, leaf in _leaves(tree):
        sizes = " ".join(NAMED.get(n, str(n)) for n in leaf.shape) or "1"
        term = {"body": "P_B", "head": "P_H"}.get(name, sizes)
        terms[term] = terms.get(term, 0) + 1
    whole = min(terms.get("P_B", 0), terms.get("P_H", 0))
    counts = {"P": whole} | {term: n - whole * (term in ("P_B", "P_H")) for term, n in terms.items()}
    found = [term if n == 1 else str(n) if term == "1" else f"{n}{term}" for term, n in counts.items() if n]
    return " + ".join([*found, *(more or [])]) or "0"


def _leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _leaves(below, key)
    else:
        yield name, tree


# ---- as text


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
            f"Presets: {', '.join(('paper', *found.presets))}.",
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


# ---- two parts at a time

SMALLER = {
    "ensemble_distillation": "ensemble_distillation(steps=2)",
    "optimal_teacher": "optimal_teacher(lambdas=(0.0, 0.5), temperatures=(1.0,), epochs=1)",
}  # what would take minutes otherwise


class Pair(NamedTuple):
    first: str
    second: str
    method: str  # the pair as it is written
    refused: str  # why, or nothing


def pairs(attempt: Callable[[str], object]) -> Iterator[Pair]:
    """Every two parts of the package with their default options, the one that updates the server first.

    Args:
        attempt: makes a method from its text and tries it, raising ``UserError`` for what cannot work.
    """
    leading = [name for name, make in PARTS.items() if "server update" in make().roles]
    ordered = leading + [name for name in PARTS if name not in leading]
    for first, second in combinations(ordered, 2):
        text = f"{SMALLER.get(first, first)} + {SMALLER.get(second, second)}"
        try:
            attempt(text)
        except UserError as error:
            yield Pair(first, second, text, str(error))
        else:
            yield Pair(first, second, text, "")


def pairs_page(found: list[Pair]) -> str:
    """The matrix as a Markdown page: who goes with whom, then the reasons."""
    names = list(dict.fromkeys(name for pair in found for name in (pair.first, pair.second)))
    refused = {frozenset((pair.first, pair.second)) for pair in found if pair.refused}

    def mark(row: str, column: str) -> str:
        return "" if row == column else "no" if frozenset((row, column)) in refused else "ok"

    table = [["", *(str(number + 1) for number in range(len(names)))], ["---"] * (len(names) + 1)]
    for number, row in enumerate(names):
        table.append([f"{number + 1} {row}", *(mark(row, column) for column in names)])
    lines = ["| " + " | ".join(row) + " |" for row in table]
    reasons = [f"- {pair.first}, {pair.second}: {pair.refused}" for pair in found if pair.refused]
    return (
        "Combinations of two parts\n=========================\n\n"
        "Every two parts with their default options, `average` beneath those that leave the server alone:\n"
        "ok runs, no is refused before any training.  Columns are numbered like the rows.\n"
        "`idiolect methods --pairs` tries them all.\n\n"
        f"{len(found) - len(refused)} of {len(found)} pairs work.\n\n"
        + "\n".join(lines)
        + "\n\nRefused\n-------\n\n"
        + "\n".join(reasons)
        + "\n"
    )
