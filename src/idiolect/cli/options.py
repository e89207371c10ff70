"""Options that several commands share, each declared once, and the groups in which a command takes them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from idiolect import data, models, partition
from idiolect.engines import ENGINES
from idiolect.errors import UserError
from idiolect.experiments import Execution
from idiolect.experiments.rounds.divergence import ON_DIVERGENCE
from idiolect.experiments.spec import PRECISIONS
from idiolect.federation import DISTURBANCES
from idiolect.reproduction.scenarios import scenarios

__all__ = [
    "Changes",
    "DataDir",
    "Device",
    "Json",
    "NewClientsOptions",
    "OwnDataOptions",
    "Precision",
    "Preset",
    "ScenarioChoice",
    "SceneOptions",
    "Seed",
    "SeedRange",
    "Set",
    "SiteSceneOptions",
    "completing",
    "with_option_groups",
]


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Returns a completion of names for the shell; of names separated by commas it completes the last."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def _scenario_names() -> list[str]:
    return [scenario.name for scenario in scenarios()]


Dataset = Annotated[
    str | None,
    typer.Option(help="A dataset; idiolect datasets lists them.", autocompletion=completing(data.names)),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="How samples are shared out among clients, such as label_k(k=3).",
        autocompletion=completing(partition.names),
    ),
]
Clients = Annotated[int | None, typer.Option(help="Number of clients; 0 takes as many as the data have.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="A network of the zoo, such as lenet_map or vgg8_bn.", autocompletion=completing(models.names)
    ),
]
ModelFile = Annotated[
    str | None,
    typer.Option(
        metavar="PATH.py:BUILDER",
        help="A network of your own: a file and the function or class in it that builds the torch module.",
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.")]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, float64, tf32 or bf16; the last two for GPUs.",
        autocompletion=completing(lambda: PRECISIONS),
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        help="A paper's experiment; idiolect scenarios lists them.",
        autocompletion=completing(_scenario_names),
    ),
]
Preset = Annotated[
    str, typer.Option(help="Preset of the scenario: paper, official, clipped or reproduction.")
]
PresetIfAny = Annotated[
    str | None,
    typer.Option("--preset", help="Preset of the scenario: paper, official, clipped or reproduction."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw.")]
DataSeed = Annotated[
    int | None,
    typer.Option(help="Seed of the partition and the splits; by default that of each run."),
]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
NumberOfSeeds = Annotated[int, typer.Option(help="How many seeds.", min=1)]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting as key=value; may be repeated.")]
Under = Annotated[
    list[str] | None,
    typer.Option(
        "--under",
        help="A disturbance, such as label_noise(share=0.3); may be repeated; idiolect disturbances lists them.",
        autocompletion=completing(lambda: DISTURBANCES),
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Three rounds on ten small clients, to see that it works.")
]

Engine = Annotated[
    str,
    typer.Option(
        help="auto, loop, cohort, pool or ray; changes numbers in their last digits at most.",
        autocompletion=completing(lambda: ["auto", *ENGINES]),
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Workers = Annotated[int | None, typer.Option(help="Processes of the engines pool and ray.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, or auto for one on this machine [RAY_ADDRESS]; else one is started."
    ),
]
GpusPerWorker = Annotated[
    float, typer.Option(help="GPUs of each worker of the engine ray; 0.5 lets two workers share one.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the datasets [IDIOLECT_DATA].")]
Out = Annotated[Path, typer.Option("--out", help="Folder in which the folders of runs are made.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint; sweep and reproduce always do.")
]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        "--accept-changes", help="Go on with other code or package versions; the record keeps them."
    ),
]
Store = Annotated[
    str, typer.Option(help="Where private state is kept: auto, device, host or disk; changes no number.")
]
StoreCache = Annotated[float | None, typer.Option(help="Megabytes of a disk store kept in memory.")]
OnDivergence = Annotated[
    str | None,
    typer.Option(
        help="A run whose numbers are no longer finite: stop, or record where it diverged and go on with the others. "
        "reproduce records by default, other commands stop.",
        metavar="stop|record",
        autocompletion=completing(lambda: ON_DIVERGENCE),
    ),
]
Log = Annotated[
    list[str], typer.Option("--log", help="Log to tensorboard, mlflow or wandb too; may be repeated.")
]
NumberOfJobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        help="Runs side by side, each in a process of its own; they share the cores, a GPU, or a Ray cluster.",
        min=1,
    ),
]

OwnData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="A file or folder of your own, or hf:NAME, in place of --dataset.",
        rich_help_panel="Own data",
    ),
]
NewClientsData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Rows of the new clients: a file or folder, or hf:NAME.",
        rich_help_panel="Own data",
    ),
]
ClientColumn = Annotated[
    str | None,
    typer.Option(help="Column that names the client of each row.", rich_help_panel="Own data"),
]
LabelColumn = Annotated[
    list[str] | None,
    typer.Option(help="Column to predict; several by commas or repeated.", rich_help_panel="Own data"),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(help="Column that says train, valid or test of each row.", rich_help_panel="Own data"),
]
SplitBy = Annotated[
    str | None,
    typer.Option(
        metavar="time:COL|group:COL",
        help="Test on each client's last rows, or keep the rows of one group together.",
        rich_help_panel="Own data",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        help="classification, binary, multilabel, regression or next_token; by default read from the labels.",
        rich_help_panel="Own data",
    ),
]
Fill = Annotated[
    str | None,
    typer.Option(
        help="What fills missing values: none (refuses), mean, zero or a number.", rich_help_panel="Own data"
    ),
]
Vocabulary = Annotated[
    int | None,
    typer.Option(
        help="Number of different tokens, where the x of an .npz file holds tokens; next_token needs it.",
        rich_help_panel="Own data",
    ),
]
Repartition = Annotated[
    bool,
    typer.Option(
        "--repartition",
        help="Share the rows out by --partition, though the data name their clients.",
        rich_help_panel="Own data",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


@dataclass(frozen=True)
class ScenarioChoice:
    """The experiment of a paper that a command starts from, if any."""

    scenario: ScenarioName = None
    preset: PresetIfAny = None


@dataclass(frozen=True)
class SceneOptions:
    """Settings of the experiment that have an option of their own; None where the option is not given."""

    dataset: Dataset = None
    partition: Partition = None
    clients: Clients = None
    model: Model = None
    model_file: ModelFile = None
    rounds: Rounds = None
    precision: Precision = None
    under: Under = None
    data_seed: DataSeed = None


@dataclass(frozen=True)
class SiteSceneOptions:
    """Settings of a deployment that have an option of their own; it counts sites instead of clients."""

    dataset: Dataset = None
    partition: Partition = None
    model: Model = None
    rounds: Rounds = None
    precision: Precision = None
    seed: Seed = None
    data_seed: DataSeed = None


@dataclass(frozen=True)
class SeedRange:
    """The seeds of a command that runs each method with several: consecutive numbers."""

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


@dataclass(frozen=True)
class ReadingOptions:
    """Data of the user's own, and how they are read.

    Options that cannot work are refused when the group is made.
    """

    data: OwnData = None
    client_column: ClientColumn = None
    label_column: LabelColumn = None
    split_column: SplitColumn = None
    split_by: SplitBy = None
    task: TaskName = None
    fill: Fill = None
    vocabulary: Vocabulary = None

    def __post_init__(self) -> None:
        given = self.keywords()
        if self.data is None and given:
            raise UserError(
                f"--{next(iter(given)).replace('_', '-')} describes data of your own; give --data PATH too"
            )
        if self.split_column is not None and self.split_by is not None:
            raise UserError("--split-column and --split-by both say how rows are split; give one of them")
        kind, _, column = (self.split_by or "time:-").partition(":")
        if kind not in ("time", "group") or not column:
            raise UserError(f"--split-by must be time:COLUMN or group:COLUMN; got {self.split_by!r}")

    def keywords(self) -> dict[str, Any]:
        """Returns what is given, as keywords of ``idiolect.run``; several label columns are a tuple."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        names = [name.strip() for text in self.label_column or [] for name in text.split(",")]
        if "" in names:
            raise UserError(f"--label-column has an empty name in {','.join(self.label_column or [])!r}")
        given["label_column"] = names[0] if len(names) == 1 else tuple(names)
        return {key: value for key, value in given.items() if value not in (None, False, ())}


@dataclass(frozen=True)
class OwnDataOptions(ReadingOptions):
    """Data of the user's own in place of a dataset by name, and how they are read."""

    repartition: Repartition = False


@dataclass(frozen=True)
class NewClientsOptions(ReadingOptions):
    """The rows of clients that join a finished run, and how they are read."""

    data: NewClientsData = None


RUN_OPTIONS: dict[str, Any] = {
    "engine": Engine,
    "device": Device,
    "workers": Workers,
    "ray_address": RayAddress,
    "gpus_per_worker": GpusPerWorker,
    "data_dir": DataDir,
    "out": Out,
    "resume": Resume,
    "accept_changes": AcceptChanges,
    "jobs": NumberOfJobs,
    "store": Store,
    "store_cache": StoreCache,
    "on_divergence": OnDivergence,
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
