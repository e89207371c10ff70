"""The Typer application in which every command registers itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from idiolect.own_code import load_code
from idiolect.version import __version__

__all__ = ["CODE_HELP", "WithCode", "app"]

ORDER = [
    "run",
    "compare",
    "sweep",
    "recommend",
    "report",
    "diff",
    "export",
    "join",
    "methods",
    "models",
    "partitions",
    "metrics",
    "settings",
    "datasets",
    "scenarios",
    "reproduce",
    "bench",
    "deploy",
]
CODE_HELP = (
    "Code of your own that registers methods, parts, models, partitions or metrics: a file or package.module; "
    "may be repeated."
)


class WithCode(TyperCommand):
    """A command that takes --code and loads it before it reads its other options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        code = TyperOption(
            param_decls=["--code"],
            multiple=True,
            metavar="FILE",
            help=CODE_HELP,
            expose_value=False,
            is_eager=True,
            callback=_load_all,
        )
        self.params.append(code)


class OrderedCommands(TyperGroup):
    """A group that lists its commands in the order in which they are usually needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class Application(typer.Typer):
    """An application whose commands take --code unless they are told otherwise."""

    def command(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return super().command(*arguments, **{"cls": WithCode, **options})


def _load_all(context: typer.Context, option: typer.CallbackParam, sources: Sequence[str]) -> None:
    for source in sources:
        load_code(source)


app = Application(cls=OrderedCommands, no_args_is_help=True, pretty_exceptions_enable=False)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"idiolect {__version__}")
        raise typer.Exit


@app.callback()
def _idiolect(
    code: Annotated[list[str] | None, typer.Option(metavar="FILE", help=CODE_HELP)] = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Personalised federated learning: one shared model, and one of each client's own."""
    for source in code or []:
        load_code(source)
