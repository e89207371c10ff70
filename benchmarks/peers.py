"""Times pfl-research and Flower's simulation beside the engines and the plain loop; options as for ``idiolect bench``.

pip install pfl==0.6.0 'flwr[simulation]==1.41.0'
python benchmarks/peers.py --models w --json
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from idiolect.bench import BenchCell, BenchGrid
from idiolect.bench.interleaved_measurement import Peer
from idiolect.cli import main
from idiolect.cli.bench import bench_command_with

FOLDER = Path(__file__).parent
PFL = (sys.executable, str(FOLDER / "pfl_peer.py"))
FLOWER = (sys.executable, str(FOLDER / "flower_peer.py"))
PEERS = (
    Peer("pfl", "pfl", PFL, "pfl", "pfl==0.6.0"),
    Peer("two processes of pfl", "pair", PFL, "pfl", "pfl==0.6.0"),
    Peer("two actors of Flower", "flower", FLOWER, "flwr", "flwr[simulation]==1.41.0", saves_model=False),
)


def peers_of(grid: BenchGrid, cell: BenchCell) -> tuple[Peer, ...]:
    """Returns the peers for FedAvg on clients of equal size in float32, where their steps can be counted like ours."""
    comparable = (cell.method, cell.sizes, cell.precision) == ("fedavg", "equal", "float32")
    return PEERS if comparable else ()


if __name__ == "__main__":
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    application.command(help=__doc__)(bench_command_with(peers_of))
    main(application)
