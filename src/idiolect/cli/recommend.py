"""`idiolect recommend`: which method serves these clients, within a time budget."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from idiolect.cli.app import app
from idiolect.cli.options import Changes, Json, OwnDataOptions, SceneOptions, completing, with_option_groups
from idiolect.cli.settings import methods_in, settings_of
from idiolect.cli.terminal import console_of_output, print_line, print_table, watched
from idiolect.experiments import Execution
from idiolect.experiments.recommend import CANDIDATES, recommend
from idiolect.methods import names

__all__ = ["recommend_command"]


@app.command("recommend")
@with_option_groups
def recommend_command(
    *,
    budget: Annotated[str, typer.Option(help="The time for all runs together: 90s, 20m, 2h.")] = "20m",
    methods_: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Methods to choose from, beside local and fedavg; by default "
            + ", ".join(CANDIDATES[2:])
            + ".",
            autocompletion=completing(names),
        ),
    ] = None,
    scene: SceneOptions,
    own: OwnDataOptions,
    changes: Changes,
    execution: Execution,
    as_json: Json = False,
) -> None:
    """Say which method serves your clients, or whether to train alone or one shared model, with the evidence."""
    chosen = settings_of(changes, scene, own)
    found = recommend(
        budget, methods=methods_in(methods_) or CANDIDATES, execution=watched(execution), **chosen
    )
    if as_json:
        print(json.dumps(json.loads((found.folder / "recommendation.json").read_text("utf-8")), indent=2))
        return
    print_table(console_of_output(), found.rows(), title="What was tried, the best on validation data first")
    print_line("- an asterisk marks a difference that is shown on validation data (5 %, Holm's correction)")
    for sentence in found.answer:
        print_line(f"- {sentence}")
    chosen_settings = " ".join(f"--set {name}={value:g}" for name, value in found.settings.items())
    print_line(
        "Next, with the options of your data as above: "
        f"idiolect run --method {shlex.quote(found.method)} {chosen_settings}"
    )
    print_line(f"Runs, pictures and recommendation.json: {found.folder}")
