"""MLflow tracker: logs to the experiment ``idiolect`` in ``<out>/mlflow.db``, or where ``MLFLOW_TRACKING_URI`` says.

The default is an SQLite database, which every MLflow client opens and which needs no server; copies of files lie in
``<out>/mlartifacts``.  MLflow's telemetry is switched off.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import alembic as alembic  # MLflow's small package leaves out what its databases need;
import sqlalchemy as sqlalchemy  # the error of a missing package then names it
from mlflow.entities import Experiment, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from idiolect.errors import UserError

__all__ = ["MLflow", "open_tracker"]

EXPERIMENT = "idiolect"
DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
NAME = "idiolect.run"
SEEN = "round/train_loss"  # every round has it
AT_ONCE = 500  # metrics of one call; MLflow takes a thousand
LONGEST = 500  # letters of a parameter
STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MLflow:
    """Logs a run as one run of MLflow.

    Args:
        address: of the store; a database is made when the first run begins.
        artifacts: where copies of files lie; None leaves it to the server.
    """

    def __init__(self, address: str, artifacts: Path | None = None) -> None:
        self._address, self._artifacts = address, artifacts
        self._opened: MlflowClient | None = None
        self._run = ""
        self._known = 0

    @property
    def _client(self) -> MlflowClient:
        if self._opened is None:
            self._opened = _client_of(self._address)
        return self._opened

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """Continues the unfinished run of that name if there is one; rounds that it knows are not logged twice."""
        home = self._home()
        self._run, self._known = self._earlier(home, name, "attributes.status != 'FINISHED'"), 0
        if self._run:
            self._known = max((m.step for m in self._client.get_metric_history(self._run, SEEN)), default=0)
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run = self._client.create_run(home, run_name=name).info.run_id
        spec = [Param(key, str(value)[:LONGEST]) for key, value in manifest["spec"].items()]
        tags = {NAME: name, "idiolect.label": manifest["label"], "idiolect.spec_hash": manifest["spec_hash"]}
        self._client.log_batch(
            self._run, params=spec, tags=[RunTag(key, str(value)) for key, value in tags.items()]
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        if round <= self._known and SEEN in numbers:
            return
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, round) for name, value in numbers.items()]
        for first in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[first : first + AT_ONCE])

    def keep(self, files: Mapping[str, Path]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            for name, path in files.items():
                folder, named = str(PurePosixPath(name).parent), Path(scratch) / PurePosixPath(name).name
                named.symlink_to(path.resolve())  # MLflow keeps a file under its own name
                self._client.log_artifact(self._run, str(named), None if folder == "." else folder)
                named.unlink()

    def end(self, status: str) -> None:
        self._client.set_terminated(self._run, STATUS[status])

    def keep_comparison(self, name: str, files: Mapping[str, Path]) -> None:
        home = self._home()
        self._run = self._earlier(home, name) or self._client.create_run(home, run_name=name).info.run_id
        self._client.set_tag(self._run, NAME, name)
        self.keep(files)
        self.end("finished")

    @property
    def look(self) -> str:
        if self._artifacts is None:
            return f"MLflow: {self._address}"
        return f"MLflow: mlflow ui --backend-store-uri {self._address}"

    def _home(self) -> str:
        """Returns the number of the experiment that holds all runs, and makes it where it is missing."""
        found: Experiment | None = self._client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            place = None if self._artifacts is None else self._artifacts.resolve().as_uri()
            try:
                return str(self._client.create_experiment(EXPERIMENT, artifact_location=place))
            except MlflowException:  # another run has made it meanwhile
                found = self._client.get_experiment_by_name(EXPERIMENT)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _earlier(self, home: str, name: str, also: str = "") -> str:
        asked = " and ".join(filter(None, (f"tags.`{NAME}` = '{name}'", also)))
        found = self._client.search_runs([home], asked, max_results=1)
        return str(found[0].info.run_id) if found else ""


def open_tracker(out: Path) -> MLflow:
    """Opens a tracker that writes below ``out``, or to ``MLFLOW_TRACKING_URI`` where that is set.

    Raises:
        UserError: MLflow does not accept ``MLFLOW_TRACKING_URI``.
    """
    address = os.environ.get("MLFLOW_TRACKING_URI")
    if not address:
        return MLflow(f"sqlite:///{(out / DATABASE).resolve()}", out / ARTIFACTS)
    _client_of(address)
    return MLflow(address)


def _client_of(address: str) -> MlflowClient:
    for name in ("mlflow.store.db.utils", "alembic"):  # they announce every table that they make
        logging.getLogger(name).setLevel(logging.WARNING)
    if address.startswith("file:") or "://" not in address:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # MLflow's tables and newer releases of SQLAlchemy
            return MlflowClient(tracking_uri=address)
    except (MlflowException, ImportError) as error:
        raise UserError(f"MLflow cannot log to {address}: {str(error).splitlines()[0]}") from error
