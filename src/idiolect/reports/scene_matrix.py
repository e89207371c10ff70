"""Methods against scenes: values, ranks within each scene, and mean ranks over scenes with their tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from idiolect import statistics
from idiolect.reports.judged_metric import ABSENT, JudgedMetric
from idiolect.reports.run_groups import without_repeated_clients
from idiolect.reports.scene_verdict import SceneVerdict
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from idiolect.statistics import Ranking

__all__ = ["SceneMatrix", "matrix_rows", "matrix_table", "matrix_words", "scene_matrix"]

FEWEST_METHODS = 3
FEWEST_SCENES = 2


class SceneMatrix(NamedTuple):
    """Final values of all methods in all scenes.

    Args:
        values: the headline's mean over clients and seeds, methods as rows and scenes as columns; NaN where absent.
        ranks: the rank within each scene among the methods that it has, 1 is best.
        leading: whether a method belongs to the leader's group of a scene, those that cannot be told apart from the
            best; none does where the scene has no verdict.
        metrics: what each scene is judged by.
        ranking: mean ranks and tests of the methods that every scene has, over scenes with clients of their own; None
            with fewer than three methods or two such scenes.
    """

    values: pd.DataFrame
    ranks: pd.DataFrame
    leading: pd.DataFrame
    metrics: dict[str, JudgedMetric]
    ranking: Ranking | None


def scene_matrix(scenes: Mapping[str, SceneVerdict]) -> SceneMatrix:
    """Returns the matrix of several scenes; each may be judged by a metric of its own."""
    metrics = {name: found.metric for name, found in scenes.items()}
    labels = list(
        dict.fromkeys(
            label for found in scenes.values() for label in (*found.estimates["method"], *found.scores)
        )
    )
    values = pd.DataFrame(
        {name: found.estimates.set_index("method")["value"] for name, found in scenes.items()}
    ).reindex(labels)
    upwards = values * [1 if metrics[name].higher_is_better else -1 for name in values]
    apart = without_repeated_clients({name: found.first for name, found in scenes.items()})
    ranking, shared = None, upwards[apart].dropna()
    if len(shared) >= FEWEST_METHODS and len(apart) >= FEWEST_SCENES:
        ranking = statistics.rank_methods(shared.T)
    leading = pd.DataFrame({name: _leading(found, labels) for name, found in scenes.items()}, index=labels)
    return SceneMatrix(values, upwards.rank(ascending=False), leading, metrics, ranking)


def _leading(found: SceneVerdict, labels: list[str]) -> list[bool]:
    best = set(found.letters[found.leader]) if found.decided and len(found.estimates) else set()
    return [bool(best & set(found.letters.get(label, ""))) for label in labels]


def matrix_rows(found: SceneMatrix) -> list[list[str]]:
    """Returns the matrix as strings, the header first: the value and, in brackets, the rank; then the mean rank.

    Methods come in the order of their mean ranks, those that a scene lacks last, as they come in the first scene.
    """
    mean_ranks = found.ranking.ranks if found.ranking is not None else pd.Series(dtype=float)
    order = [*mean_ranks.index, *(label for label in found.values.index if label not in mean_ranks.index)]
    header = ["Method", *(_heading(name, metric) for name, metric in found.metrics.items())]
    lines = []
    for label in order:
        cells = [_cell(found, label, name) for name in found.values]
        mean = [f"{mean_ranks[label]:.2f}" if label in mean_ranks.index else ABSENT]
        lines.append([str(label), *cells, *(mean if found.ranking is not None else [])])
    return [[*header, *(["Mean rank"] if found.ranking is not None else [])], *lines]


def _heading(name: str, metric: JudgedMetric) -> str:
    shown = "" if metric.name == "accuracy" else f" {metric.word}"
    return f"{name}{shown}{' %' if metric.is_share else ''}"


def _cell(found: SceneMatrix, label: str, name: str) -> str:
    value, rank = found.values.loc[label, name], found.ranks.loc[label, name]
    return ABSENT if np.isnan(value) else f"{found.metrics[name].text(value)} ({rank:g})"


def matrix_words(found: SceneMatrix) -> str:
    """Returns what is in brackets and what is bold, and what the tests of mean ranks say."""
    if found.leading.to_numpy().any():
        bold = (
            f"In each scene, the methods that cannot be told apart from the best are bold{_undecided(found)}."
        )
    else:
        bold = "Nothing is bold, because no scene has a verdict: that takes at least three seeds."
    before = f"Ranks within a scene are in brackets, 1 is best. {bold}"
    if found.ranking is None:
        return before
    ranking = found.ranking
    verdict = "differ" if ranking.p_value < ranking.level else "are not told apart"
    return (
        f"{before} Mean ranks of {len(ranking.ranks)} methods over "
        f"{ranking.scenarios} scenes: by Friedman's test the methods {verdict} (p = {ranking.p_value:.2g}); by "
        f"Nemenyi's, two differ whose mean ranks are {ranking.distance:.2f} or more apart."
    )


def _undecided(found: SceneMatrix) -> str:
    return "" if found.leading.any().all() else "; where none is bold, the scene has no verdict"


def _bold(found: SceneMatrix, rows: list[list[str]]) -> list[tuple[int, int]]:
    """Returns row (0 is the header) and column of the cells of the leaders' groups."""
    return [
        (row, column)
        for row, (label, *_) in enumerate(rows[1:], 1)
        for column, name in enumerate(found.values, 1)
        if found.leading.loc[label, name]
    ]


def matrix_table(found: SceneMatrix, kind: str) -> str:
    """Returns the matrix as `md`, `tex` or `csv`; the CSV has a row for each unrounded value."""
    if kind == "csv":
        parts = {"value": found.values, "rank": found.ranks, "leading": found.leading}
        long = [
            part.rename_axis("method").melt(ignore_index=False, var_name="scene", value_name=name)
            for name, part in parts.items()
        ]
        together = long[0].assign(rank=long[1]["rank"].to_numpy(), leading=long[2]["leading"].to_numpy())
        return to_csv(together.reset_index())
    rows, words = matrix_rows(found), matrix_words(found)
    if kind == "tex":
        return f"% {words}\n{to_latex(rows, bold=_bold(found, rows))}"
    return f"{to_markdown(rows, bold=_bold(found, rows))}\n{words}\n"
