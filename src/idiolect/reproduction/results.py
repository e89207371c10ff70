"""The results of the repository: records of finished runs, small enough to commit, which tables are printed from.

``results/runs`` has a folder for each run, a record like any other with less in it: all rows of the last evaluation, of
earlier ones those of the metric that the run is judged by, and a manifest without what the data repeat.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.errors import UserError
from idiolect.experiments.finished.recorded_setting import experiment_of
from idiolect.experiments.identity import hash_of, name_of
from idiolect.experiments.jobs.campaign import RunOutcome, RunRequest, taken
from idiolect.experiments.run import with_public_samples
from idiolect.experiments.spec import Experiment
from idiolect.records import Run, file_digest, find_runs, read_run
from idiolect.records.manifest import MANIFEST, read_manifest, write_manifest
from idiolect.records.tables import CLIENTS_FILE, FRONT_SCHEMA, ROUNDS_FILE, SCHEMAS
from idiolect.reproduction.quick_experiment import QUICK_NOTE
from idiolect.statistics import primary_metric

__all__ = ["LARGEST", "RUNS", "Collected", "Results", "Use", "collect"]

LOGGER = logging.getLogger(__name__)
RUNS = "runs"
LARGEST = 20_000_000  # bytes of all results together
SCENARIO_NOTE = re.compile(r"scenario (\S+), preset (\w+)(, with .*)?$")
LEFT_OUT = (
    "class_counts",
    "samples",
    "source",
    "client_names",
    "preprocessing",
    "disturbed",
    "at_end",
    "dropped",
)
# Of small tables, dictionaries and statistics take more room than the rows.
SMALL: dict[str, Any] = {
    **{"compression": "zstd", "compression_level": 19},
    **{"use_dictionary": False, "write_statistics": False, "store_schema": False},
}
NOT_RUN = "no record of it is among the results"


class Collected(NamedTuple):
    """What came of collecting.

    Args:
        added: names of the runs that are new among the results.
        known: how many were there already.
        bytes: of all results together.
    """

    added: list[str]
    known: int
    bytes: int


def collect(
    places: Sequence[str | Path], into: str | Path, say: Callable[[str], None], command: str = ""
) -> Collected:
    """Copies what tables and figures need of the finished runs of scenarios into a folder of results.

    Quick runs, runs of no scenario and runs whose settings give another name than theirs are left out.

    Args:
        places: runs, or folders that hold runs at any depth.
        say: gets one sentence for each run that is left out.
        command: the command that made the runs, for their manifests.

    Raises:
        UserError: there is no finished run.
    """
    runs = Path(into) / RUNS
    added, known = [], 0
    for found in find_runs(places, say):
        name = str(found.manifest["name"])
        if reason := _no_result(found.manifest):
            say(f"{found.folder} {reason}; it is left out")
        elif (runs / name).is_dir():
            known += 1
        else:
            _write(read_run(found.folder), runs / name, command)
            added.append(name)
    size = sum(path.stat().st_size for path in Path(into).rglob("*") if path.is_file())
    return Collected(added, known, size)


def _no_result(manifest: Mapping[str, Any]) -> str:
    """Returns why a run cannot be a result; empty where it can."""
    notes = manifest.get("notes", [])
    if QUICK_NOTE in notes:
        return "is a quick run, which is not compared with a paper"
    if use_of(manifest) is None:
        return "belongs to no scenario of a paper"
    try:
        refuse_altered(manifest)
    except UserError as error:
        return f"cannot be trusted: {error}"
    return ""


def _write(run: Run, folder: Path, command: str) -> None:
    """Writes the small record of a run; the folder appears when it is complete."""
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    tables = {CLIENTS_FILE: _kept_rows(run), ROUNDS_FILE: run.rounds}
    digests = {}
    for file, table in tables.items():
        whole = pa.Table.from_pandas(table, SCHEMAS[file], preserve_index=False)
        pq.write_table(whole.drop_columns(FRONT_SCHEMA.names), unfinished / file, **SMALL)
        digests[file] = file_digest(unfinished / file)
    manifest = {key: value for key, value in run.manifest.items() if key not in LEFT_OUT}
    manifest |= {"sha256": digests, "sha256_of_whole_run": run.manifest["sha256"]}
    write_manifest(unfinished, manifest | ({"command": command} if command else {}), indent=None)
    unfinished.rename(folder)


def _kept_rows(run: Run) -> pd.DataFrame:
    rows = run.rows
    return rows[(rows["round"] == rows["round"].max()) | (rows["metric"] == primary_metric(run))]


class Use(NamedTuple):
    """What a run was made for: the scenario, its preset, the number format, and what a search tried on top."""

    scenario: str
    preset: str
    precision: str
    tried: str = ""


def use_of(manifest: Mapping[str, Any]) -> Use | None:
    """Returns what a run was made for; None for a run of no scenario."""
    for note in manifest.get("notes", []):
        if found := SCENARIO_NOTE.match(note):
            precision = str(manifest["spec"].get("precision", "float32"))
            return Use(found[1], found[2], precision, found[3] or "")
    return None


def refuse_altered(manifest: Mapping[str, Any]) -> Experiment:
    """Returns the experiment of a record whose name, hash and settings agree.

    Raises:
        UserError: they do not, so that the record was altered, or made by a version with other defaults.
    """
    name = str(manifest["name"])
    experiment = experiment_of(manifest["spec"], name)
    stated = (name, manifest.get("spec_hash"), manifest["seed"], manifest["method"])
    if stated != (name_of(experiment), hash_of(experiment), experiment.seed, experiment.method):
        raise UserError(f"the record {name} states other settings than those that give its name")
    return experiment


@dataclass(frozen=True)
class Results:
    """A folder of results, from which outcomes are read without training.

    Args:
        manifests: of all runs, by the folder's name.
        damaged: what is wrong with the manifests that cannot be read, by the folder's name.
    """

    folder: Path
    manifests: Mapping[str, Mapping[str, Any]]
    damaged: Mapping[str, str]

    @classmethod
    def open(cls, folder: str | Path, say: Callable[[str], None] = LOGGER.warning) -> Results:
        """Opens a folder of results.

        Args:
            say: gets one sentence for each record whose manifest is damaged, which is left out.

        Raises:
            UserError: the folder holds no results.
        """
        manifests, damaged = {}, {}
        for place in sorted(path.parent for path in Path(folder).glob(f"{RUNS}/*/{MANIFEST}")):
            try:
                manifests[place.name] = read_manifest(place)
            except UserError as error:
                damaged[place.name] = str(error)
                say(f"{error}; it is left out")
        if not manifests:
            raise UserError(
                f"{folder} holds no results; idiolect collect RUNS --into {folder} puts finished runs there"
            )
        return cls(Path(folder), manifests, damaged)

    def uses(self) -> dict[Use, set[int]]:
        """Returns what the runs were made for, and the seeds of each use."""
        found: dict[Use, set[int]] = {}
        for manifest in self.manifests.values():
            if (use := use_of(manifest)) is not None:
                found.setdefault(use, set()).add(int(manifest["seed"]))
        return found

    def outcomes(self, requests: Iterable[RunRequest]) -> dict[Hashable, RunOutcome]:
        """Returns what each request takes from its record; a record of other settings is refused by name."""
        return {request.key: self._outcome(request) for request in requests}

    def _outcome(self, request: RunRequest) -> RunOutcome:
        experiment = with_public_samples(request.experiment, [request.experiment.method])
        name = _name_of(experiment)
        if name in self.damaged:
            return RunOutcome(failed=self.damaged[name])
        if name not in self.manifests:
            return RunOutcome(missing=NOT_RUN)
        try:
            refuse_other_settings(name, self.manifests[name], experiment)
            return taken(request, _read(self.folder / RUNS / name))
        except UserError as error:
            return RunOutcome(failed=str(error))


def refuse_other_settings(name: str, manifest: Mapping[str, Any], asked: Experiment) -> None:
    """Raises a UserError that names the record and the settings in which it differs from what is asked for."""
    recorded, wanted = asdict(experiment_of(manifest["spec"], name)), asdict(asked)
    plain = json.loads(json.dumps([recorded, wanted]))
    differing = [key for key in wanted if plain[0][key] != plain[1][key]]
    if "method" in differing and hash_of(experiment_of(manifest["spec"], name)) == hash_of(asked):
        differing.remove("method")  # another spelling
    if differing:
        listed = ", ".join(f"{key}={recorded[key]!r} in place of {wanted[key]!r}" for key in differing)
        raise UserError(f"the record {name} was made with {listed}; it fills no cell")
    if manifest["name"] != name or manifest.get("spec_hash") != hash_of(asked):
        raise UserError(
            f"the record {name} is that of {manifest['name']}, altered or renamed; it fills no cell"
        )


@cache
def _name_of(experiment: Experiment) -> str:
    return name_of(experiment)


@cache
def _read(folder: Path) -> Run:
    return read_run(folder)
