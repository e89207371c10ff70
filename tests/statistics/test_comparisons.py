"""Which intervals and verdicts the seeds of a comparison allow."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from idiolect.errors import UserError
from idiolect.records import RowBuffer, RowKind
from idiolect.statistics import (
    Reading,
    as_reading,
    client_scores,
    design_of,
    mean_estimate,
    mean_estimates,
    paired_comparisons,
)
from idiolect.statistics.inference import bounds, crossed_mean, detectable_effect, two_sided_p


def several(final, values: np.ndarray, data_seeds: list[int] | None = None, **facts):
    """Returns one run for each row of values."""
    drawn = data_seeds or list(range(len(values)))
    seeds = {data_seed: iter(range(len(values))) for data_seed in drawn}
    return [
        final(*row, seed=next(seeds[data_seed]) if data_seeds else data_seed, data_seed=data_seed, **facts)
        for row, data_seed in zip(values, drawn, strict=True)
    ]


def drawn(seeds: int, clients: int = 6, stream: int = 0) -> np.ndarray:
    return 0.5 + 0.1 * np.random.default_rng(stream).standard_normal((seeds, clients))


def test_design_is_read_from_the_manifests(final) -> None:
    values = drawn(4)
    assert design_of(several(final, values[:1])) == "one"
    assert design_of(several(final, values)) == "redrawn"
    assert design_of(several(final, values, [7, 7, 7, 7])) == "fixed"
    assert design_of(several(final, values, [7, 7, 8, 9])) == "nested"


def test_redrawn_data_give_students_interval_over_seeds(final) -> None:
    one, other = drawn(4), drawn(4, stream=1)
    pair = paired_comparisons({"A": several(final, one), "B": several(final, other)}).iloc[0]
    theirs = stats.ttest_rel(one.mean(axis=1), other.mean(axis=1))
    low, high = theirs.confidence_interval()
    assert pair[["difference", "low", "high", "p"]].tolist() == pytest.approx(
        [one.mean() - other.mean(), low, high, theirs.pvalue]
    )
    assert pair[["clients", "seeds", "design"]].tolist() == [6, 4, "redrawn"]
    alone = mean_estimate(several(final, one))
    assert (alone.low, alone.high) == pytest.approx(
        stats.ttest_1samp(one.mean(axis=1), 0).confidence_interval(), rel=1e-9
    )


@pytest.mark.parametrize("data_seeds", [None, [7] * 4], ids=["redrawn", "fixed"])
def test_intervals_of_means_end_where_the_metric_does_and_those_of_differences_do_not(
    final, data_seeds
) -> None:
    high = np.repeat([[0.2], [1.0], [1.0], [1.0]], 6, axis=1)
    bounded, free = (
        {"metrics": {"accuracy": {"higher_is_better": True, "low": low, "high": top, "unit": "share"}}}
        for low, top in ((0.0, 1.0), (None, None))
    )
    for values, passes in ((high, "high"), (1 - high, "low")):
        found = mean_estimate(several(final, values, data_seeds, **bounded))
        plain = mean_estimate(several(final, values, data_seeds, **free))
        end = {"low": 0.0, "high": 1.0}[passes]
        assert abs(getattr(plain, passes) - 0.5) > 0.5 and getattr(found, passes) == end
        assert (found.value, found.se, found.df, found.p) == (plain.value, plain.se, plain.df, plain.p)
    groups = {
        "A": several(final, high, data_seeds, **bounded),
        "B": several(final, 1 - high, data_seeds, **bounded),
    }
    assert paired_comparisons(groups).iloc[0]["high"] > 1


def test_a_fixed_partition_crosses_seeds_with_clients(final) -> None:
    one, other = drawn(3), drawn(3, stream=1)
    groups = {"A": several(final, one, [7] * 3), "B": several(final, other, [7] * 3)}
    pair, found = paired_comparisons(groups).iloc[0], crossed_mean(one - other)
    expected = [float(number) for number in (*bounds(found), two_sided_p(found))]
    assert pair[["low", "high", "p"]].tolist() == pytest.approx(expected)
    assert pair["detectable"] == pytest.approx(detectable_effect(float(found.se), float(found.df)))


def test_nested_seeds_count_partitions_only(final) -> None:
    values = drawn(5)
    found = mean_estimate(several(final, values, [7, 7, 7, 8, 9]))
    units = np.array([values[:3].mean(), values[3].mean(), values[4].mean()])
    assert (found.value, found.df, found.seeds, found.design) == (pytest.approx(units.mean()), 2, 5, "nested")
    assert (found.low, found.high) == pytest.approx(stats.ttest_1samp(units, 0).confidence_interval())
    assert math.isnan(mean_estimate(several(final, values, [7, 7, 7, 8, 8])).low)  # two partitions


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_give_no_verdict(final, seeds) -> None:
    one, other = drawn(seeds) + 0.3, drawn(seeds, stream=1)
    pair = paired_comparisons({"A": several(final, one), "B": several(final, other)}).iloc[0]
    assert pair["difference"] == pytest.approx(one.mean() - other.mean())
    assert pair[["low", "high", "p", "p_holm"]].isna().all()
    assert math.isnan(mean_estimate(several(final, one)).low)


def test_one_seed_bounds_what_could_be_found_from_below(final) -> None:
    one, other = drawn(1), drawn(1, stream=1)
    pair = paired_comparisons({"A": several(final, one), "B": several(final, other)}).iloc[0]
    error = np.std(one - other, ddof=1) / math.sqrt(6)
    assert pair["detectable"] == pytest.approx(detectable_effect(error, 5))


def test_holm_counts_the_pairs_of_the_table(final) -> None:
    groups = {name: several(final, drawn(3, stream=place)) for place, name in enumerate("ABC")}
    table = paired_comparisons(groups)
    assert len(table) == 3
    assert table["p_holm"].min() == pytest.approx(min(1, 3 * table["p"].min()))
    against = paired_comparisons(groups, baseline="A")
    assert against["other"].tolist() == ["A", "A"]


def test_pairs_use_the_replicates_and_clients_that_both_have(final) -> None:
    one, other = drawn(4), drawn(3, clients=5, stream=1)
    pair = paired_comparisons({"A": several(final, one), "B": several(final, other)}).iloc[0]
    assert pair[["clients", "seeds"]].tolist() == [5, 3]
    assert pair["difference"] == pytest.approx((one[:3, :5] - other).mean())
    apart = paired_comparisons({"A": several(final, one[:1], [3]), "B": several(final, one[:1], [4])})
    assert apart.empty


def test_comparisons_that_make_no_sense_are_refused(final) -> None:
    runs = several(final, drawn(3))
    with pytest.raises(UserError, match="needs two methods"):
        paired_comparisons({"A": runs})
    with pytest.raises(UserError, match="unknown method 'Z'"):
        paired_comparisons({"A": runs, "B": runs}, baseline="Z")


def test_bootstrap_is_a_second_interval_from_ten_seeds_on(final) -> None:
    table = mean_estimates({"few": several(final, drawn(9)), "many": several(final, drawn(10))})
    assert math.isnan(table["bootstrap_low"][0])
    assert table["bootstrap_low"][1] < table["value"][1] < table["bootstrap_high"][1]
    assert table["low"].notna().all()


def test_readings_take_the_last_a_mean_or_a_validated_round(make_run) -> None:
    rows = RowBuffer()
    for number, valid in {1: 0.2, 2: 0.9, 3: 0.4}.items():
        rows.extend(number, [0, 1], RowKind("valid", "own", "before", "all", "accuracy"), [valid, valid])
    tested = {(n, "own", "before", "all"): {0: n / 10, 1: 0.5} for n in (1, 2, 3)}
    run = make_run(tested, more=rows)
    assert client_scores(run).to_dict() == pytest.approx({0: 0.3, 1: 0.5})
    assert client_scores(run, reading=Reading("mean", 2)).to_dict() == pytest.approx({0: 0.25, 1: 0.5})
    assert client_scores(run, reading=as_reading("mean(9)"))[0] == pytest.approx(0.2)
    assert client_scores(run, reading=as_reading("validated"))[0] == pytest.approx(0.2)
    with pytest.raises(UserError, match="has no scores on validation data"):
        client_scores(make_run(tested), reading=Reading("validated"))
    with pytest.raises(UserError, match="a reading is last"):
        as_reading("best")


def test_values_of_the_end_count_under_every_reading(make_run) -> None:
    tested = {(n, "own", "before", "all"): {0: n / 10} for n in (1, 2, 3)}
    run = make_run({**tested, (3, "own", "end", "all"): {0: 0.9}})
    for reading in ("last", "mean(2)", "validated"):
        assert client_scores(run, reading=as_reading(reading)).to_dict() == {0: 0.9}


def test_mean_estimates_have_one_row_per_method(final) -> None:
    table = mean_estimates({"A": several(final, drawn(3)), "B": several(final, drawn(1))})
    assert isinstance(table, pd.DataFrame) and table["method"].tolist() == ["A", "B"]
    assert table["design"].tolist() == ["redrawn", "one"] and "p" not in table
