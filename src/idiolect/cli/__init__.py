"""The command line: one file per command; each command makes one call of the Python interface and prints the result."""

from __future__ import annotations

import sys

from rich.console import Console
from typer import Typer

from idiolect.cli.app import app
from idiolect.cli.bench import bench_command
from idiolect.cli.datasets import datasets_command, datasets_get
from idiolect.cli.deploy import deploy_app
from idiolect.cli.export import export_command
from idiolect.cli.join import join_command
from idiolect.cli.listings import metrics_command, models_command, partitions_command, settings_command
from idiolect.cli.methods import TINY, methods_command, tried_pairs
from idiolect.cli.report import report_command
from idiolect.cli.reproduce import reproduce_command
from idiolect.cli.run_and_compare import compare_command, run_command
from idiolect.cli.scenarios import scenarios_command
from idiolect.cli.sweep import sweep_command
from idiolect.errors import UserError

__all__ = [
    "TINY",
    "app",
    "bench_command",
    "compare_command",
    "datasets_command",
    "datasets_get",
    "deploy_app",
    "export_command",
    "join_command",
    "main",
    "methods_command",
    "metrics_command",
    "models_command",
    "partitions_command",
    "report_command",
    "reproduce_command",
    "run_command",
    "scenarios_command",
    "settings_command",
    "sweep_command",
    "tried_pairs",
]

INTERRUPTED = 130  # typer's exit code after Ctrl-C, of which it says nothing


def main(application: Typer = app) -> None:
    """Runs the command line: a user's mistake is one sentence on standard error and exit code 2."""
    try:
        application()
    except UserError as error:
        _say(str(error), "red")
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _say("interrupted", "yellow")
        raise


def _say(sentence: str, style: str) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"idiolect: {sentence}", style=style, highlight=False, markup=False)
