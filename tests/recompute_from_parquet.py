"""Recomputes the tables of a report from the Parquet files and manifests of its runs, with none of the package's code.

    python tests/recompute_from_parquet.py RUNS REPORT

RUNS holds one folder per run; REPORT holds the files that ``idiolect report RUNS --format csv --out REPORT`` wrote.
The script prints every cell that differs and exits with 1 if there is one.  It reads final values as ``--reading last``
does.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

MOMENTS = ["before", "after", "end"]
TOLERANCE = 1e-9


class Record:
    """One run as it lies on disk."""

    def __init__(self, folder: Path) -> None:
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.rows = pd.read_parquet(folder / "clients.parquet")
        self.rounds = pd.read_parquet(folder / "rounds.parquet")
        costs = folder / "costs.parquet"
        self.costs = pd.read_parquet(costs) if costs.is_file() else pd.DataFrame()
        self.metric = self.manifest.get("primary_metric", "accuracy")
        described = self.manifest.get("metrics", {}).get(self.metric, {"higher_is_better": True})
        ends = (described.get("low"), described.get("high"))
        self.least, self.greatest = (
            sign * math.inf if end is None else end for sign, end in zip((-1, 1), ends, strict=True)
        )
        self.sign = 1 if described["higher_is_better"] else -1
        self.headline = self.manifest["headline"]
        self.seeds = (int(self.rows["data_seed"].iloc[0]), int(self.manifest["seed"]))
        self.scene = self.rows["scene"].iloc[0]
        self.label = self.manifest["label"]

    def values(self, predictor: str, split: str, population: str) -> pd.DataFrame:
        rows = self.rows
        for column, wanted in [
            ("metric", self.metric),
            ("predictor", predictor),
            ("split", split),
            ("population", population),
        ]:
            rows = rows[rows[column] == wanted]
        return rows[~rows["value"].isna()]

    def final(self) -> pd.DataFrame:
        """The rows of the final values: of the end of the run, or else the latest moment of the last round."""
        rows = self.values(self.headline, "test", "all")
        if "end" in set(rows["moment"]):
            rows = rows[rows["moment"] == "end"]
        rows = rows[rows["round"] == rows["round"].max()]
        latest = max(rows["moment"], key=MOMENTS.index)
        return rows[rows["moment"] == latest]

    def clients(self) -> dict[int, float]:
        """The final value of every client."""
        rows = self.final()
        return {
            int(client): float(value) for client, value in zip(rows["client"], rows["value"], strict=True)
        }

    def numbers(self) -> dict[str, float]:
        final = self.clients()
        values = np.array(list(final.values()))
        weights = self.final()["samples"].to_numpy(float)
        idle = set()
        if len(self.costs):
            idle = set(
                self.costs[(self.costs["rounds"] == 0) & (self.costs["population"] == "all")]["client"]
            )
        trained = sorted(self.sign * value for client, value in final.items() if client not in idle)
        tenth = trained[: -(-len(trained) // 10)]
        shared = self.values("global", "server", "all").sort_values("round")["value"]
        count = len(idle) if len(self.costs) else self.manifest.get("never_selected", math.nan)
        return {
            "never_trained": count,
            f"global_{self.metric}": shared.iloc[-1] if len(shared) else math.nan,
            f"personal_{self.metric}": values.sum() / len(values),
            f"weighted_{self.metric}": (values @ weights) / weights.sum() if weights.all() else math.nan,
            "sd_clients": math.sqrt(((values - values.mean()) ** 2).sum() / (len(values) - 1)),
            "worst_tenth": self.sign * sum(tenth) / len(tenth),
            "left_out_of_worst_tenth": len(idle),
            "bytes_down": self.rounds["bytes_down"].sum() / len(self.rounds),
            "bytes_up": self.rounds["bytes_up"].sum() / len(self.rounds),
            "seconds": self.manifest["seconds"],
        }


def replicate_means(records: list[Record], numbers: list[float]) -> list[float]:
    """The independent units behind a mean: runs, or partitions where some have several runs and there are several."""
    drawn = defaultdict(list)
    for record, number in zip(records, numbers, strict=True):
        drawn[record.seeds[0]].append(number)
    nested = 1 < len(drawn) < len(records)
    return [sum(each) / len(each) for each in drawn.values()] if nested else list(numbers)


def interval(each: dict[tuple[int, int], dict[int, float]]) -> dict[str, float]:
    """Mean, interval, p-value and detectable effect of values by replicate and client."""
    drawn = [data_seed for data_seed, _ in each]
    means = [sum(values.values()) / len(values) for values in each.values()]
    found = dict.fromkeys(["low", "high", "se", "df", "p", "detectable"], math.nan)
    if len(each) == 1:
        values = np.array(list(next(iter(each.values())).values()))
        found["detectable"] = detectable(values.std(ddof=1) / math.sqrt(len(values)), len(values) - 1)
        return {"value": means[0], **found, "design": "one"}
    if len(set(drawn)) == 1:
        se, df, design, units = *crossed(list(each.values())), "fixed", len(each)
        value = sum(means) / len(means)
    else:
        by_data = pd.Series(means).groupby(drawn).mean()
        design = "redrawn" if len(by_data) == len(each) else "nested"
        se, df, units = by_data.std() / math.sqrt(len(by_data)), len(by_data) - 1, len(by_data)
        value = by_data.mean()
    found |= {"se": se, "df": df, "detectable": detectable(se, df)}
    if units >= 3:
        reach = special.stdtrit(df, 0.975) * se
        found |= {"low": value - reach, "high": value + reach, "p": 2 * special.stdtr(df, -abs(value) / se)}
    return {"value": value, **found, "design": design}


def crossed(tables: list[dict[int, float]]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a mean over seeds and clients, both random."""
    clients = sorted(set.intersection(*(set(table) for table in tables)))
    n, k = len(tables), len(clients)
    values = [[table[client] for client in clients] for table in tables]
    mean = sum(map(sum, values)) / (n * k)
    rows = [sum(row) / k for row in values]
    columns = [sum(row[place] for row in values) / n for place in range(k)]
    seed = k * sum((row - mean) ** 2 for row in rows) / (n - 1)
    client = n * sum((column - mean) ** 2 for column in columns) / (k - 1)
    rest = [values[s][c] - rows[s] - columns[c] + mean for s in range(n) for c in range(k)]
    error = sum(value**2 for value in rest) / ((n - 1) * (k - 1))
    total = error + max(seed - error, 0) + max(client - error, 0)
    seed, client = seed * (1 + 2 / (n - 1)), client * (1 + 2 / (k - 1))
    if seed > error and client > error:
        whole = seed + client - error
        df = whole**2 / (seed**2 / (n - 1) + client**2 / (k - 1) + error**2 / ((n - 1) * (k - 1)))
    else:
        df = n - 1 if seed > error else k - 1 if client > error else (n - 1) * (k - 1)
    return math.sqrt(total / (n * k)), min(df, max(n - 1, k - 1, (n - 1) * (k - 1)))


def detectable(se: float, df: float) -> float:
    """The difference that a test at 5 % finds with probability 80 %, by bisection."""
    critical, low, high = special.stdtrit(df, 0.975), 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - special.nctdtr(df, middle, critical) < 0.8 else (low, middle)
    return low * se


def holm(p_values: list[float]) -> list[float]:
    """Corrects the p-values that are numbers, each by its definition."""
    tested = sorted(p for p in p_values if not math.isnan(p))
    steps = [min(1.0, (len(tested) - place) * p) for place, p in enumerate(tested)]
    return [math.nan if math.isnan(p) else max(steps[: tested.index(p) + 1]) for p in p_values]


def recompute(folder: Path) -> dict[str, pd.DataFrame]:
    """Returns the tables of a report by the names of their files; scenes are named by their record."""
    scenes: dict[str, dict[str, list[Record]]] = {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        record = Record(place)
        scenes.setdefault(record.scene, {}).setdefault(record.label, []).append(record)
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for scene, methods in scenes.items():
        sign = next(iter(methods.values()))[0].sign
        for records in methods.values():
            records.sort(key=lambda record: record.seeds)
        own_of = {
            label: interval({record.seeds: record.clients() for record in records})
            for label, records in methods.items()
        }
        # the best first, in every table
        methods = {
            label: methods[label] for label in sorted(methods, key=lambda m: -sign * own_of[m]["value"])
        }
        for label, records in methods.items():
            line, own = {"scene": scene, "method": label}, own_of[label]
            for end in ("low", "high"):  # no mean lies beyond the metric
                if not math.isnan(own[end]):
                    own[end] = min(max(own[end], records[0].least), records[0].greatest)
            found = line | summary(records, own)
            tables["table"].append(found if one_machine(methods) else found | {"seconds": math.nan})
            tables["intervals"].append(line | {k: v for k, v in own.items() if k not in ("p", "detectable")})
            if (joined := newcomers(records)) is not None:
                tables["newcomers"].append(line | joined)
        tables["pairs"] += [{"scene": scene, **line} for line in pairs(methods)]
        tables["users"] += [{"scene": scene, **line} for line in users(methods)]
    return {name: pd.DataFrame(lines) for name, lines in tables.items()}


def one_machine(methods: dict[str, list[Record]]) -> bool:
    """Whether the seconds of a scene can be compared."""
    told = [record.manifest.get("hardware") for records in methods.values() for record in records]
    return len(told) == 1 or (told[0] is not None and all(machine == told[0] for machine in told))


def summary(records: list[Record], own: dict[str, float]) -> dict[str, Any]:
    numbers = pd.DataFrame([record.numbers() for record in records])
    line: dict[str, Any] = {"seeds": len(records), "design": own["design"], "predictor": records[0].headline}
    for name in numbers:
        units = replicate_means(records, list(numbers[name]))
        line[name] = sum(units) / len(units)
        if name in (f"global_{records[0].metric}", f"personal_{records[0].metric}", "worst_tenth"):
            line[f"{name}_sd_seeds"] = float(np.std(units, ddof=1)) if len(units) > 1 else math.nan
    return line | {"personal_low": own["low"], "personal_high": own["high"]}


def pairs(methods: dict[str, list[Record]]) -> list[dict[str, Any]]:
    lines = []
    for (one, ours), (other, theirs) in combinations(methods.items(), 2):
        there = {record.seeds: record.clients() for record in theirs}
        each = {}
        for record in ours:
            if record.seeds in there:
                left, right = record.clients(), there[record.seeds]
                each[record.seeds] = {
                    client: left[client] - right[client] for client in left if client in right
                }
        if each:
            found = {name: number for name, number in interval(each).items() if name not in ("se", "df")}
            lines.append(
                {"method": one, "other": other, "seeds": len(each), "difference": found.pop("value"), **found}
            )
    for line, p in zip(lines, holm([line["p"] for line in lines]), strict=True):
        line["p_holm"] = p
    return lines


def users(methods: dict[str, list[Record]]) -> list[dict[str, Any]]:
    lines: dict[str, dict[str, float]] = defaultdict(dict)
    for label, records in methods.items():
        several = len({record.seeds[0] for record in records}) > 1
        found = defaultdict(list)
        for record in records:
            for client, value in sorted(record.clients().items()):
                name = f"data seed {record.seeds[0]}, client {client}" if several else str(client)
                found[name].append(value)
        for name, values in found.items():
            lines[name][label] = sum(values) / len(values)
        each = [np.array(list(record.clients().values())) for record in records]
        lines["Avg"][label] = np.mean(replicate_means(records, [values.mean() for values in each]))
        lines["SD"][label] = np.mean(replicate_means(records, [values.std(ddof=1) for values in each]))
    order = [name for name in lines if name not in ("Avg", "SD")] + ["Avg", "SD"]
    return [{"user": name, **lines[name]} for name in order]


def newcomers(records: list[Record]) -> dict[str, Any] | None:
    line: dict[str, Any] = {}
    for word, moment in (("arrival", "before"), ("joined", "after")):
        each = []
        for record in records:
            rows = record.values(record.headline, "test", "new")
            rows = rows[rows["moment"] == moment]
            each.append(record.sign * rows[rows["round"] == rows["round"].max()]["value"].to_numpy())
        if not any(map(len, each)):
            continue
        sign = records[0].sign
        line |= {"newcomers": max(map(len, each))}
        units = replicate_means(records, [sign * values.mean() for values in each])
        line |= {
            word: np.mean(units),
            f"{word}_sd_seeds": np.std(units, ddof=1) if len(units) > 1 else math.nan,
        }
        line[f"{word}_sd_clients"] = np.mean(
            replicate_means(records, [values.std(ddof=1) for values in each])
        )
        worst = [sign * np.sort(values)[: -(-len(values) // 10)].mean() for values in each]
        line[f"{word}_worst_tenth"] = np.mean(replicate_means(records, worst))
    return line or None


def differences(runs: Path, report: Path) -> list[str]:
    """Returns a sentence for each cell of the report that the records do not give, and for each that is missing."""
    found, expected = [], recompute(runs)
    written = {name: pd.read_csv(report / f"{name}.csv", dtype={"user": str}) for name in expected}
    names = dict(zip(expected["table"]["scene"].unique(), written["table"]["scene"].unique(), strict=True))
    for name, table in expected.items():
        table["scene"] = table["scene"].map(names)
        if len(written[name]) != len(table):
            found.append(f"{name}.csv has {len(written[name])} rows, the records give {len(table)}")
            continue
        for column in table:
            for row, (ours, theirs) in enumerate(zip(table[column], written[name][column], strict=True)):
                if not _equal(ours, theirs):
                    found.append(f"{name}.csv, row {row + 1}, {column}: {theirs}, the records give {ours}")
    return found + _letters(written["table"], expected["pairs"])


def _letters(table: pd.DataFrame, compared: pd.DataFrame) -> list[str]:
    """Two methods must share a letter exactly where their difference is not significant.

    Where there are too many groups for letters, the word "best" says so of the best and each other method.
    """
    shown = table.fillna({"groups": ""}).set_index(["scene", "method"])["groups"]
    leaders = table.groupby("scene", sort=False)["method"].first()
    found = []
    for line in compared.itertuples():
        worded = shown[line.scene, leaders[line.scene]] == "best"
        if worded and leaders[line.scene] not in (line.method, line.other):
            continue
        share = bool(set(shown[line.scene, line.method]) & set(shown[line.scene, line.other]))
        if not math.isnan(line.p_holm) and share != (line.p_holm >= 0.05):
            found.append(
                f"table.csv: the letters of {line.method} and {line.other} are not those of their p-value"
            )
    return found


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return str(ours) == str(theirs)
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=TOLERANCE)


if __name__ == "__main__":
    problems = differences(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(problems) or "every cell of the report follows from the records")
    sys.exit(bool(problems))
