"""MLflow tracker: logs to the experiment ``idiolect`` in ``<out>/mlruns``, or where ``MLFLOW_TRACKING_URI`` says.

The default is a folder because that needs neither a database nor a server.  MLflow's telemetry is switched off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from idiolect.errors import UserError

__all__ = ["MLflow", "open_tracker"]

EXPERIMENT = "idiolect"
FOLDER = "mlruns"
NAME = "idiolect.run"
SEEN = "round/train_loss"  # every round has it
AT_ONCE = 500  # metrics of one call; MLflow takes a thousand
LONGEST = 500  # letters of a parameter
STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MLflow:
    """Logs a run as one run of MLflow."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._run = ""
        self._known = 0

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """Continues the unfinished run of that name if there is one; rounds that it knows are not logged twice."""
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        home = experiment.experiment_id if experiment else self._client.create_experiment(EXPERIMENT)
        same = f"tags.`{NAME}` = '{name}' and attributes.status != 'FINISHED'"
        earlier = self._client.search_runs([home], same, max_results=1)
        if earlier:
            self._run = earlier[0].info.run_id
            self._known = max((m.step for m in self._client.get_metric_history(self._run, SEEN)), default=0)
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run, self._known = self._client.create_run(home, run_name=name).info.run_id, 0
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

    def end(self, status: str) -> None:
        self._client.set_terminated(self._run, STATUS[status])


def open_tracker(out: Path) -> MLflow:
    """Opens a client of MLflow.

    Raises:
        UserError: MLflow does not accept ``MLFLOW_TRACKING_URI``.
    """
    address = os.environ.get("MLFLOW_TRACKING_URI")
    if not address:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = (out / FOLDER).resolve().as_uri()
    try:
        return MLflow(MlflowClient(tracking_uri=address))
    except (MlflowException, ImportError) as error:
        raise UserError(f"MLflow cannot log to {address}: {str(error).splitlines()[0]}") from error
