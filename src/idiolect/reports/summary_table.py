"""The summary of a report, one row for each method of a scene: as numbers, plain text, Markdown, LaTeX and CSV.

The global accuracy is that of the predictor `global` on the server's test set.  The personalised accuracy is that of
the method's headline predictor on the test split of every client, at the end of the run if measured then, else in the
evaluations that the reading takes.  Runs that are judged by another metric than accuracy have that metric in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from idiolect import statistics
from idiolect.records import Run
from idiolect.reports.comparison import heading, heading_text
from idiolect.reports.diverged_methods import divergence_notes, divergence_text, ended_runs
from idiolect.reports.gain_over_local import gains_over_local
from idiolect.reports.judged_metric import ABSENT, ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import comparable_seconds, scenes_of
from idiolect.reports.scene_verdict import MOST_GROUPS
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import (
    LAST,
    Groups,
    Reading,
    Replicate,
    as_reading,
    design_of,
    headline,
    over_replicates,
    primary_metric,
    replicate_of,
    run_numbers,
)

__all__ = [
    "NO_SECONDS",
    "WORDS",
    "best_cells",
    "by_scene",
    "csv_table",
    "explanation_of",
    "human_bytes",
    "idle_note",
    "idle_text",
    "lacks_seconds",
    "latex_table",
    "markdown_table",
    "marks_of",
    "notes_of",
    "plain_rows",
    "summarise",
]

DIVERGED = "diverged"
COSTS = ("bytes_down", "bytes_up", "seconds")
WORDS = ("Scene", "Method", "Predictor", "Groups")
LEFT_OUT = "left_out_of_worst_tenth"
MARK = "†"  # beside a worst tenth that leaves out clients which never trained
OLDER_MARK = "‡"  # beside a worst tenth that includes some
EXPLANATION = (
    "Global: the global model on the server's test set. "
    "Personalised: the named predictor, mean over all clients. "
    "SD: over clients within a seed, n - 1. "
    "Worst tenth: mean of the worst ceil(10 %) of the clients that trained at least once. "
    "Down and up: bytes per round, all clients together. Seconds: the whole run, evaluation included."
)
NO_SECONDS = (
    "Seconds are left out where the runs of a scene come from different machines or do not name theirs."
)


def summarise(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns one row per method of a scene, the best first, with means over seeds and their SDs.

    Columns: `scene`, `method` (its label), `seeds` (how many), `design` (see `statistics.design_of`), `predictor` (the
    headline), `reading` (which evaluations count), `clients`, `never_trained` (clients that never trained, NaN where
    nobody counted), then, each as the mean over seeds: `global_accuracy` (server's test set), `personal_accuracy` (mean
    over all clients), `personal_low` and `personal_high` (its 95 % interval, NaN below three seeds), `groups` (methods
    of the scene that share a letter cannot be told apart; with too many groups, `best` for those that cannot be told
    apart from the best), `weighted_accuracy` (clients weighted by their test
    rows), `sd_clients` (SD over clients within a seed, n - 1), `worst_tenth` (mean of the worst ceil(10 %) of the
    clients that trained), `left_out_of_worst_tenth` (clients that it leaves out; none in older records), `bytes_down`
    and `bytes_up` per round, `seconds` of the whole run (NaN unless all runs of the scene come from one machine); and
    `global_accuracy_sd_seeds`, `personal_accuracy_sd_seeds`, `worst_tenth_sd_seeds` (n - 1, NaN for one seed).
    Accuracies lie in [0, 1]; what was not measured is NaN.  Columns of runs that are judged by another metric are named
    after it, as `global_rmse`; a client for whom it is not defined counts nowhere.  A method that diverged with one of
    its seeds has no number; where there is one, a column `diverged` says in which round and at which client.

    Raises:
        UserError: the runs are judged by different metrics, or the reading needs scores that a run does not have.
    """
    runs = list(runs)
    metric = judged_by(runs)
    tables = [_scene_summary(scene, groups, metric, reading) for scene, groups in scenes_of(runs).items()]
    if len(tables) > 1 and any(DIVERGED in table for table in tables):
        tables = [table if DIVERGED in table else table.assign(**{DIVERGED: ""}) for table in tables]
    return pd.concat(tables, ignore_index=True)


def _scene_summary(scene: str, groups: Groups, metric: JudgedMetric, reading: Reading) -> pd.DataFrame:
    diverged = {label: divergence_text(group) for label, group in groups.items()}
    table = pd.DataFrame(
        [_summary_row(label, list(group), metric, reading) for label, group in groups.items()]
    )
    if any(diverged.values()):
        table[DIVERGED] = list(diverged.values())
    table = table.sort_values(
        f"personal_{metric.name}", ascending=not metric.higher_is_better, kind="stable", ignore_index=True
    )
    table.insert(0, "scene", scene)
    groups = {label: group for label, group in groups.items() if not diverged[label]}
    if not comparable_seconds(run for group in groups.values() for run in group):
        table["seconds"] = math.nan
    letters = dict.fromkeys(table["method"], "")
    if len(groups) > 1:
        pairs = statistics.paired_comparisons(groups, reading=reading)
        order = [name for name in table["method"] if name in groups]
        letters |= statistics.letters(order, pairs, most=MOST_GROUPS)
    table.insert(
        int(table.columns.get_indexer(["personal_high"])[0]) + 1, "groups", table["method"].map(letters)
    )
    return table


def _values(metric: JudgedMetric) -> dict[str, str]:
    """Returns the columns of values that have a best one, by their titles."""
    return {
        metric.heading("Global"): f"global_{metric.name}",
        metric.heading("Personalised"): f"personal_{metric.name}",
        metric.heading("Worst tenth"): "worst_tenth",
    }


def _summary_row(label: str, group: list[Run], metric: JudgedMetric, reading: Reading) -> dict[str, Any]:
    shared, personal, worst = _values(metric).values()
    averaged = ("never_trained", shared, personal, f"weighted_{metric.name}", "sd_clients", worst)
    if divergence_text(group):
        unknown = dict.fromkeys((*averaged, *COSTS), math.nan)
        seeds, low, high = (
            pd.DataFrame([unknown | {"clients": 0, LEFT_OUT: 0}] * len(group)),
            math.nan,
            math.nan,
        )
    else:
        seeds = pd.DataFrame([_numbers(run, metric, reading) for run in group])
        interval = statistics.mean_estimate(group, reading=reading)
        low, high = interval.low, interval.high
    line: dict[str, Any] = {
        "method": label,
        "seeds": len(group),
        "design": design_of(group),
        "predictor": headline(group[0]),
        "reading": str(reading),
        "clients": int(seeds["clients"].max()),
    }
    for name in (*averaged, LEFT_OUT, *COSTS):
        line[name] = over_replicates(group, seeds[name]).mean
        if name == personal:
            line |= {"personal_low": low, "personal_high": high}
    for name in (shared, personal, worst):
        line[f"{name}_sd_seeds"] = over_replicates(group, seeds[name]).sd
    return line


def _numbers(run: Run, metric: JudgedMetric, reading: Reading) -> dict[str, float]:
    found = run_numbers(run, metric.name, reading=reading)
    return {
        "clients": found.clients,
        "never_trained": found.never_trained,
        f"global_{metric.name}": found.shared,
        f"personal_{metric.name}": found.personal,
        f"weighted_{metric.name}": found.weighted,
        "sd_clients": found.sd_clients,
        "worst_tenth": found.worst_tenth,
        LEFT_OUT: found.left_out,
        "bytes_down": float(run.rounds["bytes_down"].mean()),
        "bytes_up": float(run.rounds["bytes_up"].mean()),
        "seconds": float(run.manifest.get("seconds", run.rounds["seconds"].sum())),
    }


def by_scene(summary: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields a heading, which names the scene and how values are read, and the rows of each scene."""
    for scene, here in summary.groupby("scene", sort=False):
        yield heading_text(str(scene), as_reading(here["reading"].iloc[0])), here


def plain_rows(summary: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> list[list[str]]:
    """Returns the table as strings, the header first, with a hyphen for what was not measured.

    Several scenes have a column that names them.

    Args:
        metric: what the runs are judged by.
    """
    lines = [_row_cells(line, summary, metric) for line in summary.to_dict("records")]
    return [list(lines[0]), *(list(cells.values()) for cells in lines)]


def markdown_table(summary: pd.DataFrame, notes: Iterable[str] = (), metric: JudgedMetric = ACCURACY) -> str:
    """Returns one Markdown table per scene, an explanation and notes; see `best_cells` for what is bold."""
    tables = []
    for scene, here in summary.groupby("scene", sort=False):
        rows = plain_rows(here, metric)
        columns = "".join("l" if title in WORDS else "r" for title in rows[0])
        table = to_markdown(rows, columns, bold=best_cells(here, rows[0], metric))
        tables.append(f"{heading(str(scene), as_reading(here['reading'].iloc[0]))}\n\n{table}")
    return "\n".join([*tables, explanation_of(summary), *(f"\n- {note}" for note in notes)]) + "\n"


def explanation_of(summary: pd.DataFrame) -> str:
    """Returns what the columns mean, as far as the table has them."""
    text = EXPLANATION
    if (summary["seeds"] > 1).any():
        text += " ±: SD over seeds, n - 1."
    if summary["personal_low"].notna().any():
        text += " 95 % interval: of the personalised mean, over seeds, and clients too where the partition is fixed."
    return " ".join([text, *marks_of(summary, bold=True), *([NO_SECONDS] if lacks_seconds(summary) else [])])


def marks_of(summary: pd.DataFrame, *, bold: bool) -> list[str]:
    """Returns sentences on the letters and marks of a table, as far as it has them.

    Args:
        bold: whether the group of the best is printed bold.
    """
    found, word = [], statistics.LIKE_THE_BEST
    signs = set(summary["groups"]) - {""}
    best = "; those that cannot be told apart from the best are bold" if bold else ""
    corrected = "(5 %, Holm's correction over the pairs of the scene)"
    if signs - {word}:
        found.append(f"Groups: methods that share a letter cannot be told apart {corrected}{best}.")
    if word in signs:
        found.append(
            f"Groups: {word} stands beside the best method and those that cannot be told apart from it "
            f"{corrected}, where there are too many groups for letters{', and these are bold' if bold else ''}."
        )
    idle = idle_note(summary["never_trained"], summary[LEFT_OUT]).strip()
    return [*found, *([idle] if idle else [])]


def lacks_seconds(summary: pd.DataFrame) -> bool:
    """Returns whether the seconds of a method are left out that has numbers, which a diverged one does not."""
    ended = summary[summary[DIVERGED] == ""] if DIVERGED in summary else summary
    return bool(ended["seconds"].isna().any())


def idle_marks(never_trained: float, left_out: float) -> str:
    """Returns the marks of a row with clients that never trained: left out of the worst tenth, or included in it.

    >>> idle_marks(2, 2), idle_marks(2, 0), idle_marks(0, 0)
    (' †', ' ‡', '')
    """
    return f" {MARK}" * (left_out > 0) + f" {OLDER_MARK}" * (never_trained > left_out)


def idle_text(never_trained: float, left_out: float) -> str:
    """Returns how many clients never trained, a mean over seeds, as tables and page write it.

    >>> idle_text(5 / 3, 5 / 3), idle_text(2, 0), idle_text(math.nan, 0)
    ('1.67 †', '2 ‡', '-')
    """
    if math.isnan(never_trained):
        return ABSENT
    return f"{never_trained:.2f}".rstrip("0").rstrip(".") + idle_marks(never_trained, left_out)


def idle_note(never_trained: Iterable[float], left_out: Iterable[float]) -> str:
    """Returns what the marks of all rows mean, a space in front; nothing where no row has one."""
    marks = "".join(idle_marks(*counts) for counts in zip(never_trained, left_out, strict=True))
    text = ""
    if MARK in marks:
        text += (
            f" {MARK}: clients that never trained count in the mean and not in the worst tenth, which can therefore "
            "exceed the mean."
        )
    if OLDER_MARK in marks:
        text += f" {OLDER_MARK}: older record, whose worst tenth includes clients that never trained."
    return text


def latex_table(summary: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns one LaTeX `tabular` per scene, with the rules of booktabs; see `best_cells` for what is bold."""
    tables = []
    for title, here in by_scene(summary):
        rows = plain_rows(here, metric)
        columns = "".join("l" if heading in WORDS else "r" for heading in rows[0])
        note = f"% {NO_SECONDS}\n" if lacks_seconds(here) else ""
        tables.append(f"% {title}\n{note}{to_latex(rows, columns, bold=best_cells(here, rows[0], metric))}")
    return "\n".join(tables)


def csv_table(summary: pd.DataFrame) -> str:
    """Returns the unrounded numbers as CSV: shares in [0, 1], bytes, seconds; empty where not measured."""
    return to_csv(summary)


def best_cells(
    summary: pd.DataFrame, header: list[str], metric: JudgedMetric = ACCURACY
) -> list[tuple[int, int]]:
    """Returns row (0 is the header) and column of the personalised values that are bold.

    They are those of the best method and of all that cannot be told apart from it; none where there is no verdict.

    Args:
        summary: the rows of one scene.
    """
    title, name = list(_values(metric).items())[1]
    order = summary[name].reset_index(drop=True).sort_values(ascending=not metric.higher_is_better)
    letters = summary["groups"].reset_index(drop=True)
    best = set(letters[order.index[0]]) if order.notna().any() else set()
    return [(row, header.index(title)) for row, own in enumerate(letters, 1) if best & set(own)]


def notes_of(runs: Iterable[Run], reading: Reading = LAST) -> list[str]:
    """Returns the notes of all manifests, each once, and what methods gain over training alone.

    A note that not all runs share names its scenes, methods and seeds.
    """
    runs = list(runs)
    ended = ended_runs(runs)
    undefined = {run.manifest["name"]: _undefined(run) for run in ended}
    scenes = scenes_of(runs)
    told: dict[str, dict[str, list[str]]] = {}  # for each note the methods and seeds, and the scenes of these
    for scene, groups in scenes.items():
        every = {label: {replicate_of(run) for run in group} for label, group in groups.items()}
        owners: dict[str, dict[str, set[Replicate]]] = {}
        for label, run in ((label, run) for label, group in groups.items() for run in group):
            for note in (*run.manifest.get("notes", []), *undefined.get(run.manifest["name"], [])):
                owners.setdefault(note, {}).setdefault(label, set()).add(replicate_of(run))
        for note, who in owners.items():
            told.setdefault(note, {}).setdefault(_whose(who, every), []).append(scene)
    notes = [
        f"{'; '.join(where)}: " * (len(where) < len(scenes)) + whose + note
        for note, owned in told.items()
        for whose, where in owned.items()
    ]
    gains = gains_over_local(ended, reading) if ended else []
    return [*notes, *gains, *divergence_notes(runs)]


def _whose(who: Mapping[str, set[Replicate]], every: Mapping[str, set[Replicate]]) -> str:
    """Returns the methods and seeds that a note is about, a colon behind; nothing where it is about all runs."""
    if who == every:
        return ""
    seeds = {label: _seeds_text(found) if found != every[label] else "" for label, found in who.items()}
    if len(set(seeds.values())) > 1:
        return ", ".join(f"{label}{f' ({text})' * bool(text)}" for label, text in seeds.items()) + ": "
    methods = [", ".join(who)] if who.keys() != every.keys() else []
    return ", ".join([*methods, *filter(None, set(seeds.values()))]) + ": "


def _seeds_text(replicates: Iterable[Replicate]) -> str:
    """Returns the seeds of some runs in words.

    >>> _seeds_text([Replicate(0, 2), Replicate(0, 1)]), _seeds_text([Replicate(0, 1)])
    ('seeds 1, 2', 'seed 1')
    """
    seeds = sorted({replicate.seed for replicate in replicates})
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _undefined(run: Run) -> list[str]:
    """Returns a note if the metric that the run is judged by is not defined for some clients."""
    rows, metric = run.rows, judged_by([run])
    own = (rows["metric"] == primary_metric(run)) & (rows["predictor"] == headline(run))
    last = rows[own & (rows["population"] == "all") & (rows["split"] == "test")]
    last = last[last["round"] == last["round"].max()]
    missing = last[last["value"].isna()]["client"].nunique()
    if not missing:
        return []
    return [
        f"{metric.title} is not defined for {missing} of {last['client'].nunique()} clients, whom means leave out"
    ]


def human_bytes(count: float) -> str:
    """Returns a number of bytes as text, in units of 1000.

    >>> human_bytes(0), human_bytes(999), human_bytes(1500), human_bytes(2.5e6)
    ('0 B', '999 B', '1.5 kB', '2.5 MB')
    """
    if math.isnan(count):
        return ABSENT
    if round(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if round(count, 1) < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def _row_cells(line: dict[Any, Any], table: pd.DataFrame, metric: JudgedMetric) -> dict[str, str]:
    """Returns the cells of a row by their titles; columns that the whole table has no entry for are left out."""
    (shared, personal, worst), names = _values(metric), list(_values(metric).values())
    idle = (line["never_trained"], line[LEFT_OUT])
    cells = {"Scene": str(line["scene"])} if table["scene"].nunique() > 1 else {}
    cells |= {
        "Method": str(line["method"]),
        shared: _cell(line, names[0], metric),
        personal: line.get(DIVERGED) or _cell(line, names[1], metric),
    }
    if table["personal_low"].notna().any():
        cells["95 % interval"] = _interval(line, metric)
    if (table["groups"] != "").any():
        cells["Groups"] = str(line["groups"])
    cells |= {
        "Predictor": str(line["predictor"]),
        metric.heading("SD"): _cell(line, "sd_clients", metric),
        worst: _cell(line, names[2], metric) + idle_marks(*idle),
    }
    if table["never_trained"].notna().any():
        cells["Never trained"] = idle_text(*idle)
    cells |= {
        "Down": human_bytes(line["bytes_down"]),
        "Up": human_bytes(line["bytes_up"]),
        "Seconds": ABSENT if math.isnan(line["seconds"]) else f"{line['seconds']:.1f}",
    }
    return {**cells, "Seeds": str(line["seeds"])} if (table["seeds"] > 1).any() else cells


def _interval(line: dict[Any, Any], metric: JudgedMetric) -> str:
    if math.isnan(line["personal_low"]):
        return ABSENT
    return f"{metric.text(line['personal_low'])} to {metric.text(line['personal_high'])}"


def _cell(line: dict[Any, Any], name: str, metric: JudgedMetric) -> str:
    return metric.with_spread(line[name], line.get(f"{name}_sd_seeds", math.nan))
