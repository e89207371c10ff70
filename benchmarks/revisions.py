"""Times the engines of another checkout of Idiolect beside those of this one, in the same turns.

python benchmarks/revisions.py ../other-checkout --models w,lenet,dnn --engines loop,cohort,pool
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from idiolect.bench import BenchCell, BenchGrid
from idiolect.bench.interleaved_measurement import Peer
from idiolect.cli import main
from idiolect.cli.bench import bench_command_with
from idiolect.errors import UserError


def engines_of(checkout: Path | None, engines: tuple[str, ...]) -> tuple[Peer, ...]:
    """Returns engines of another checkout as peers."""
    if checkout is None:
        raise UserError("no checkout to compare with; give the folder of one before the options")
    source = checkout.resolve() / "src"
    if not (source / "idiolect").is_dir():
        raise UserError(f"{checkout} holds no src/idiolect; give the folder of a checkout")
    command = ("env", f"PYTHONPATH={source}", sys.executable, "-m", "idiolect.bench.worker")
    return tuple(Peer(f"other {engine}", engine, command) for engine in engines)


if __name__ == "__main__":
    checkout = Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    def peers_of(grid: BenchGrid, cell: BenchCell) -> tuple[Peer, ...]:
        return engines_of(checkout, grid.engines)

    application.command(help=__doc__)(bench_command_with(peers_of))
    main(application)
