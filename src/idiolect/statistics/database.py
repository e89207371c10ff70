"""``connect``: the tables of many runs as views of a DuckDB database in memory, which read files when asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.errors import UserError
from idiolect.records import FoundRun, find_runs
from idiolect.records.tables import ADDED_LATER, CLIENTS_FILE, COSTS_FILE, ROUNDS_FILE, SCHEMAS
from idiolect.statistics.tidy_frame import differing_settings, facts_of_run

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["connect"]

VIEWS = {"measurements": CLIENTS_FILE, "rounds": ROUNDS_FILE, "costs": COSTS_FILE}
FRONT = ("run", "method", "label", "seed", "data_seed", "scene", "dataset", "partition", "model")
FINAL = """
CREATE VIEW final AS SELECT m.* FROM measurements m JOIN runs r USING (run)
WHERE m.split = 'test' AND m.population = 'all' AND NOT isnan(m.value)
  AND m.predictor = coalesce(r.headline, 'global') AND m.metric = coalesce(r.primary_metric, 'accuracy')
QUALIFY rank() OVER (
    PARTITION BY m.run ORDER BY m.moment = 'end' DESC, m.round DESC, m.moment = 'after' DESC
) = 1
"""
ABOUT = ("headline", "primary_metric", "parameters", "seconds", "date", "commit")  # of a manifest


def connect(runs: str | Path | Iterable[str | Path]) -> DuckDBPyConnection:
    """Returns a DuckDB connection with `runs`, `measurements`, `final`, `rounds` and `costs` of all finished runs.

    `runs` has one row per run: what identifies it, its folder, headline predictor, metric, seconds, date, and the
    settings in which the runs differ.  The views `measurements`, `rounds` and `costs` are the tables of all runs one
    under the other, each row with `run`, `method`, `label`, `seed`, `data_seed`, `scene`, `dataset`, `partition` and
    `model` in front; `costs` is empty where no run recorded them.  `final` holds the measurements that represent a
    method: its headline predictor's final value on every client, as ``load(final=True, headline=True)`` returns them.
    The records themselves are never written to.  It needs the extra `duckdb`.

    Args:
        runs: a folder or several; runs at any depth count, each once.

    Raises:
        UserError: there is no finished run, or the package duckdb is not installed.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UserError(
            "idiolect.connect needs the package duckdb; install it with: pip install 'idiolect[duckdb]'"
        ) from error
    found = find_runs(runs)
    connection = duckdb.connect()
    frame = _frame_of_runs(found)
    connection.register("frame_of_runs", frame)
    connection.execute("CREATE TABLE runs AS SELECT * FROM frame_of_runs")
    connection.unregister("frame_of_runs")
    for name, file in VIEWS.items():
        present = [path for run in found if (path := run.folder / file).is_file()]
        connection.execute(_view(name, [str(path.resolve()) for path in present]))
    connection.execute(FINAL)
    return connection


def _frame_of_runs(found: Sequence[FoundRun]) -> pd.DataFrame:
    """Returns one row per run, with the paths of its tables."""
    settings = differing_settings([run.manifest for run in found])
    lines: list[dict[str, Any]] = []
    for run, own in zip(found, settings, strict=True):
        facts: dict[str, Any] = {**facts_of_run(run.manifest), "folder": str(run.folder.resolve())}
        facts |= {name: run.manifest.get(name) for name in ABOUT}
        lines.append({**facts, **{(f"setting.{name}" if name in facts else name): own[name] for name in own}})
    return pd.DataFrame(lines)


def _view(name: str, files: Sequence[str]) -> str:
    """Returns the statement that makes a view of one table of all runs; older records may lack columns."""
    front = ", ".join(f"r.{column}" for column in FRONT)
    if not files:
        empty = ", ".join(f"NULL AS {column}" for column in SCHEMAS[VIEWS[name]].names if column not in FRONT)
        return f"CREATE VIEW {name} AS SELECT {front}, {empty} FROM runs r WHERE false"
    present = dict.fromkeys(column for file in files for column in _columns_of(file))
    own = [_column(column) for column in present if column not in FRONT]
    lacking = [column for column in SCHEMAS[VIEWS[name]].names if column not in {*present, *FRONT}]
    own += [f"{_value_in_older_records(column)} AS {column}" for column in lacking]
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return (
        f"CREATE VIEW {name} AS SELECT {front}, {', '.join(own)} "
        f"FROM read_parquet([{listed}], union_by_name = true, filename = true) m "
        f"JOIN runs r ON parse_dirpath(m.filename) = r.folder"
    )


def _columns_of(file: str) -> list[str]:
    try:
        return list(pq.read_schema(file).names)
    except (OSError, pa.ArrowException) as error:
        folder, name, reason = Path(file).parent, Path(file).name, str(error).partition("\n")[0]
        raise UserError(f"{folder} is damaged: {name} cannot be read ({reason})") from error


def _column(name: str) -> str:
    """Returns a column of the files; rows of those that lack it hold what the reader of records puts there."""
    later = _value_in_older_records(name)
    return f"m.{name}" if later == "NULL" else f"coalesce(m.{name}, {later}) AS {name}"


def _value_in_older_records(name: str) -> str:
    value = ADDED_LATER.get(name)
    return "NULL" if value is None else str(value)
