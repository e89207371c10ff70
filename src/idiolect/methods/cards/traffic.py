"""How many scalars a method keeps and sends, found by a round without steps on a network of two layers.

Counts are symbols: P parameters of the network, P_B below the last unit and P_H in it, d features, K classes, n_obs
classes that the client holds.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    Flats,
    Initial,
    Method,
    Mode,
    Model,
    Out,
    PrivateState,
    Program,
    Scene,
    Structure,
    Task,
    Tree,
    broadcast,
    first_download,
    init_kept,
    init_private,
    init_server,
    without_replaced,
)

__all__ = ["SYMBOLS", "probe", "traffic_notes", "travels"]

SYMBOLS = (
    "P parameters, of which P_H are in the last unit and P_B below it, d features, K classes, "
    "n_obs of them held by the client; running statistics travel once, with the network they belong to"
)

CLOCK = Clock(round=0, rounds=1, participation_rate=1.0, cohort_size=1, population=1, learning_rate=0.1)
N_FEATURES, N_CLASSES, N_INPUTS, N_OBSERVED = 7, 4, 3, 2
LAYERS = {"body": N_FEATURES * N_INPUTS, "head": N_CLASSES * N_FEATURES}
NAMED = {N_FEATURES: "d", N_CLASSES: "K"}
PARTIAL = {  # messages that travel in part
    N_OBSERVED * (N_FEATURES + 1): "n_obs (d + 1)",
    N_OBSERVED * (N_CLASSES + 1): "n_obs (K + 1)",
}


class Travels(NamedTuple):
    shared: str  # what the server holds of the network
    server: dict[str, str]  # scalars by part
    private: dict[str, str]
    down: str
    up: str
    kept: dict[str, str]  # by part, what the server keeps of each client


def probe() -> Task:
    """Returns a network of two linear layers, without normalisation."""
    params = ("body", "head")

    def forward(params: Flat, buffers: Flat, batch: Batch, train: Mode) -> tuple[Out, Flat]:
        features = batch.x @ params["body"].T
        return Out(features, features @ params["head"].T), buffers

    def criterion(params: Flats, batch: Batch, out: Out) -> Tensor:
        return torch.nn.functional.cross_entropy(out.logits, batch.y)

    def head(params: Flat, features: Tensor) -> Tensor:
        return features @ params["head"].T

    layers = (("body",), ("head",))
    units = {"body": 0, "head": 1}
    structure = Structure(params, (), units, 2, layers, True, N_FEATURES, N_CLASSES)
    return Task(forward, criterion, head, structure)


def travels(made: Method) -> Travels:
    """Counts what one client keeps and sends in a round whose stages make no step; only measures read a batch."""
    task, scene = probe(), Scene()
    params = {"body": torch.ones(N_FEATURES, N_INPUTS), "head": torch.ones(N_CLASSES, N_FEATURES)}
    initial = Initial(
        params,
        {},
        lambda purpose, own: Model(params, {}),
        task.structure,
        lambda purpose, shape: torch.ones(shape),
    )
    server = init_server(made, initial, task.structure)
    private = init_private(made, initial, task.structure, scene.buffers)
    sent = broadcast(made, server)
    one = torch.ones(())
    counts = (torch.arange(N_CLASSES) < N_OBSERVED).float()
    labels = torch.arange(N_OBSERVED)
    batch = Batch(torch.ones(N_OBSERVED, N_INPUTS), labels, torch.ones(N_OBSERVED), labels, {})
    program = Program(made, task, scene, CLOCK, differentiate=lambda objective, params: (params, (one, {})))
    own = first_download(program, server, initial)
    sent = without_replaced(sent, own)
    given: PrivateState = {**private, "download": own}
    context, previous = Context(sent, given, Facts(counts, one, one), {}), None
    for stage in made.plan(scene, CLOCK).before:
        state = program.begin(stage, context, previous)
        if stage.measure is not None:
            state = program.measure(stage, context, state, batch)
        previous = program.end(state)
        mark = {} if stage.measure is not None else {UPLOAD: previous}
        context = context._replace(results={**context.results, stage.name: previous, **mark})
    messages = {part: value for part, (value, _) in program.upload(context).items()}
    partly = {part.name: part.scalars for part in made.parts if part.scalars and part.name in messages}
    travelling = []
    for part, counted in partly.items():
        if symbol := PARTIAL.get(counted(messages[part])):
            travelling.append(symbol)
            del messages[part]
    shared = "+".join(name for name in params if not made.is_private(name, task.structure))
    return Travels(
        {"body+head": "all", "": "nothing"}.get(shared, shared),
        {part: _sum(slot) for part, slot in server["slots"].items()},
        {part: _sum(slot) for part, slot in private["slots"].items()},
        _sum({"all": sent, "own": own}),
        _sum(messages, travelling),
        {part: _sum(slot) for part, slot in init_kept(made, initial, CLOCK.population).items()},
    )


def _sum(tree: Tree, more: list[str] | None = None) -> str:
    """Writes the number of scalars of a tree in symbols.

    >>> _sum({"body": torch.ones(7, 3), "head": torch.ones(4, 7), "seen": torch.ones(())})
    'P + 1'
    >>> _sum({"one": torch.ones(3, 7), "other": torch.ones(3, 7)})
    '2 3 d'
    """
    terms: dict[str, int] = {}
    for name, leaf in _leaves(tree):
        if not leaf.is_floating_point():  # a name, or the length of what follows
            continue
        plain = not any(n in NAMED for n in leaf.shape)
        sizes = "1" if plain else " ".join(NAMED.get(n, str(n)) for n in leaf.shape)
        term = {"body": "P_B", "head": "P_H"}.get(name, sizes)
        times = leaf.numel() // LAYERS[name] if name in LAYERS else leaf.numel() if plain else 1
        terms[term] = terms.get(term, 0) + times
    whole = min(terms.get("P_B", 0), terms.get("P_H", 0))
    counts = {"P": whole} | {term: n - whole * (term in ("P_B", "P_H")) for term, n in terms.items()}
    found = [
        term if n == 1 else str(n) if term == "1" else f"{n}{' ' * term[0].isdigit()}{term}"
        for term, n in counts.items()
        if n
    ]
    return " + ".join([*found, *(more or [])]) or "0"


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _leaves(below, key)
    else:
        yield name, tree


def traffic_notes(made: Method) -> str:
    """Writes what the numbers do not say: who receives models, single uploads, public or validation data."""
    said = []
    if made.plan(Scene(), CLOCK).merged:
        said.append("Every client, selected or not, receives each new shared model to score it.")
    if made.downloads:
        said.append(
            "The server sends each client something made for it: it tells clients apart and knows who is like whom."
        )
    if made.reads_single_uploads:
        said.append("The server looks at single uploads, not only at their mean.")
    if any(part.scalars_down for part in made.parts):
        said.append(
            "Updates travel as factors of low rank where these are smaller: the scalars are the most that it can be."
        )
    if made.needs_public:
        said.append("The server trains on public inputs without labels.")
    if made.uses_validation:
        said.append("Something is chosen on the clients' validation splits.")
    return " ".join(said)
