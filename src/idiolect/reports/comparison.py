"""Tables that compare the methods of each scene: intervals, paired comparisons, users, newcomers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from idiolect import statistics
from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.diverged_methods import ended_runs
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import scenes_of
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import LAST, Groups, Reading, newcomer_table, user_table

__all__ = [
    "certainty_of",
    "intervals_data",
    "newcomer_rows",
    "newcomers_csv",
    "newcomers_data",
    "newcomers_latex",
    "newcomers_markdown",
    "pairs_data",
    "users_csv",
    "users_data",
    "users_latex",
    "users_markdown",
]

ByScene = Mapping[str, pd.DataFrame]
UNITS = {
    "redrawn": "seeds",
    "fixed": "seeds",
    "nested": "data seeds",
}  # what an interval counts, by the design


def intervals_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns the headline's mean with its 95 % interval: `scene` and the columns of `statistics.mean_estimates`."""
    tables = [
        statistics.mean_estimates(groups, reading=reading).assign(scene=scene)
        for scene, groups in scenes_of(runs).items()
    ]
    return _scene_first(pd.concat(tables, ignore_index=True))


def pairs_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns paired comparisons of every two methods of a scene: `scene`, and see `statistics.paired_comparisons`.

    Holm's correction counts the pairs of one scene.

    Raises:
        UserError: no scene has two methods with a common replicate.
    """
    tables = [
        statistics.paired_comparisons(groups, reading=reading).assign(scene=scene)
        for scene, groups in scenes_of(runs).items()
        if len(groups) > 1
    ]
    tables = [table for table in tables if len(table)]
    if not tables:
        raise UserError(
            "no two methods have a scene, seeds and clients in common, so that none can be paired"
        )
    return _scene_first(pd.concat(tables, ignore_index=True))


def _scene_first(table: pd.DataFrame) -> pd.DataFrame:
    return table[["scene", *(name for name in table if name != "scene")]]


def certainty_of(runs: Iterable[Run], reading: Reading = LAST) -> list[str]:
    """Returns, for each scene with several methods, a sentence on what differences its seeds can show."""
    runs = ended_runs(runs)
    if not runs:
        return []
    metric, scenes = judged_by(runs), scenes_of(runs)
    found = []
    for scene, groups in scenes.items():
        if len(groups) > 1:
            pairs = statistics.paired_comparisons(groups, reading=reading)
            if len(pairs):
                before = f"{scene}: " if len(scenes) > 1 else ""
                found.append(before + certainty_sentence(pairs, metric))
    return found


def certainty_sentence(pairs: pd.DataFrame, metric: JudgedMetric) -> str:
    """Returns what the seeds of one scene allow to say about differences.

    Args:
        pairs: the table of `statistics.paired_comparisons`.
    """
    tested = pairs[pairs["p"].notna()]
    pairs = tested if len(tested) else pairs
    smallest = metric.difference_text(float(pairs["detectable"].median()))
    seeds = int(pairs["seeds"].max())
    if len(tested):
        fewest = int(tested["seeds"].min())
        repeated = f"{seeds}" if fewest == seeds else f"{fewest} to {seeds}"
        crossed = " crossed with clients" if (tested["design"] == "fixed").all() else ""
        return (
            f"with {repeated} seeds, a true difference of {smallest} between two methods is found four times in five "
            f"by a single test at 5 % (median over pairs, {_unit_words(pairs)}{crossed} as units); smaller ones are "
            "often missed, and Holm's correction for many pairs finds fewer"
        )
    if (pairs["design"] == "one").all():
        return (
            "one seed gives no verdict on differences: even if seeds did not vary, only those above "
            f"{smallest} would be found four times in five (median over pairs); a verdict needs at least three seeds"
        )
    return (
        f"{seeds} seeds give no verdict on differences; a verdict needs at least three {_unit_words(pairs)}"
    )


def _unit_words(pairs: pd.DataFrame) -> str:
    return UNITS[str(pairs["design"][pairs["design"] != "one"].mode()[0])]


def users_data(runs: Iterable[Run], reading: Reading = LAST) -> dict[str, pd.DataFrame]:
    """Returns by scene the headline's final value of every user under every method, as PersFL's tables do.

    Values are means over the seeds in which a user is the same, shares in [0, 1]; the rows `Avg` and `SD` (n - 1) are
    over users within a seed, then averaged over seeds.  A scene whose methods differ in seeds or clients is left out.
    """
    found = {}
    for scene, groups in scenes_of(runs).items():
        try:
            found[scene] = user_table(groups, reading=reading)
        except UserError:
            continue
    return found


def users_csv(tables: ByScene) -> str:
    """Returns the unrounded numbers of all scenes as CSV."""
    parts = [table.rename_axis("user").reset_index().assign(scene=scene) for scene, table in tables.items()]
    return to_csv(_scene_first(pd.concat(parts, ignore_index=True)))


def users_markdown(tables: ByScene, metric: JudgedMetric = ACCURACY, reading: Reading = LAST) -> str:
    """Returns one Markdown table per scene, of percentages with one digit where values are shares, and a note."""
    unit = " in percent" if metric.is_share else ""
    parts = [
        f"{heading(scene, reading)}\n\n{to_markdown(_user_cells(t, metric))}" for scene, t in tables.items()
    ]
    note = (
        f"{metric.title}{unit}, mean over the seeds in which a user is the same. Avg and SD: over users within a seed, "
        "n - 1, then averaged over seeds."
    )
    return "\n".join([*parts, note, ""])


def users_latex(tables: ByScene, metric: JudgedMetric = ACCURACY, reading: Reading = LAST) -> str:
    """Returns one LaTeX `tabular` per scene with a rule above the mean."""
    parts = []
    for scene, table in tables.items():
        rows = _user_cells(table, metric)
        parts.append(f"% {heading_text(scene, reading)}\n{to_latex(rows, rules_before=[len(rows) - 2])}")
    return "\n".join(parts)


def _user_cells(table: pd.DataFrame, metric: JudgedMetric) -> list[list[str]]:
    rows = [[str(user), *(metric.text(value) for value in line)] for user, line in table.iterrows()]
    return [["User", *map(str, table.columns)], *rows]


def newcomers_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns `scene` and the columns of `statistics.newcomer_table`; empty where no client joined."""
    tables = [_newcomers(groups, scene) for scene, groups in scenes_of(runs).items()]
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _newcomers(groups: Groups, scene: str) -> pd.DataFrame:
    table = newcomer_table(groups)
    return _scene_first(table.assign(scene=scene)) if len(table) else table


def newcomers_csv(table: pd.DataFrame) -> str:
    """Returns the unrounded numbers as CSV."""
    return to_csv(table)


def newcomers_markdown(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns one Markdown table per scene and an explanation."""
    parts = []
    for scene, here in table.groupby("scene", sort=False):
        rows = newcomer_rows(here, metric)
        columns = "".join("l" if title in ("Method", "Predictor") else "r" for title in rows[0])
        parts.append(f"#### {scene}: newcomers\n\n{to_markdown(rows, columns)}")
    note = (
        "Clients that took no part in training. On arrival: the first prediction with what the server sends them; "
        "joined: after the method's own way to join. Means over newcomers, then over seeds. "
        "SD: over newcomers within a seed, n - 1. Worst tenth: mean of the worst ceil(10 %) of the newcomers."
    )
    several = " ±: SD over seeds, n - 1." if (table["seeds"] > 1).any() else ""
    return "\n".join([*parts, note + several, ""])


def newcomers_latex(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns one LaTeX `tabular` per scene."""
    parts = []
    for scene, here in table.groupby("scene", sort=False):
        rows = newcomer_rows(here, metric)
        columns = "".join("l" if title in ("Method", "Predictor") else "r" for title in rows[0])
        parts.append(f"% {scene}: newcomers\n{to_latex(rows, columns)}")
    return "\n".join(parts)


def newcomer_rows(table: pd.DataFrame, metric: JudgedMetric) -> list[list[str]]:
    """Returns the table of newcomers of one scene as strings, the header first."""
    titles = {"arrival": "On arrival", "joined": "Joined"}
    header = ["Method", "Predictor", "Newcomers", "Seeds"]
    for title in titles.values():
        header += [
            metric.heading(title),
            metric.heading(f"{title}: SD"),
            metric.heading(f"{title}: worst tenth"),
        ]
    rows = [header]
    for line in table.to_dict("records"):
        cells = [str(line["method"]), str(line["predictor"]), str(line["newcomers"]), str(line["seeds"])]
        for name in titles:
            cells += [
                metric.with_spread(line[name], line[f"{name}_sd_seeds"]),
                metric.text(line[f"{name}_sd_clients"]),
                metric.text(line[f"{name}_worst_tenth"]),
            ]
        rows.append(cells)
    return rows


def heading_text(scene: str, reading: Reading) -> str:
    """Returns what a table of one scene is of, and how its final values are read."""
    return f"{scene} ({reading.words})"


def heading(scene: str, reading: Reading) -> str:
    """Returns the same as a heading in Markdown."""
    return f"#### {heading_text(scene, reading)}"
