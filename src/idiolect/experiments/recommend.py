"""``recommend``: which method serves these clients, found within a time budget and chosen on validation data.

The search has three steps.  Short runs of FedAvg are timed, and what fits the budget follows from it: how many
learning rates each method tries, and how many rounds a run has.  Then every method runs with each rate on the first
seed, and keeps the one that is best on validation data.  At last all methods run on further seeds, one seed after the
other, until the time is used up.  The answer is the simplest kind of training, unless another is shown to be better.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from idiolect.errors import UserError, list_of
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.finished.finished_run import FinishedRun
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.run import make_run
from idiolect.experiments.setting import prepare
from idiolect.experiments.shown_settings import shows_settings
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.methods import label
from idiolect.records import divergence_of, write_atomically
from idiolect.reports import JudgedMetric, judged_by, table_html, write_report
from idiolect.statistics import client_scores, compare_scores, estimate, replicate_of

__all__ = ["CANDIDATES", "Recommendation", "recommend"]

CANDIDATES = ("local", "fedavg", "fedavg_lu", "fedper", "ditto", "apfl")
ALONE, SHARED = "local", "fedavg"  # the two answers that need no personalised method
FACTORS = (1.0, 1 / 3, 3.0)  # on the scene's learning rate
PLANS = ((3, 40), (3, 20), (1, 20), (1, 10))  # how many rates and rounds, the dearest first
FEWEST_SEEDS, MOST_SEEDS = 3, 10  # fewer give no interval
PILOT_ROUNDS = 3
RELATIVE_COST = 2.0  # of a personalised method's round beside FedAvg's, and of the end of its run
SPARE = 0.9  # of the budget that a plan may fill
LEVEL = 0.05
UNITS = {"s": 1, "m": 60, "h": 3600}


class Plan(NamedTuple):
    """What is tried: so many learning rates of each method on the first seed, in runs of so many rounds."""

    rates: int
    rounds: int


@dataclass(frozen=True, repr=False)
class Recommendation:
    """The answer and its evidence.

    Args:
        method: what to train with, such as ``fedper``; ``local`` is training alone and ``fedavg`` one shared model.
        settings: of the experiment, as chosen on validation data.
        answer: what to do, and how sure that is, in sentences.
        table: one row for each method, the best on validation data first.
        runs: those that the table is made of.
        folder: where the runs, their report and this answer lie.
    """

    method: str
    settings: dict[str, Any]
    answer: list[str]
    table: pd.DataFrame
    runs: list[FinishedRun]
    folder: Path

    def __repr__(self) -> str:
        return f"<Recommendation {self.method}: {self.answer[0]}>"

    def _repr_html_(self) -> str:
        header, *rows = self.rows()
        return "".join(f"<p>{sentence}</p>" for sentence in self.answer) + table_html(header, rows)

    def rows(self) -> list[list[str]]:
        """Returns the table as words, the header first."""
        metric = judged_by(self.runs)
        return [HEADER, *(_words(row, metric) for row in self.table.to_dict("records"))]


HEADER = [
    "Method",
    "Rate",
    "Seeds",
    "Validation",
    "Over Local",
    "Over FedAvg",
    "Test",
    "Down",
    "Up",
    "GFLOPs",
    "Seconds",
]


@shows_settings
def recommend(
    budget: str = "20m",
    *,
    methods: Sequence[str] = CANDIDATES,
    execution: Execution | None = None,
    **settings: Any,
) -> Recommendation:
    """Finds out which method serves the clients of some data, within a time budget.

    Everything is chosen on validation data; test data are read once, for the table.  A method is preferred to training
    alone, and to one shared model, only where the difference is shown over seeds (5 %, Holm's correction over the
    methods); otherwise the simpler of the two is the answer.

    Args:
        budget: the time that all runs together may take, such as ``90s``, ``20m`` or ``2h``.
        methods: what to choose from, beside training alone and one shared model, which are always among them.
        execution: how the runs are made; they lie in a folder of its ``out``.
        settings: fields of ``Experiment`` and of ``Execution``, and data of your own; see ``run``.  ``rounds`` and
            ``learning_rate`` that are given stay as they are.
    """
    seconds, started = seconds_of(budget), time.monotonic()
    names = list(dict.fromkeys([ALONE, SHARED, *list_of("methods", methods, str, "['fedper', 'ditto']")]))
    execution, chosen = split_keywords(execution, with_own_data(settings))
    base = replace(with_settings(Experiment(), chosen), score_valid=True, seed=chosen.get("seed", 0))
    if base.valid <= 0:
        raise UserError("recommend chooses on validation data, and valid=0 holds none out; leave valid out")
    if execution.jobs > 1:
        raise UserError("recommend makes one run after the other, so that it can time them; leave jobs out")
    folder = Path(execution.out) / f"recommend-{re.sub(r'[^a-z0-9]+', '-', base.dataset.lower())}"
    execution = replace(execution, out=folder)
    names = _served(names, base, execution)

    def time_left() -> float:
        return seconds - (time.monotonic() - started)

    try:
        plan = _plan(base, names, chosen, seconds, execution, time_left)
    except UserError:
        with suppress(OSError):
            folder.rmdir()  # unless an earlier call has left runs there
        raise
    base = replace(base, rounds=plan.rounds, evaluate_every=min(base.evaluate_every, plan.rounds))
    best = _tuned(base, names, plan, execution, time_left)
    runs = _seeded(best, execution, time_left)
    return _recommendation(best, runs, folder, seconds, seconds - time_left())


def seconds_of(budget: str) -> float:
    """Returns a time in seconds.

    >>> seconds_of("90s"), seconds_of("1.5h")
    (90.0, 5400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", str(budget).strip())
    if found is None or float(found[1]) == 0:
        raise UserError(f"budget must be a time such as 90s, 20m or 2h, got {budget!r}")
    return float(found[1]) * UNITS[found[2]]


def _served(names: Sequence[str], base: Experiment, execution: Execution) -> list[str]:
    """Returns the methods that can serve the data and the network, and says which cannot."""
    served = []
    for name in names:
        try:
            prepare(replace(base, method=name), execution.engine_choice(), execution.data_dir)
        except UserError as error:
            if name in (ALONE, SHARED):
                raise
            execution.watcher.say(f"{label(name)} is left out: {error}")
        else:
            served.append(name)
    return served


class Cost(NamedTuple):
    """Seconds of a method's first run and of its later ones, both without their rounds, and of one round."""

    first: float
    later: float
    a_round: float


def _cost(base: Experiment, execution: Execution) -> Cost:
    """Times FedAvg now, in a folder that is then removed, because a finished run would be read and not made again.

    The first run of a process prepares data and programs, which would make a round look many times as long as it is.
    """
    out = Path(execution.out)
    out.mkdir(parents=True, exist_ok=True)
    walls, rounds = [], []
    with tempfile.TemporaryDirectory(dir=out, prefix="timed-") as folder:
        for count in (1, PILOT_ROUNDS):
            begun = time.monotonic()
            timed = replace(base, method=SHARED, rounds=count, evaluate_every=count)
            rounds = list(make_run(timed, replace(execution, out=folder)).rounds["seconds"])
            walls.append(time.monotonic() - begun)
    a_round = sum(rounds[1:]) / len(rounds[1:])
    return Cost(walls[0], max(walls[1] - len(rounds) * a_round, 0.0), a_round)


def _plan(
    base: Experiment,
    names: Sequence[str],
    chosen: dict[str, Any],
    seconds: float,
    execution: Execution,
    time_left: Callable[[], float],
) -> Plan:
    """Returns the dearest plan that fits, by the time of two short runs of FedAvg."""
    cost = _cost(base, execution)
    plans = [Plan(rates, chosen.get("rounds", rounds)) for rates, rounds in PLANS]
    if "learning_rate" in chosen:
        plans = [Plan(1, plan.rounds) for plan in plans]

    def needed(plan: Plan) -> float:
        runs = plan.rates + FEWEST_SEEDS - 1
        trained = runs * plan.rounds * RELATIVE_COST * cost.a_round
        return len(names) * (cost.first + (runs - 1) * cost.later + trained)

    for plan in plans:
        if needed(plan) <= SPARE * time_left():
            execution.watcher.say(
                f"a round of FedAvg takes about {cost.a_round:.2g} s: {plan.rates} learning rate(s) for each of "
                f"{len(names)} methods, {plan.rounds} rounds a run, then seeds until the time is used up"
            )
            return plan
    least = math.ceil((needed(plans[-1]) / SPARE + seconds - time_left()) / 60)
    raise UserError(
        f"a budget of {seconds:.0f} s is too short: {plans[-1].rounds} rounds of {len(names)} methods on "
        f"{FEWEST_SEEDS} seeds take about {least} min; give budget={least}m, or fewer methods"
    )


def _tuned(
    base: Experiment,
    names: Sequence[str],
    plan: Plan,
    execution: Execution,
    time_left: Callable[[], float],
) -> dict[str, Experiment]:
    """Returns each method's experiment with the learning rate that is best on validation data on the first seed.

    All methods run with one rate before any runs with the next, so that every method has tried as many rates where
    the machine is slower than its first rounds were and the time does not suffice for all of them.
    """
    rates = [float(f"{base.learning_rate * factor:.3g}") for factor in FACTORS[: plan.rates]]
    execution.watcher.expect(len(names) * len(rates))
    tried: dict[str, dict[float, Experiment]] = {name: {} for name in names}
    for count, rate in enumerate(rates):
        begun = time.monotonic()
        for name in names:
            one = replace(base, method=name, learning_rate=rate)
            run = make_run(one, replace(execution, on_divergence="record"))
            if divergence_of(run.manifest) is None:
                value = float(client_scores(run, split="valid").mean())
                tried[name][value if judged_by([run]).higher_is_better else -value] = one
        if rates[count + 1 :] and time_left() < FEWEST_SEEDS * (time.monotonic() - begun):
            execution.watcher.say(
                f"runs are slower than the first rounds were: {count + 1} of {len(rates)} learning rates are tried"
            )
            break
    for name in names:
        if not tried[name]:
            raise UserError(
                f"{label(name)} diverges at every learning rate tried ({rates[: count + 1]}); give learning_rate"
            )
    return {name: found[max(found)] for name, found in tried.items()}


def _seeded(
    best: dict[str, Experiment], execution: Execution, time_left: Callable[[], float]
) -> dict[str, list[FinishedRun]]:
    """Returns the runs of each method on one seed after the other, as many as fit the time, at least three.

    A method that diverges on one of them is left out.
    """
    execution = replace(execution, on_divergence="record")
    runs: dict[str, list[FinishedRun]] = {name: [] for name in best}
    for seed in range(best[SHARED].seed, best[SHARED].seed + MOST_SEEDS):
        begun = time.monotonic()
        execution.watcher.expect(len(runs))
        for name in list(runs):
            run = make_run(replace(best[name], seed=seed), execution)
            if (where := divergence_of(run.manifest)) is None:
                runs[name].append(run)
            elif name in (ALONE, SHARED):
                raise UserError(
                    f"{label(name)} diverges on seed {seed} ({where.place}); give a lower learning_rate"
                )
            else:
                execution.watcher.say(f"{label(name)} is left out: it diverges on seed {seed}")
                del runs[name]
        if len(runs[SHARED]) >= FEWEST_SEEDS and time_left() < 1.2 * (time.monotonic() - begun):
            break
    return runs


def _recommendation(
    best: dict[str, Experiment],
    runs: dict[str, list[FinishedRun]],
    folder: Path,
    budget: float,
    seconds: float,
) -> Recommendation:
    every = [run for each in runs.values() for run in each]
    metric = judged_by(every)
    table = _table(best, runs, metric)
    method, answer = judgement(table, metric)
    answer.append(
        f"Chosen on validation data from {len(best)} methods on {len(runs[SHARED])} seeds in {seconds / 60:.1f} min; "
        f"the settings are learning_rate={best[method].learning_rate:g} and rounds={best[method].rounds}."
    )
    if seconds > budget:
        answer.append(
            f"That is longer than the budget of {budget / 60:.1f} min, because fewer than {FEWEST_SEEDS} seeds give no "
            "interval."
        )
    settings = {name: getattr(best[method], name) for name in ("learning_rate", "rounds")}
    found = Recommendation(method, settings, answer, table, every, folder)
    write_report(every, folder)
    values = json.loads(table.to_json(orient="records"))
    written = {"method": method, "settings": settings, "answer": answer, "table": values}
    write_atomically(folder / "recommendation.json", (json.dumps(written, indent=2) + "\n").encode())
    return found


def _table(
    best: dict[str, Experiment], runs: dict[str, list[FinishedRun]], metric: JudgedMetric
) -> pd.DataFrame:
    """Returns one row for each method, the best on validation data first."""
    sign = 1 if metric.higher_is_better else -1
    valid = {
        name: {replicate_of(run): client_scores(run, split="valid") for run in each}
        for name, each in runs.items()
    }
    over = {other: _differences(valid, other, sign) for other in (ALONE, SHARED)}
    rows = []
    for name, each in runs.items():
        on_valid = estimate(valid[name])
        on_test = estimate({replicate_of(run): client_scores(run) for run in each})
        spent = [run.rounds for run in each]
        rounds = sum(len(table) for table in spent)
        row = {
            "method": name,
            "learning_rate": best[name].learning_rate,
            "seeds": len(each),
            "valid": on_valid.value,
            "test": on_test.value,
            "test_low": on_test.low,
            "test_high": on_test.high,
            "bytes_down": sum(table["bytes_down"].sum() for table in spent) / rounds,
            "bytes_up": sum(table["bytes_up"].sum() for table in spent) / rounds,
            "flops": sum(table["flops"].sum() for table in spent) / len(each),
            "seconds": sum(run.manifest["seconds"] for run in each) / len(each),
        }
        for other, found in over.items():
            row |= {f"{key}_over_{other}": value for key, value in found[name].items()}
        rows.append(row)
    return pd.DataFrame(rows).sort_values("valid", ascending=sign < 0, kind="stable", ignore_index=True)


def _differences(valid: dict[str, Any], other: str, sign: int) -> dict[str, dict[str, float]]:
    """Returns by how much each method is better than another one, positive for better, with interval and p-value."""
    nothing = {"gain": 0.0, "low": math.nan, "high": math.nan, "p": math.nan}
    found = {other: nothing}
    for row in compare_scores(valid, baseline=other).to_dict("records"):
        name = row["method"] if row["other"] == other else row["other"]
        turn = sign if row["other"] == other else -sign
        ends = (
            sorted((turn * row["low"], turn * row["high"]))
            if row["low"] == row["low"]
            else (math.nan, math.nan)
        )
        found[name] = {"gain": turn * row["difference"], "low": ends[0], "high": ends[1], "p": row["p_holm"]}
    return found


def judgement(table: pd.DataFrame, metric: JudgedMetric) -> tuple[str, list[str]]:
    """Returns the method to take and the reasons, from the table of a recommendation.

    Training alone needs nobody, and one shared model is one model to look after.  So each gives way only to what is
    shown to be better: the shared model to a personalised method, and training alone to either.
    """
    by_name = {str(row["method"]): row for row in table.to_dict("records")}

    def shown(name: str, other: str) -> bool:
        row = by_name[name]
        return bool(row[f"gain_over_{other}"] > 0 and row[f"p_over_{other}"] < LEVEL)

    def gain(name: str, other: str) -> str:
        row, unit = by_name[name], " points" if metric.is_share else ""
        ends = (metric.signed(row[f"{end}_over_{other}"]) for end in ("low", "high"))
        return f"{metric.signed(row[f'gain_over_{other}'])}{unit} (95 % interval {' to '.join(ends)})"

    personal = [str(name) for name in table["method"] if name not in (ALONE, SHARED)]
    helped = [name for name in personal if shown(name, ALONE)]
    if helped and not shown(SHARED, ALONE):
        first = helped[0]
        reason = f"{label(first)} over training alone: {gain(first, ALONE)}; one shared model: {gain(SHARED, ALONE)}"
        if shown(first, SHARED):
            return first, [
                f"Personalise with {label(first)}: it is better than training alone.",
                f"{reason}.",
            ]
        return first, [
            f"Personalise with {label(first)}: it is shown to be better than training alone, and one shared "
            "model is not.",
            f"{reason}.",
        ]
    if shown(SHARED, ALONE):
        better = [name for name in personal if shown(name, SHARED)]
        alone = f"One shared model over training alone: {gain(SHARED, ALONE)}."
        if not better:
            return SHARED, [
                "One shared model for everybody: nothing personal is shown to be better than FedAvg's.",
                alone,
            ]
        first = better[0]
        return first, [
            f"Personalise with {label(first)}: it is better than one shared model.",
            f"{label(first)} over one shared model: {gain(first, SHARED)}.",
            alone,
        ]
    best = next(str(name) for name in table["method"] if name != ALONE)
    return ALONE, [
        "Train alone: no method is shown to serve these clients better than their own rows.",
        f"The best of the others is {label(best)}, over training alone: {gain(best, ALONE)}.",
    ]


def _words(row: dict[str, Any], metric: JudgedMetric) -> list[str]:
    def over(other: str) -> str:
        if row["method"] == other:
            return "-"
        return metric.signed(row[f"gain_over_{other}"]) + ("*" if row[f"p_over_{other}"] < LEVEL else "")

    return [
        label(row["method"]),
        f"{row['learning_rate']:g}",
        f"{row['seeds']}",
        metric.text(row["valid"]),
        over(ALONE),
        over(SHARED),
        metric.text(row["test"]),
        f"{row['bytes_down'] / 1e3:.1f} kB",
        f"{row['bytes_up'] / 1e3:.1f} kB",
        f"{row['flops'] / 1e9:.1f}",
        f"{row['seconds']:.1f}",
    ]
