"""The command line: one file per command; each command makes one call of the Python interface and prints the result.

Commands are imported when ``main`` runs, so that asking for the version is quick and Ctrl-C meanwhile is no traceback.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiolect.errors import UserError
from idiolect.version import __version__

if TYPE_CHECKING:
    from typer import Typer

__all__ = ["main"]

LONGEST = 1000  # letters of either end of a sentence that repeats something very long
INTERRUPTED = 130  # typer's exit code after Ctrl-C, of which it says nothing


def main(application: Typer | None = None) -> None:
    """Runs the command line: a user's mistake is one sentence on standard error and exit code 2.

    So is what the machine refuses, as ``cli.error_boundary`` lists it; a mistake in the program keeps its traceback.

    Args:
        application: the commands; all of Idiolect's by default.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"idiolect {__version__}")
        return
    try:
        if application is None:
            import_module("idiolect.cli.commands").app(prog_name="idiolect")
        else:
            application()
    except UserError as error:
        _say(str(error), "red")
        sys.exit(2)
    except Exception as error:
        sentence = import_module("idiolect.cli.error_boundary").sentence_of(error)
        if sentence is None:
            raise
        _say(sentence, "red")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted", "yellow")
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _say("interrupted", "yellow")
        raise


def _say(sentence: str, style: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - the version is told without Rich

    console = Console(stderr=True, soft_wrap=True)
    if len(sentence) > 2 * LONGEST:
        sentence = f"{sentence[:LONGEST]} ... {sentence[-LONGEST:]}"
    console.print(f"idiolect: {sentence}", style=style, highlight=False, markup=False)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("idiolect.cli.commands"), name)
