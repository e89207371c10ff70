"""Named campaigns: what they run, their searches and pairs, and that jobs change no row."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from idiolect.errors import UserError
from idiolect.experiments import Execution, Silent
from idiolect.records import read_runs
from idiolect.reproduction import campaigns as module
from idiolect.reproduction import named_pairs
from idiolect.reproduction.campaigns import (
    Campaign,
    Part,
    Variant,
    campaign_requests,
    campaigns,
    find_campaign,
    run_named_campaign,
)
from idiolect.reproduction.listing import list_campaigns
from idiolect.reproduction.named_pairs import NamedPair, PairResult, Side
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import collect
from idiolect.reproduction.tables import cell_requests

SEARCH = Part(
    "map-table1",
    ("fa-lenet",),
    ("fedavg", "fedprox"),
    variants=(
        Variant(),
        Variant({"momentum": 0.0}),
        Variant({"learning_rate": 0.1}, {"fedprox": {"weight": 0.5}}),
    ),
)
TABLE = Part("map-table1", ("fa-lenet",), ("fedavg", "map"), preset="reproduction", seeds=3)
PAIR = NamedPair(
    Side("map-table1", "MAP", "fa-lenet"), Side("map-table1", "FedAvg", "fa-lenet"), preset="reproduction"
)


@pytest.fixture
def small(monkeypatch):
    found = {
        "small": Campaign("small", "a search, a table and a pair", (SEARCH, TABLE), pairs=(PAIR,)),
        "table": Campaign("table", "a table", (TABLE,)),
    }
    monkeypatch.setattr(module, "campaigns", lambda: found)


def execution(out, **changed):
    return Execution(**{"out": out, "engine": "loop", "device": "cpu", "watcher": Silent(), **changed})


@pytest.mark.parametrize("name", campaigns())
def test_campaign_asks_for_runs_that_its_tables_and_pairs_read(name):
    found = find_campaign(name)
    made = {one.experiment for one in campaign_requests(found)}
    assert made and {one.precision for one in made} == {"tf32"}
    for pair in found.pairs:
        for side in (pair.better, pair.worse):
            asked = ReproductionRequest(preset=pair.preset, seeds=tuple(range(5)), precision=found.precision)
            assert {one.experiment for one in cell_requests(side.cell(), asked)} <= made, side.text


def test_page_counts_the_runs_of_every_campaign():
    page = (Path(__file__).parents[2] / "docs/reproduction.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \| .* \| (\d+) \|$", page, re.MULTILINE)
    assert [(name, int(runs)) for name, runs in listed] == [(one.name, one.runs) for one in list_campaigns()]


def test_rows_of_a_part_are_the_only_ones_that_are_run():
    made = [one.experiment for one in campaign_requests(find_campaign("php-search"))]
    assert {one.dataset for one in made} == {"cifar10"} and len(set(made)) == len(made) == 7


def test_pairs_are_those_that_were_named_in_advance():
    pairs = find_campaign("named-pairs").pairs
    assert len(pairs) == 17 and all(one.better != one.worse for one in pairs)
    assert sum(one.smaller for one in pairs) == 1
    with pytest.raises(UserError, match="unknown campaign 'fashon'; did you mean fashion"):
        find_campaign("fashon")


def test_search_prints_every_setting_that_was_tried(tiny_scenes, small, tmp_path):
    search, table, pair = run_named_campaign("small", execution(tmp_path / "runs"))
    rows = [(one.row, one.column) for one in search.numbers]
    settings = ["as the preset has it", "momentum=0.0", "learning_rate=0.1, fedprox weight=0.5"]
    assert rows == [(row, f"{name}, fa-lenet") for row in settings for name in ("FedAvg", "FedProx")]
    assert search.numbers[1].paper == 87.4
    tried = {run.manifest["label"]: set() for run in read_runs(tmp_path / "runs")}
    for run in read_runs(tmp_path / "runs"):
        if any("preset paper" in note for note in run.manifest["notes"]):
            spec = run.manifest["spec"]
            tried[run.manifest["label"]].add((spec["momentum"], spec["learning_rate"], spec["method"]))
    assert [len(tried["FedAvg"]), len(tried["FedProx"])] == [3, 3]
    assert any("weight=0.5" in text for _, _, text in tried["FedProx"])
    means = {one.row: one for one in table.numbers}
    (difference,) = pair.numbers
    assert (
        difference.value == pytest.approx(means["MAP"].value - means["FedAvg"].value)
        and difference.seeds == 3
    )
    claim = "MAP, map-table1 fa-lenet above FedAvg, map-table1 fa-lenet (preset reproduction)"
    assert any(note.startswith(claim) for note in pair.notes)
    collect([tmp_path / "runs"], tmp_path / "results", print)
    again = run_named_campaign("small", execution(tmp_path / "again"), tmp_path / "results")
    assert [done.numbers for done in again] == [search.numbers, table.numbers, pair.numbers]
    assert not list((tmp_path / "again").glob("*-s0"))


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"jobs": 3}, {"engine": "ray", "workers": 2}])
def test_campaign_has_the_same_rows_one_by_one_side_by_side_and_over_ray(
    how, tiny_scenes, small, tmp_path, request
):
    if "engine" in how:
        request.getfixturevalue("ray_session")
    alone = run_named_campaign("table", execution(tmp_path / "alone"))
    beside = run_named_campaign("table", execution(tmp_path / "beside", **how))
    runs = [
        {run.manifest["name"]: run for run in read_runs(tmp_path / where)} for where in ("alone", "beside")
    ]
    assert len(runs[0]) == 6 and runs[0].keys() == runs[1].keys()
    for name, run in runs[0].items():
        other = runs[1][name].rows
        if "jobs" in how:
            assert repr(run.rows.to_dict("list")) == repr(other.to_dict("list")), name
        else:
            assert np.allclose(run.rows["value"], other["value"], rtol=1e-3, atol=1e-4, equal_nan=True), name
    if "jobs" in how:
        assert [done.numbers for done in alone] == [done.numbers for done in beside]


def test_pairs_are_tested_by_students_t_and_corrected_over_themselves():
    rng = np.random.default_rng(0)
    better, worse = rng.normal(1.0, 0.5, (3, 5)), rng.normal(0.0, 0.5, (3, 5))
    better[2] = worse[2] - 1 - 0.1 * rng.random(5)
    found = [PairResult.of(PAIR, list(a - b)) for a, b in zip(better, worse, strict=True)]
    expected = [ttest_rel(a, b).pvalue for a, b in zip(better, worse, strict=True)]
    assert [one.p for one in found] == pytest.approx(expected)
    order = np.argsort(expected)
    corrected = np.empty(3)
    corrected[order] = np.minimum(1, np.maximum.accumulate(np.sort(expected) * [3, 2, 1]))
    sentences = named_pairs.tested(found)
    for sentence, p, difference in zip(sentences, corrected, [one.differences for one in found], strict=True):
        assert f"Holm {p:.2g}: " in sentence and f"better by {np.mean(difference):.3g} (95 % " in sentence
    assert sentences[2].endswith("the other order is shown")
    (few,) = named_pairs.tested([PairResult.of(replace(PAIR, smaller=True), [0.5, 0.6])])
    assert few.endswith("better by 0.55; 2 seeds, no verdict below 3") and " below FedAvg" in few
    assert named_pairs.tested([PairResult.of(PAIR, [])])[0].endswith(": not run")


def test_holm_counts_every_pair_that_was_named_also_those_without_a_verdict():
    differences = [1.0, 1.3, 1.1]
    p = PairResult.of(PAIR, differences).p
    waiting = [PairResult.of(PAIR, []) for _ in range(15)] + [PairResult.of(PAIR, [0.5, 0.6])]
    first, *others = named_pairs.tested([PairResult.of(PAIR, differences), *waiting])
    assert p < 0.05 < 17 * p and first.endswith(f"p = {p:.2g}, Holm {17 * p:.2g}: not shown")
    assert others[0].endswith(": not run") and others[-1].endswith("no verdict below 3")
    assert named_pairs.tested([PairResult.of(PAIR, differences)])[0].endswith(": shown")
