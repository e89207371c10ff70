"""`idiolect methods`: the cards, compositions explained, and which parts go together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from idiolect import methods
from idiolect.cli.app import app
from idiolect.cli.options import Json
from idiolect.cli.terminal import console_of_output, print_table
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Experiment, prepare
from idiolect.methods.catalogue import identifier
from idiolect.testing import check_method

__all__ = ["TINY", "methods_command", "tried_pairs"]

TINY = Experiment(
    dataset="synthetic(n_clients=3, samples_per_client=20, n_features=4, n_classes=3)",
    partition="by_id",
    clients=3,
    model="persfl_dnn(hidden=4)",
    rounds=2,
    participation_rate=1.0,
    local_epochs=1,
    batch_size=8,
    evaluate_every=2,
    public=6,
)  # on which pairs of parts are tried


@app.command("methods")
def methods_command(
    name: Annotated[
        str | None,
        typer.Argument(help='A method whose card to print, or a composition to explain: "map + fedadam".'),
    ] = None,
    personalises: Annotated[
        str | None, typer.Option(help=f"Only methods that personalise {', '.join(methods.PERSONALISES)}.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Try every two parts together (half a minute).")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run the conformance suite on the method or composition.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods, print the card of one, explain or check a composition, or try which parts can be combined."""
    if check:
        _check(name, as_json)
        return
    if pairs:
        _show_pairs(tried_pairs(), as_json)
        return
    if name and identifier(name) not in methods.names():
        _explain(name, as_json)
        return
    cards = [methods.card(name)] if name else methods.of_kind(personalises)
    if as_json:
        print(json.dumps([card._asdict() for card in cards], indent=2))
    elif name:
        console_of_output().print(methods.page(cards[0]), highlight=False, markup=False)
    else:
        rows = [["Name", "Method", "Personalises", "Predictor", "Down", "Up", "Idea"]]
        rows += [[c.name, c.label, c.personalises, c.headline, c.down, c.up, c.idea] for c in cards]
        print_table(console_of_output(), rows, words=7)


def _check(name: str | None, as_json: bool) -> None:
    if name is None:
        raise UserError("--check needs a method or a composition; write idiolect methods NAME --check")
    report = check_method(name, raise_on_failure=False)
    if as_json:
        print(json.dumps([finding._asdict() for finding in report.findings], indent=2))
    else:
        print(report)
    if not report.passed:
        raise typer.Exit(1)


def tried_pairs() -> list[methods.Pair]:
    """Tries every two parts together on a tiny federation; nothing is trained."""

    def attempt(method: str) -> None:
        prepare(replace(TINY, method=method), EngineChoice("loop", "cpu", "as asked"))

    with Console(stderr=True).status("trying every two parts"):
        return list(methods.pairs(attempt))


def _explain(text: str, as_json: bool) -> None:
    chosen = methods.method(text)
    try:
        setting = prepare(replace(TINY, method=text), EngineChoice("loop", "cpu", "as asked"))
    except UserError:  # such as more private layers than the small network has
        found = methods.explain(text)
    else:
        reported = [name for forms in setting.forms for name in forms.predictors]
        reported += [choice.name for choice in chosen.choices]
        found = methods.explain(text, tuple(dict.fromkeys(reported)))
    if as_json:
        print(json.dumps([found._asdict()], indent=2))
    else:
        console_of_output().print(methods.explanation_page(found), highlight=False, markup=False)


def _show_pairs(found: list[methods.Pair], as_json: bool) -> None:
    if as_json:
        print(json.dumps([pair._asdict() for pair in found], indent=2))
        return
    rows = [["Part", "Part", "Together", "Why not"]]
    rows += [[p.first, p.second, "refused" if p.refused else "ok", p.refused] for p in found]
    print_table(console_of_output(), rows, words=4)
