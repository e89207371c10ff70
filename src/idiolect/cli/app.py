"""The Typer application in which every command registers itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ArgumentInfo

from idiolect.cli.settings import FLAGS
from idiolect.experiments import Experiment
from idiolect.own_code import load_code
from idiolect.version import __version__

__all__ = ["Application", "Code", "Command", "WithCode", "app", "load_all"]

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
    "disturbances",
    "metrics",
    "settings",
    "datasets",
    "scenarios",
    "reproduce",
    "collect",
    "bench",
    "deploy",
]
CODE_HELP = (
    "Code of your own that registers methods, parts, models, datasets, partitions or metrics: a file or "
    "package.module; may be repeated."
)
Code = Annotated[list[str] | None, typer.Option("--code", metavar="FILE", help=CODE_HELP)]


class Command(TyperCommand):
    """A command that points to --set where a setting is written as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            is_setting = name in Experiment.__dataclass_fields__ and name not in FLAGS
            if is_setting and any("--set" in option.opts for option in self.params):
                message = f"No such option {error.option_name!r}; give the setting as --set {name}=VALUE."
                raise click.NoSuchOption(error.option_name, message, ctx=ctx) from error
            raise


class WithCode(Command):
    """A command that takes --code and loads it before it reads its other options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _restore_argument_help(self)
        code = TyperOption(
            param_decls=["--code"],
            multiple=True,
            metavar="FILE",
            help=CODE_HELP,
            expose_value=False,
            is_eager=True,
            callback=lambda context, option, sources: load_all(sources),
        )
        self.params.append(code)


def _restore_argument_help(command: TyperCommand) -> None:
    """Gives arguments the help that recent versions of click drop when Typer makes them."""
    declared = inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    for argument in command.params:
        if isinstance(argument, TyperArgument) and argument.name in declared:
            found = getattr(declared[argument.name].annotation, "__metadata__", ())
            argument.help = next((one.help for one in found if isinstance(one, ArgumentInfo)), None)


class OrderedCommands(TyperGroup):
    """A group that lists its commands in the order in which they are usually needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class Application(typer.Typer):
    """An application whose commands take --code unless they are told otherwise."""

    def command(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return super().command(*arguments, **{"cls": WithCode, **options})


def load_all(sources: Sequence[str]) -> None:
    """Loads code of the user's own, in the order given."""
    for source in sources:
        load_code(source)


app = Application(
    cls=OrderedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # Click suggests them already
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"idiolect {__version__}")
        raise typer.Exit


@app.callback()
def _idiolect(
    code: Code = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Personalised federated learning: one shared model, and one of each client's own."""
    load_all(code or [])
