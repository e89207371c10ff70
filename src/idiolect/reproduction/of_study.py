"""A figure of studies: their numbers, and the picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure as Picture

from idiolect.data.availability import availability
from idiolect.engines import place
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Watcher
from idiolect.records import Run, write_atomically
from idiolect.reports import bars_figure, features_figure, image, lines_figure
from idiolect.reproduction.entry import Entry, entry_of
from idiolect.reproduction.papers import Figure
from idiolect.reproduction.plan import Ask
from idiolect.reproduction.result import Reproduction, refuse_unknown, written
from idiolect.reproduction.studies import studies_of, study_run
from idiolect.reproduction.studies.catalogue import Wanted

__all__ = ["STUDIES", "whole_study"]

STUDIES = ("features", "proxies", "subsets")
DISTANCES = ("O-O", "O-M", "M-M")


def whole_study(
    found: Figure,
    ask: Ask,
    where: Execution,
    watcher: Watcher,
    scenarios: Sequence[str],
    formats: Sequence[str],
) -> Reproduction:
    """Numbers of all studies, their points as CSV, and the picture."""
    refuse_unknown("scenario", scenarios, found.scenarios)
    chosen = tuple(name for name in found.scenarios if not scenarios or name in scenarios)
    points, missing = [], []
    device = place(where.engine, where.device).device
    for seed in ask.seeds:
        for wanted in studies_of(found.kind, chosen, seed, ask.quick):
            data = availability(wanted.study.dataset, where.data_dir)
            if not data.present:
                reason = f"{data.dataset} is not on this machine; {data.advice}"
                missing.append(Entry(wanted.label, wanted.scenario, missing=reason))
                continue
            run = study_run(wanted.study, where.out, device, where.data_dir, watcher)
            points.append(POINTS[found.kind](wanted, run).assign(scenario=wanted.scenario, seed=seed))
    table = pd.concat(points, ignore_index=True) if points else pd.DataFrame()
    entries = [*_entries(found.kind, table), *dict.fromkeys(missing)]
    told = [f"a line's number: {NUMBERS[found.kind]}", *found.notes]
    done = written(found.id, found.caption, entries, told, ask, where)
    if len(table) and done.folder:
        csv = table.to_csv(index=False, lineterminator="\n")
        write_atomically(done.folder / f"{found.id}-points.csv", csv)
        title = f"{found.id} (quick)" if ask.quick else found.id
        for kind in formats:
            picture = DRAWINGS[found.kind](table, title)
            write_atomically(done.folder / f"{found.id}.{kind}", image(picture, kind))
    return done


NUMBERS = {
    "features": "accuracy on the observed classes, last epoch",
    "proxies": "last epoch",
    "subsets": "accuracy on the target classes, last epoch",
}


def _entries(kind: str, points: pd.DataFrame) -> list[Entry]:
    if points.empty:
        return []
    if kind == "features":
        by_seed = points.drop_duplicates(["panel", "scenario", "seed"]).assign(
            line=lambda first: first["panel"], value=lambda first: first["accuracy"]
        )
    elif kind == "proxies":
        last = points[points["x"] == points["x"].max()]
        by_seed = last.assign(line=last["panel"] + ", " + last["line"])
    else:
        by_seed = points.assign(line=[f"{line}, {x} classes" for line, x in points[["line", "x"]].to_numpy()])
    unit = "" if kind == "proxies" else "%"
    return [
        entry_of(list(group["value"]), row=str(line), column=str(scenario), unit=unit)
        for (line, scenario), group in by_seed.groupby(["line", "scenario"], sort=False)
    ]


def _features(wanted: Wanted, run: Run) -> pd.DataFrame:
    """Samples and proxies: `panel`, `what`, `label`, `x`, `y`, `observed`, and the network's `accuracy` in percent."""
    rows = run.rows[run.rows["moment"] == "end"]
    wide = rows.pivot(index=["predictor", "client"], columns="metric", values="value").reset_index()
    samples = wide[wide["predictor"] == "features"]
    proxies = wide[wide["predictor"] == "head"]
    told = [
        pd.DataFrame(
            {
                "what": "sample",
                "label": samples["label"].astype(int),
                "x": samples["feature 0"],
                "y": samples["feature 1"],
                "observed": True,
            }
        ),
        pd.DataFrame(
            {
                "what": "proxy",
                "label": proxies["client"],
                "x": proxies["proxy 0"],
                "y": proxies["proxy 1"],
                "observed": proxies["client"] < wanted.study.observed,
            }
        ),
    ]
    accuracy = float(_subsets(wanted, run)["value"].iloc[-1])
    return pd.concat(told, ignore_index=True).assign(panel=wanted.label, accuracy=accuracy)


def _proxies(wanted: Wanted, run: Run) -> pd.DataFrame:
    """By epoch: mean norms over observed and over missing classes, and mean distances."""
    tables = []
    for metric, panel in (("proxy norm", "Proxy norm"), ("gradient norm", "Gradient norm")):
        rows = run.rows[run.rows["metric"] == metric]
        side = rows["client"].lt(wanted.study.observed).map({True: "observed", False: "missing"})
        means = rows.groupby(["round", side.rename("line")])["value"].mean().reset_index()
        tables.append(means.assign(panel=panel))
    for name in DISTANCES:
        rows = run.rows[run.rows["metric"] == f"distance {name}"]
        tables.append(rows[["round", "value"]].assign(panel="Mean distance", line=name))
    return pd.concat(tables, ignore_index=True).rename(columns={"round": "x"})


def _subsets(wanted: Wanted, run: Run) -> pd.DataFrame:
    """Accuracy on each target after the last epoch: `line` (M1 or M2), `x` (classes), `value` in percent."""
    rows = run.rows[(run.rows["metric"] == "accuracy") & (run.rows["round"] == run.rows["round"].max())]
    classes = rows["predictor"].str.extract(r"target\((\d+)\)")[0].astype(int)
    return pd.DataFrame(
        {"panel": "Target classes alone", "line": wanted.label, "x": classes, "value": 100 * rows["value"]}
    )


def _draw_features(points: pd.DataFrame, title: str) -> Picture:
    """Of several seeds the first, for coordinates cannot be averaged."""
    return features_figure(points[points["seed"] == points["seed"].min()], title)


def _draw_proxies(points: pd.DataFrame, title: str) -> Picture:
    means = points.groupby(["panel", "line", "x"], sort=False)["value"].mean().reset_index()
    return lines_figure(means, "Epoch", title)


def _draw_subsets(points: pd.DataFrame, title: str) -> Picture:
    means = points.groupby(["panel", "line", "x"], sort=False)["value"].mean().reset_index()
    return bars_figure(means.sort_values("x", kind="stable"), "Target classes", "Accuracy (%)", title)


POINTS: dict[str, Callable[[Wanted, Run], pd.DataFrame]] = {
    "features": _features,
    "proxies": _proxies,
    "subsets": _subsets,
}
DRAWINGS: dict[str, Callable[[pd.DataFrame, str], Picture]] = {
    "features": _draw_features,
    "proxies": _draw_proxies,
    "subsets": _draw_subsets,
}
