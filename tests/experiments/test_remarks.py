"""Numbers that a part wants kept about a client: on no split, and in nobody's way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.evaluation import METRICS
from idiolect.experiments import run
from idiolect.reports import summarise, write_report


@pytest.mark.parametrize(
    ("method", "remarks"),
    [
        ("persfl(lambdas=(0.5,), temperatures=(5.0,), epochs=1)", {"teacher round", "lambda", "temperature"}),
        ("apfl(alpha=0.25)", {"alpha"}),
        ("cfl", {"cluster"}),
        ("ifca", {"cluster"}),
        ("apple", {"p(own)"}),
        ("floco(endpoints=2)", {"alpha(1)", "alpha(2)"}),
        ("knn_per", {"lambda", "rows remembered"}),
        ("superfed_mm", set()),
    ],
)
def test_remark_belongs_to_no_split_and_a_split_has_metrics_alone(method, remarks, tiny, tmp_path):
    done = run(replace(tiny, method=method), out=tmp_path, engine="loop", device="cpu")
    rows = done.rows
    noted = rows[rows["split"] == "none"]
    assert set(noted["metric"]) == remarks
    assert sorted(noted["client"]) == sorted([*range(4)] * len(remarks))
    assert set(rows[rows["split"] != "none"]["metric"]) == set(METRICS)
    assert 0 <= summarise([done])["personal_accuracy"].item() <= 1
    assert (tmp_path / "report" / "table.md") in write_report([done], tmp_path / "report")
