"""Early stopping of a run: who decides it, what it is decided by, and how the run ends."""

from __future__ import annotations

from collections.abc import Callable

from idiolect.experiments.rounds.simulated_clients import Simulation

__all__ = ["Judge", "StoppedEarly", "validation_value"]

Judge = Callable[[int, float], bool]  # (rounds done, validation metric) -> whether to stop


class StoppedEarly(Exception):
    """A judge has stopped a run.

    Args:
        round: the rounds that were done.
    """

    def __init__(self, round: int) -> None:
        super().__init__(f"stopped after round {round}")
        self.round = round


def validation_value(simulation: Simulation, known: int) -> float | None:
    """Returns the mean over clients of what the method is judged by, on validation data; None if it was not measured.

    A metric of which less is better changes its sign, so that higher is better.  A method whose headline predictor is
    made at the end of the run has no such value before.

    Args:
        known: rows that were recorded before the last round.
    """
    setting = simulation.setting
    rows = simulation.rows.table().slice(known).to_pandas()
    name = simulation.picks.get(setting.headline, setting.headline)
    wanted = {"split": "valid", "population": "all", "predictor": name, "metric": setting.primary_metric}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    found = rows["value"].dropna()
    sign = 1 if setting.metrics[setting.primary_metric].higher_is_better else -1
    return sign * float(found.mean()) if len(found) else None
