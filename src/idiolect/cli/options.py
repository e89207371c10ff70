"""Options that several commands share, each declared once, and the groups in which a command takes them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from idiolect.experiments import Execution

__all__ = [
    "Changes",
    "DataDir",
    "Device",
    "Json",
    "Precision",
    "Preset",
    "ScenarioChoice",
    "SceneOptions",
    "Seed",
    "SeedRange",
    "Set",
    "SiteSceneOptions",
    "with_option_groups",
]

Dataset = Annotated[str | None, typer.Option(help="See idiolect datasets.")]
Partition = Annotated[str | None, typer.Option(help="How clients differ, such as label_k(k=3).")]
Clients = Annotated[int | None, typer.Option(help="Number of clients; 0: as many as the data have.")]
Model = Annotated[str | None, typer.Option(help="A network of the zoo, such as lenet_map or vgg8_bn.")]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.")]
Precision = Annotated[str | None, typer.Option(help="float32, float64, tf32 or bf16; the last two for GPUs.")]
ScenarioName = Annotated[str | None, typer.Option("--scenario", help="See idiolect scenarios.")]
Preset = Annotated[str, typer.Option(help="Of the scenario: paper, official or clipped.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw.")]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
NumberOfSeeds = Annotated[int, typer.Option(help="How many seeds.", min=1)]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value of any setting; may be repeated.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Three rounds on ten small clients, to see that it works.")
]

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
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the datasets [IDIOLECT_DATA].")]
Out = Annotated[Path, typer.Option("--out", help="Folder in which the run's folder is made.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
Store = Annotated[str, typer.Option(help="Private state: auto, device, host or disk; changes no number.")]
StoreCache = Annotated[float | None, typer.Option(help="Megabytes of a disk store kept in memory.")]
Log = Annotated[list[str], typer.Option("--log", help="Log to tensorboard or mlflow too; may be repeated.")]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@dataclass(frozen=True)
class ScenarioChoice:
    """The experiment of a paper that a command starts from, if any."""

    scenario: ScenarioName = None
    preset: Preset = "paper"


@dataclass(frozen=True)
class SceneOptions:
    """Settings of the experiment that have an option of their own; None where the option is not given."""

    dataset: Dataset = None
    partition: Partition = None
    clients: Clients = None
    model: Model = None
    rounds: Rounds = None
    precision: Precision = None


@dataclass(frozen=True)
class SiteSceneOptions:
    """As ``SceneOptions``, for a deployment, which counts sites instead of clients."""

    dataset: Dataset = None
    partition: Partition = None
    model: Model = None
    rounds: Rounds = None
    precision: Precision = None


@dataclass(frozen=True)
class SeedRange:
    """Consecutive seeds."""

    seed: FirstSeed = 0
    seeds: NumberOfSeeds = 1

    @property
    def all(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))


@dataclass(frozen=True)
class Changes:
    """Settings that are changed by --set and --quick."""

    settings: Set = None
    quick: Quick = False


RUN_OPTIONS: dict[str, Any] = {
    "engine": Engine,
    "device": Device,
    "workers": Workers,
    "ray_address": RayAddress,
    "gpus_per_worker": GpusPerWorker,
    "data_dir": DataDir,
    "out": Out,
    "resume": Resume,
    "store": Store,
    "store_cache": StoreCache,
    "log": Log,
}  # of ``Execution``, by field, in the order of --help


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command that takes groups of options as dataclasses.

    A parameter whose type is a dataclass is a group: Typer shows an option for each of its fields, in its place and
    with the defaults of the fields, and the command receives the dataclass.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {one.name: one.annotation for one in own if _is_group(one.annotation)}
    options = {name: _options_of(group) for name, group in groups.items()}
    shown = [option for one in own for option in options.get(one.name, [one])]

    def grouped(**values: Any) -> None:
        made = {
            name: group(**{option.name: values.pop(option.name) for option in options[name]})
            for name, group in groups.items()
        }
        command(**made, **values)

    for name in ("__name__", "__doc__", "__module__"):
        setattr(grouped, name, getattr(command, name))
    grouped.__annotations__ = {option.name: option.annotation for option in shown}
    keywords = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in shown]
    grouped.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # what Typer reads
    return grouped


def _is_group(annotation: Any) -> bool:
    return dataclasses.is_dataclass(annotation)


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    """Returns the options of a group as parameters."""
    options = RUN_OPTIONS if group is Execution else get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(group)}
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=option)
        for name, option in options.items()
    ]
