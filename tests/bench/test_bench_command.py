"""``idiolect bench`` as a user calls it."""

import json
import sys

import pytest

from idiolect import cli

TINY = ("--models", "dnn", "--clients", "2", "--population", "3", "--samples", "16", "--batch-size", "8")


@pytest.fixture
def call(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["idiolect", "bench", *words])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_one_command_measures_engines_beside_the_plain_loop(call):
    code, out, _ = call(*TINY, "--engines", "loop,auto", "--repeats", "2", "--device", "cpu", "--json")
    assert code == 0
    document = json.loads(out)
    rows = document["rows"]
    assert [row["runner"] for row in rows if row["threads"] == 1 or row["runner"] != "plain"] == [
        "plain", "loop", "auto"
    ]  # fmt: skip
    for row in rows:
        assert row["refused"] is None and row["steps"] == [4, 4]
        assert row["seconds"]["median"] > 0 and row["times_plain"]["median"] > 0
        assert 0 < row["share_of_arithmetic"] < 1 and row["peak_resident_bytes"] > 10**7
    assert all(row["difference"] < 1e-3 for row in rows[1:])
    assert rows[-1]["times_best_engine"]["median"] > 0
    assert document["peaks"]["float32"]["flops"] > 1e8
    assert any("of the fastest engine's speed" in note for note in document["notes"])


def test_table_and_notes_are_printed(call, monkeypatch, report):
    asked = []
    monkeypatch.setattr("idiolect.cli.bench.bench", lambda grid, say, peers_of: asked.append(grid) or report)
    code, out, _ = call(
        "--clients", "20,100,20", "--method", "map,superfed-mm", "--sizes", "equal,lognormal", "--seed", "3"
    )
    assert code == 0
    assert all(cell.seed == 3 for cell in asked[0].cells())
    assert [cell.sizes for cell in asked[0].cells()[:2]] == ["equal", "lognormal"]
    assert asked[0].clients == (20, 100) and asked[0].methods == ("map", "superfed-mm")
    assert [cell.population for cell in asked[0].cells()[:4]] == [100] * 4
    for piece in ("plain loop, 1 thread", "auto (loop)", "pfl (not installed)", "- peaks in float32"):
        assert piece in out


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_bench_without_an_engine_that_was_timed_ends_with_an_error(call, monkeypatch, report, words):
    monkeypatch.setattr("idiolect.cli.bench.bench", lambda grid, say, peers_of: report)
    for line in report.lines:
        line["refused"] = line["refused"] or ("it failed" if line["runner"] in ("loop", "pool") else None)
    assert call(*words)[0] == 0
    code, out, _ = call(*words, "--engines", "loop,pool")
    assert code == 1 and "w, 20 of 100, pool: it failed" in out


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (("--models", "lenets"), "unknown workload 'lenets'; did you mean lenet?"),
        (("--engines", "lop"), "unknown engine 'lop'; did you mean loop?"),
        (("--method", "fedprox"), "unknown method to bench 'fedprox'; "),
        (("--clients", "two"), "--clients must be whole numbers from 1 on, separated by commas, got 'two'"),
        (("--clients", "-1"), "--clients must be whole numbers from 1 on, separated by commas, got '-1'"),
        (("--clients", "0"), "clients must be"),
        (("--precision", "float8"), "precision must be one of float32"),
        (("--sizes", "pareto"), "sizes must be one of equal, lognormal; got 'pareto'"),
        (("--device", "gpu"), "device must be one of auto, cpu, cuda; got 'gpu'"),
        (("--seed", "-1"), "seed must be in [0, 9.22337e+18], got -1"),
        (("--seed", "99999999999999999999"), "seed must be in [0, 9.22337e+18], got 1e+20"),
        (("--repeats", "0"), "repeats must be in [1, 250], got 0"),
        (("--models", ","), "at least one workload"),
        (("--sizes", ""), "at least one workload"),
        (("--engines", ","), "at least one workload, engine"),
    ],
)
def test_mistake_is_one_sentence_before_anything_runs(call, words, piece):
    code, out, err = call(*words)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and piece in err
