"""What a report says it found, for every case that records can be in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from idiolect.records import Run
from idiolect.reports import certainty_of, write_report
from idiolect.reports.findings import findings_of
from idiolect.reports.run_groups import scenes_of
from idiolect.reports.scene_verdict import scene_verdict

CLIENTS = 20


def found(runs: list[Run]) -> list[str]:
    scenes = scenes_of(runs)
    return findings_of(scenes, {name: scene_verdict(groups) for name, groups in scenes.items()})


@pytest.fixture
def invent(make_run):
    """Runs whose methods have the levels given, with little noise, so that verdicts are clear."""

    def make(levels: dict[str, float], seeds: int = 4, noise: float = 0.004, **facts) -> list[Run]:
        runs = []
        for place, (label, level) in enumerate(levels.items()):
            for seed in range(seeds):
                people = np.random.default_rng([seed, 1]).normal(0, 0.05, CLIENTS)
                own = np.random.default_rng([seed, place]).normal(0, noise, CLIENTS)
                runs.append(make_run(label, seed, {(1, "after"): (level + people + own).tolist()}, **facts))
        return runs

    return make


def test_leader_equals_and_worse_are_named(invent) -> None:
    (text,) = found(invent({"MAP": 0.801, "Ditto": 0.8, "FedAvg": 0.7, "Local": 0.6}))
    leader, equal = ("MAP", "Ditto") if text.startswith("MAP") else ("Ditto", "MAP")
    assert text.startswith(f"{leader} leads with 8") and "% accuracy (95 % interval " in text
    assert f"It cannot be told apart from {equal}." in text
    assert "Clearly worse: FedAvg (by " in text and "Local (by " in text
    tested = "Tested at 5 % after Holm's correction, paired over 4 seeds, each with a partition of its own."
    assert text.endswith(tested)


def test_a_leader_without_equals_is_better_than_all(invent) -> None:
    (text,) = found(invent({"MAP": 0.8, "FedAvg": 0.7, "Local": 0.6}))
    assert "MAP leads" in text and "It is better than every other method." in text
    assert "told apart" not in text


def test_fixed_partition_is_named(invent) -> None:
    (text,) = found(invent({"MAP": 0.8, "FedAvg": 0.7}, data_seed=7))
    assert "paired over 4 seeds on one partition" in text
    (sentence,) = certainty_of(invent({"Ditto": 0.8, "Local": 0.7}, data_seed=7))
    assert "(median over pairs, seeds crossed with clients as units)" in sentence


def test_one_run_each_gives_no_verdict_and_says_what_is_needed(invent) -> None:
    (text,) = found(invent({"MAP": 0.8, "FedAvg": 0.7}, seeds=1))
    assert text.startswith("One run each: no verdict. MAP has the best mean accuracy, ")
    assert "before FedAvg by " in text and "another seed may turn that round." in text
    assert "Even if seeds did not vary, a difference below about " in text
    assert text.endswith("A verdict needs 3 seeds or more (--seeds 3).")
    assert "leads" not in text and "Clearly worse" not in text


def test_two_seeds_give_no_verdict(invent) -> None:
    (text,) = found(invent({"MAP": 0.8, "FedAvg": 0.7}, seeds=2))
    assert text.startswith("2 seeds each: no verdict.") and "A verdict needs 3 seeds" in text


def test_without_a_verdict_the_unit_that_is_lacking_is_named(invent, make_run) -> None:
    nested = []
    for data_seed in (7, 8):
        nested += invent({"MAP": 0.8, "FedAvg": 0.7}, seeds=2, data_seed=data_seed, dataset="nested")
    (text,) = found(nested)
    assert text.startswith("Runs on 2 partitions: no verdict.") and "Even if seeds" not in text
    assert text.endswith("A verdict needs 3 partitions or more (--data-seed), which are the units here.")
    runs = invent({"MAP": 0.8, "FedAvg": 0.7}, seeds=5)
    few = [run for run in runs if run.manifest["label"] == "MAP" or run.manifest["seed"] > 2]
    (text,) = found([run for run in few if run.manifest["label"] == "FedAvg" or run.manifest["seed"] < 4])
    assert text.startswith("One seed in common: no verdict. MAP has the best mean")
    assert text.endswith("A verdict needs 3 seeds or more that the methods share.")
    apart = [run for run in runs if (run.manifest["label"] == "MAP") == (run.manifest["seed"] < 3)]
    (text,) = found(apart)
    assert text.startswith("No two methods have seeds and clients in common: no verdict.")


def test_one_method_has_its_interval_alone(invent) -> None:
    (text,) = found(invent({"MAP": 0.8}))
    assert text.startswith("MAP has a mean accuracy of 8") and "(95 % interval " in text


def test_methods_without_common_seeds_are_not_compared(invent, make_run) -> None:
    runs = invent({"MAP": 0.8, "FedAvg": 0.7})
    runs += [make_run("Ditto", 9, {(1, "after"): [0.5] * CLIENTS})]
    (text,) = found(runs)
    assert "Not compared for want of common seeds: Ditto." in text


def test_a_leader_with_one_run_is_not_said_to_lead(invent) -> None:
    """The others are compared with four seeds, the best in the mean has one."""
    runs = invent({"MAP": 0.8, "FedAvg": 0.7, "Local": 0.6})
    (text,) = found([run for run in runs if run.manifest["label"] != "MAP" or run.manifest["seed"] == 0])
    assert (
        text.startswith("MAP has the best mean accuracy, ") and "leads" not in text and "Tested" not in text
    )
    assert text.endswith(
        "too few seeds in common with every other method for a verdict on its lead; the groups "
        "compare the others."
    )


def test_a_best_mean_that_other_seeds_make_is_not_said_to_lead(make_run) -> None:
    """B is better with each seed that both have; A has an easy seed of its own."""
    level = {"A": [0.5, 0.6, 0.55, 0.99], "B": [0.52, 0.62, 0.571]}
    runs = [
        make_run(label, seed, {(1, "after"): [value, value - 0.1]})
        for label, values in level.items()
        for seed, value in enumerate(values)
    ]
    (text,) = found(runs)
    assert text.startswith("A has the best mean accuracy, 61.0 % (95 % interval ")
    assert "but on the seeds in common B (by 2.0 points) is better: the means are of different seeds." in text
    assert "leads" not in text and "told apart" not in text and "Clearly worse" not in text


def test_seeds_that_a_test_stands_on_are_those_in_common(invent) -> None:
    runs = invent({"MAP": 0.8, "FedAvg": 0.7, "Local": 0.6}, seeds=5)
    some = [run for run in runs if run.manifest["label"] != "Local" or run.manifest["seed"] < 3]
    (text,) = found(some)
    assert "paired over 3 to 5 seeds, each with a partition of its own" in text
    (sentence,) = certainty_of(some)
    assert sentence.startswith("with 3 to 5 seeds, ")
    one = [run for run in runs if run.manifest["label"] != "Local" or run.manifest["seed"] < 1]
    (alone,) = certainty_of([run for run in runs if run.manifest["label"] != "Local"])
    assert certainty_of(one) == [alone]  # bounds for one seed do not enter the median


def test_lower_errors_lead(make_run) -> None:
    metrics = {"accuracy": {"higher_is_better": False, "unit": "number"}}
    runs = [
        make_run(label, seed, {(1, "after"): [level + seed / 100, level]}, metrics=metrics)
        for label, level in (("A", 3.0), ("B", 1.0))
        for seed in range(3)
    ]
    (text,) = found(runs)
    assert text.startswith("B leads with 1.005 accuracy") and "A (by 2)" in text


def test_scenes_that_agree_and_scenes_that_do_not(invent) -> None:
    levels = {"MAP": 0.8, "FedAvg": 0.7, "Local": 0.6}
    agree, *each = found([*invent(levels, dataset="a"), *invent(levels, dataset="b")])
    assert agree.startswith("MAP has the best mean in both scenes.")
    whom = "has the best mean or cannot be told apart from the method that has it."
    assert f"In every scene MAP {whom}" in agree
    close = {"MAP": 0.801, "Ditto": 0.8, "FedAvg": 0.7}
    both, *_ = found([*invent(close, dataset="e"), *invent(close, dataset="f")])
    assert f"In every scene each of MAP and Ditto {whom}" in both or f"each of Ditto and MAP {whom}" in both
    assert "By mean rank MAP comes first (1.00 of 3); over 2 scenes" in agree
    assert [text.partition(":")[0] for text in each] == ["a", "b"]
    other = {"MAP": 0.7, "FedAvg": 0.8, "Local": 0.6}
    disagree, *_ = found([*invent(levels, dataset="c"), *invent(other, dataset="d")])
    led = 'No method has the best mean in every scene: MAP has it in 1 of 2 ("c"), FedAvg in "d".'
    assert disagree.startswith(led)
    assert "No method is among the best in every scene." in disagree


def test_a_scene_without_verdict_is_named(invent) -> None:
    levels = {"MAP": 0.8, "FedAvg": 0.7}
    text, *_ = found([*invent(levels, dataset="a"), *invent(levels, seeds=1, dataset="b")])
    assert 'There is no verdict in "b".' in text


def test_table_begins_with_the_findings_and_bolds_the_best_group(invent, tmp_path: Path) -> None:
    levels = {"MAP": 0.801, "Ditto": 0.8, "FedAvg": 0.7}
    runs = [*invent(levels, dataset="a"), *invent(levels, seeds=1, dataset="b")]
    write_report(runs, tmp_path / "report", ["md", "tex", "csv", "svg"])
    text = (tmp_path / "report" / "table.md").read_text(encoding="utf-8")
    assert text.splitlines()[0] == found(runs)[0]
    decided, undecided = (part for part in text.split("#### ")[1:3])
    assert decided.count("**") == 4 and "| FedAvg | - | 70" in decided
    assert undecided.count("**") == 0
    assert (tmp_path / "report" / "table.tex").read_text().count(r"\textbf") == 2
    assert "| MAP | **8" in (tmp_path / "report" / "scenes.md").read_text()
    assert {path.name for path in (tmp_path / "report").iterdir() if path.is_dir()} == {"1-a", "2-b"}
    assert (tmp_path / "report" / "1-a" / "curves.svg").is_file()
