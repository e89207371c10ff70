"""``load``: the measurements of many runs as one tidy frame, one row per measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from idiolect.errors import UserError, unknown_name
from idiolect.records import ROW_SCHEMA, FoundRun, find_runs
from idiolect.records.tables import CLIENTS_FILE, front_columns
from idiolect.statistics.measurements import ORDER

__all__ = ["SERIES", "differing_settings", "facts_of_run", "is_final", "load"]

WORDS = tuple(field.name for field in ROW_SCHEMA if field.type == pa.string())
SERIES = ["split", "population", "predictor", "metric"]
END = 1 << 40  # beyond the number of any round


def load(
    runs: str | Path | Iterable[str | Path],
    *,
    metric: str | Sequence[str] | None = None,
    final: bool = False,
    headline: bool = False,
) -> pd.DataFrame:
    """Reads all finished runs in a folder, at any depth, as one tidy frame with one row per measurement.

    The columns are `run`, `method`, `label`, `seed`, `data_seed`, `scene`, `dataset`, `partition`, `model`; `round`,
    `client`, `split`, `predictor`, `moment`, `population`, `metric`, `value`, `samples`; then every setting in which
    the runs differ, by its name, and every option of a method in which they differ, such as `map.alpha`.  Words are
    categories, so that a row takes few bytes; only the rows that are asked for are read.  A run that is unfinished, or
    has a table that does not match its checksum, is left out with a warning.

    Args:
        runs: a folder or several; a run that lies there twice counts once.
        metric: a metric or several; all by default.
        final: keeps of every series only the final values: those at the end of the run where there are any, else those
            of its last measured round.
        headline: keeps the numbers that represent a method: its headline predictor on the test data of all clients, in
            the metric that the run is judged by unless ``metric`` names others.

    Raises:
        UserError: there is no finished run, or no run knows the metric.

    >>> import tempfile, idiolect
    >>> with tempfile.TemporaryDirectory() as out:
    ...     done = idiolect.run("fedper", rounds=1, clients=4, partition="iid", out=out, engine="loop", quiet=True)
    ...     frame = idiolect.load(out, final=True, headline=True)
    >>> frame[["label", "predictor", "metric", "client"]].drop_duplicates().shape, set(frame["label"])
    ((4, 4), {'FedPer'})
    """
    found = find_runs(runs)
    metrics = [metric] if isinstance(metric, str) else None if metric is None else list(metric)
    differing = differing_settings([run.manifest for run in found])
    tables = []
    for run, settings in zip(found, differing, strict=True):
        rows = _rows(run, metrics, headline, final)
        tables.append(_with_constants(rows, facts_of_run(run.manifest), settings))
    whole = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    if metrics and not whole.num_rows:
        _refuse_unknown_metrics(metrics, found)
    return whole.to_pandas()


def facts_of_run(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what every row of a run says about it: run, method, label, seeds, scene, dataset, partition, model."""
    front = front_columns(manifest)
    scene = {key: str(manifest.get(key, "")) for key in ("dataset", "partition", "model")}
    label = str(manifest.get("label") or manifest["method"])
    return {"run": front.pop("run"), "method": front.pop("method"), "label": label, **front, **scene}


def differing_settings(manifests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns for every run the settings, and the options of methods, in which the runs differ.

    Options are called `<method or part>.<option>` and count where runs that have them differ; other runs lack them.
    """
    told = {"method", "seed", "data_seed", "dataset", "partition", "model"}
    specs = [{k: v for k, v in one.get("spec", {}).items() if k not in told} for one in manifests]
    names = dict.fromkeys(name for spec in specs for name in spec)
    kept = [name for name in names if len({repr(spec.get(name)) for spec in specs}) > 1]
    options = [
        {f"{term}.{name}": value for term, given in one.get("options", []) for name, value in given.items()}
        for one in manifests
    ]
    ways: dict[str, set[str]] = {}
    for one in options:
        for name, value in one.items():
            ways.setdefault(name, set()).add(repr(value))
    varied = [name for name, values in ways.items() if len(values) > 1]
    columns = {name: _of_one_kind([spec.get(name) for spec in specs]) for name in kept}
    columns |= {name: _of_one_kind([own.get(name) for own in options]) for name in varied}
    return [{name: values[place] for name, values in columns.items()} for place in range(len(specs))]


def _of_one_kind(values: Sequence[Any]) -> list[Any]:
    """Returns numbers, truth values or texts as they are, and a mixture of them as texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {bool, str}):
        return list(values)
    return [None if value is None else str(value) for value in values]


def _rows(run: FoundRun, metrics: list[str] | None, headline: bool, final: bool) -> pa.Table:
    """Returns the measurements of one run that are asked for, in the columns of `ROW_SCHEMA`."""
    path, manifest = run.folder / CLIENTS_FILE, run.manifest
    conditions = []
    if headline:
        predictor = str(manifest.get("headline", "global"))
        metrics = metrics or [str(manifest.get("primary_metric", "accuracy"))]
        wanted = {"split": "test", "population": "all", "predictor": predictor}
        conditions += [ds.field(name) == value for name, value in wanted.items()]
    if metrics is not None:
        conditions.append(ds.field("metric").isin(metrics))
    way = ds.ParquetFileFormat(read_options={"dictionary_columns": WORDS})
    try:
        source = ds.dataset(path, format=way)
        columns = [name for name in ROW_SCHEMA.names if name in source.schema.names]
        table = source.to_table(columns=columns, filter=reduce(and_, conditions) if conditions else None)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{run.folder} is damaged: {CLIENTS_FILE} cannot be read ({reason})") from error
    if "samples" not in table.column_names:  # older records did not count them
        table = table.append_column("samples", pa.repeat(pa.scalar(0, pa.int64()), table.num_rows))
    return _last_values(table) if final else table


def _last_values(table: pa.Table) -> pa.Table:
    frame = table.select([*SERIES, "moment", "round", "value"]).to_pandas()
    return table.filter(pa.array(np.asarray(is_final(frame))))


def is_final(rows: pd.DataFrame) -> pd.Series:
    """Returns which measurements of one run are final.

    Those are in every series the values at the end of the run, else those of its last measured round, at the last
    moment measured there.
    """
    moment = rows["moment"].astype(str).map(ORDER)
    when = rows["round"].astype("int64") * len(ORDER) + moment + END * (moment == ORDER["end"])
    when = when.where(rows["value"].notna(), -1)
    last = when.groupby([rows[name] for name in SERIES], observed=True).transform("max")
    return (when == last) & (when >= 0)


def _with_constants(table: pa.Table, front: Mapping[str, Any], behind: Mapping[str, Any]) -> pa.Table:
    """Returns the table with columns that have one value each, before and behind its own."""
    columns = {name: _constant(value, table.num_rows) for name, value in front.items()}
    columns |= dict(zip(table.column_names, table.columns, strict=True))
    for name, value in behind.items():
        columns[f"setting.{name}" if name in columns else name] = _constant(value, table.num_rows)
    return pa.table(columns)


def _constant(value: Any, length: int) -> pa.Array:
    if isinstance(value, str):
        where = pa.array(np.zeros(length, np.int32))
        return pa.DictionaryArray.from_arrays(where, pa.array([value]))
    return pa.nulls(length) if value is None else pa.repeat(pa.scalar(value), length)


def _refuse_unknown_metrics(metrics: Iterable[str], found: Iterable[FoundRun]) -> None:
    known = {name for run in found for name in run.manifest.get("metrics", {})}
    for name in metrics:
        if name not in known:
            raise unknown_name("metric", name, known)
