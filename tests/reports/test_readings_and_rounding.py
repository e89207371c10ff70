"""Which evaluations a report reads, clients that never trained, weights, and one way to round."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import RowBuffer, RowKind, Run
from idiolect.reports import curves_data, latex_table, markdown_table, page_data, summarise, write_report
from idiolect.reports.gain_over_local import gains_over_local
from idiolect.reports.judged_metric import ACCURACY
from idiolect.statistics import as_reading, run_numbers

CLIMB = {(number, "after"): [number / 10, number / 10] for number in (1, 2, 3, 4)}


def test_a_report_reads_every_method_by_one_rule_and_names_it(make_run, tmp_path: Path) -> None:
    runs = [
        make_run("A", 0, CLIMB, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}),
        make_run("B", 0, {(4, "end"): [0.9, 0.9]}),
    ]
    table = summarise(runs, as_reading("mean(2)"))
    assert table["personal_accuracy"].tolist() == pytest.approx([0.9, 0.35])
    assert table["global_accuracy"].iloc[1] == pytest.approx(0.35) and set(table["reading"]) == {"mean(2)"}
    assert "(mean of the last 2 evaluations)" in markdown_table(table)
    write_report(runs, tmp_path / "r", ["csv"], reading="mean(2)")
    written = pd.read_csv(tmp_path / "r" / "intervals.csv")["value"].tolist()
    assert written == pytest.approx([0.9, 0.35])
    assert summarise(runs)["personal_accuracy"][1] == pytest.approx(0.4)


def test_a_validated_reading_without_validation_scores_is_refused_before_anything_is_written(
    make_run, tmp_path
) -> None:
    run = make_run("A", 0, CLIMB)
    run = run._replace(rows=run.rows[run.rows["split"] != "valid"])
    with pytest.raises(UserError, match="has no scores on validation data to choose a round by"):
        write_report([run], tmp_path / "r", ["csv"], reading="validated")
    assert not (tmp_path / "r").exists()


def idle(run: Run, *clients: int) -> Run:
    numbers = sorted(run.rows["client"].unique())
    rounds = [0 if client in clients else 3 for client in numbers]
    spent = dict.fromkeys(("steps", "flops", "bytes_down", "bytes_up"), 0)
    return run._replace(
        costs=pd.DataFrame({"client": numbers, "population": "all", "rounds": rounds, **spent})
    )


def test_worst_tenth_leaves_out_clients_that_never_trained(make_run) -> None:
    run = make_run("A", 0, {(1, "after"): [0.1, 0.4, *[0.8] * 9]})
    assert run_numbers(run).worst_tenth == pytest.approx(0.25) and math.isnan(run_numbers(run).never_trained)
    found = run_numbers(idle(run, 0))
    assert found.worst_tenth == pytest.approx(0.4) and found.never_trained == 1
    assert found.personal == run_numbers(run).personal  # the mean is over all clients
    only_counted = make_run("B", 0, {(1, "after"): [0.1, 0.4]}, never_selected=2)
    assert run_numbers(only_counted).never_trained == 2 and run_numbers(only_counted).worst_tenth == 0.1


def test_marks_say_whether_the_worst_tenth_leaves_out_who_never_trained(make_run) -> None:
    values = {(1, "after"): [0.9, *[0.1] * 9, 0.5]}
    new = [idle(make_run("New", seed, values), *range(1, 2 + min(seed, 1))) for seed in range(3)]
    old = [make_run("Old", seed, values, never_selected=2) for seed in range(3)]
    table = summarise([*new, *old])
    assert table["left_out_of_worst_tenth"].tolist() == pytest.approx([5 / 3, 0])
    text = markdown_table(table)
    assert "| 1.67 † |" in text and "| 10.0 ± 0.0 ‡ | 2 ‡ |" in text
    assert "which can therefore exceed the mean. ‡: older record, whose worst tenth includes clients" in text
    assert "†" not in markdown_table(summarise(old)) and "‡" not in markdown_table(summarise(new))
    assert r"2 $\ddagger$" in latex_table(table)
    (scene,) = page_data([*new, *old])["scenes"]
    assert [line["never_text"] for line in scene["costs"]] == ["1.67 †", "2 ‡"]
    assert scene["idle_note"] and text.count(scene["idle_note"]) == 1


def test_curves_and_costs_average_within_partitions_first(make_run) -> None:
    places = ((7, 0, 0.2), (7, 1, 0.4), (8, 0, 0.9))
    runs = [
        make_run("A", seed, {(1, "after"): [level] * 2}, {1: level}, data_seed=data_seed, seconds=level)
        for data_seed, seed, level in places
    ]
    rounds = [
        run.rounds.assign(bytes_down=100 * level, bytes_up=level)
        for run, (*_, level) in zip(runs, places, strict=True)
    ]
    runs = [run._replace(rounds=table) for run, table in zip(runs, rounds, strict=True)]
    (scene,) = page_data(runs)["scenes"]
    found = scene["measured"]["accuracy"]
    for name in ("global", "personal"):
        assert found["curves"][0][name]["value"] == pytest.approx([0.6])
        assert found["curves"][0][name]["sd"] == pytest.approx([math.sqrt(0.18)])
    assert (scene["costs"][0]["down"], scene["costs"][0]["up"]) == pytest.approx((60, 0.6))
    assert found["bytes"][0]["down"] == pytest.approx([60]) and found["bytes"][0]["up"] == pytest.approx(
        [0.6]
    )
    drawn = curves_data(runs)
    assert drawn["accuracy"].tolist() == pytest.approx([0.6] * 2)
    assert drawn["sd_seeds"].tolist() == pytest.approx([math.sqrt(0.18)] * 2)


def test_weighted_mean_weighs_clients_by_their_test_rows(make_run) -> None:
    run = make_run("A", 0, {(1, "after"): [0.2, 0.8]})
    assert math.isnan(summarise([run])["weighted_accuracy"].item())  # nobody counted
    rows = RowBuffer()
    rows.extend(1, [0, 1], RowKind("test", "companion", "after", "all", "accuracy"), [0.2, 0.8], [10, 30])
    counted = run._replace(rows=rows.table().to_pandas())
    assert summarise([counted])["weighted_accuracy"].item() == pytest.approx(0.65)
    assert summarise([counted])["personal_accuracy"].item() == pytest.approx(0.5)


def test_weights_are_the_test_rows_of_the_evaluations_that_are_read(make_run) -> None:
    run, rows = make_run("A", 0, {(1, "after"): [0.2, 0.8]}), RowBuffer()
    for number, moment, samples in ((1, "after", [90, 10]), (2, "before", [70, 10]), (2, "after", [10, 30])):
        rows.extend(
            number, [0, 1], RowKind("test", "companion", moment, "all", "accuracy"), [0.2, 0.8], samples
        )
    drifted = run._replace(rows=rows.table().to_pandas())
    assert run_numbers(drifted).weighted == pytest.approx((0.2 * 10 + 0.8 * 30) / 40)
    both = run_numbers(drifted, reading=as_reading("mean(2)"))
    assert both.weighted == pytest.approx((0.2 * 50 + 0.8 * 20) / 70)


def test_who_loses_is_counted_in_every_seed_where_seeds_redraw_the_clients(make_run) -> None:
    local = [make_run("Local", seed, {(4, "after"): [0.5, 0.5]}) for seed in range(3)]
    other = [
        make_run("MAP", seed, {(4, "after"): [0.5 + gain, 0.6]}) for seed, gain in enumerate((0.2, -0.1, 0.1))
    ]
    (sentence,) = gains_over_local([*local, *other])
    # averaged by number, client 0 would gain in the mean and nobody would lose
    assert "better for 5 of 6 clients of 3 seeds, worse for 1" in sentence
    assert "95 % interval" in sentence and "means over 3 seeds" in sentence


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8085, "80.9"),
        (0.7825, "78.3"),
        (0.4325, "43.3"),
        (-0.8085, "-80.9"),
        (0.80849, "80.8"),
        (-0.00001, "0.0"),
        (1.0, "100.0"),
    ],
)
def test_halves_of_a_share_are_rounded_away_from_zero(value, text) -> None:
    assert ACCURACY.text(value) == text
