"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Clients",
    "DataDir",
    "Dataset",
    "Device",
    "Engine",
    "GpusPerWorker",
    "Json",
    "Log",
    "Model",
    "Out",
    "Partition",
    "Precision",
    "Preset",
    "Quick",
    "RayAddress",
    "Resume",
    "Rounds",
    "ScenarioName",
    "Set",
    "Store",
    "StoreCache",
    "Workers",
]

Out = Annotated[Path, typer.Option("--out", help="Folder in which the run's folder is made.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the datasets [IDIOLECT_DATA].")]
Engine = Annotated[
    str, typer.Option(help="auto, loop, cohort, pool or ray; changes nothing but last digits.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Workers = Annotated[int | None, typer.Option(help="Processes of the engines pool and ray.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Of a Ray cluster, auto for the one of this machine [RAY_ADDRESS]; else one is started."
    ),
]
GpusPerWorker = Annotated[float, typer.Option(help="Of the engine ray; 0.5 lets two workers share one.")]
Store = Annotated[str, typer.Option(help="Private state: auto, device, host or disk; changes no number.")]
StoreCache = Annotated[float | None, typer.Option(help="Megabytes of a disk store kept in memory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value of any setting; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Log = Annotated[
    list[str] | None, typer.Option("--log", help="Log to tensorboard or mlflow too; may be repeated.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Three rounds on ten small clients, to see that it works.")
]
Dataset = Annotated[str | None, typer.Option(help="See idiolect datasets.")]
Model = Annotated[str | None, typer.Option(help="A network of the zoo, such as lenet_map or vgg8_bn.")]
Partition = Annotated[str | None, typer.Option(help="How clients differ, such as label_k(k=3).")]
Clients = Annotated[int | None, typer.Option(help="Number of clients; 0: as many as the data have.")]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.")]
Precision = Annotated[str | None, typer.Option(help="float32, float64, tf32 or bf16; the last two for GPUs.")]
ScenarioName = Annotated[str | None, typer.Option("--scenario", help="See idiolect scenarios.")]
Preset = Annotated[str, typer.Option(help="Of the scenario: paper, official or clipped.")]
