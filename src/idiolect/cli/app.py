"""The Typer application in which every command registers itself."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _idiolect() -> None:
    """Personalised federated learning: one shared model, and one of each client's own."""
