"""What the bench says of rows that were measured, and of those that were not."""

import importlib.util
import json
from pathlib import Path

import pytest

from idiolect.bench import notes_of, rows_of_table
from idiolect.bench.interleaved_measurement import Peer, Turn, rows_of
from idiolect.bench.report import lines_of
from idiolect.bench.roofline import Peaks
from idiolect.bench.workloads import BenchCell

KEYS = {
    "workload", "model", "method", "clients", "population", "samples", "batch_size", "sizes", "precision", "device",
    "seed", "phase", "runner", "threads", "engine", "reason", "version", "parameters", "refused", "difference", "sway",
    "peak_resident_bytes", "peak_cuda_bytes", "seconds", "steps", "client_steps_per_second",
    "seconds_per_client_step", "times_plain", "times_best_engine", "flops", "bytes", "share_of_arithmetic",
    "share_of_memory",
}  # fmt: skip
PEAKS = Peaks(100.0, 10.0)
SCRIPT = Path(__file__).parents[2] / "scripts" / "write_performance.py"


def test_document_holds_machine_peaks_and_rows(report):
    document = json.loads(json.dumps(report.as_dict()))
    assert set(document) == {"schema", "machine", "peaks", "rows"} and document["schema"] == 1
    assert document["peaks"] == {"float32": {"flops": 100.0, "bytes": 10.0}}
    assert len(document["rows"]) == 5
    for row in document["rows"]:
        assert set(row) == KEYS


def test_row_is_compared_with_the_plain_loop_of_the_same_turn(report):
    plain, loop, pool, *_ = report.lines
    assert plain["times_plain"]["median"] == 1.0
    assert loop["times_plain"]["median"] == 0.5 and pool["times_plain"]["median"] == 2.0
    assert pool["seconds"] == {"median": 1.0, "low": 1.0, "high": 2.0, "all": [1.0, 2.0, 1.0]}
    assert pool["client_steps_per_second"] == pytest.approx(140)
    assert pool["seconds_per_client_step"]["median"] == pytest.approx(1 / 140)


def test_floors_come_from_the_work_of_the_plain_loop(report):
    """200 operations at 100 a second are 2 s, 30 bytes at 10 a second 3 s."""
    pool = report.lines[2]
    assert (pool["flops"], pool["bytes"]) == (200, 30)
    assert pool["share_of_arithmetic"] == pytest.approx(2.0)
    assert pool["share_of_memory"] == pytest.approx(3.0)


def test_auto_is_compared_with_the_fastest_engine(report):
    auto = report.lines[3]
    assert auto["times_best_engine"]["median"] == 0.25
    assert all(line["times_best_engine"] is None for line in report.lines if line["runner"] != "auto")
    assert "w, 20 of 100: auto is loop (as asked), 0.25 of the fastest engine's speed" in notes_of(report)


def test_rows_of_another_draw_say_so(report):
    for line in report.lines:
        line["seed"] = 3
    assert any(note.startswith("w seed 3, 20 of 100: auto is") for note in notes_of(report))


def test_row_that_is_not_installed_says_so_in_the_table(report):
    table = rows_of_table(report)
    assert table[-1][2] == "pfl (not installed)" and table[-1][3:] == ["-"] * (len(table[0]) - 3)
    assert (
        notes_of(report)[-1] == "w, 20 of 100, pfl (not installed): not installed; pip install 'pfl==0.6.0'"
    )


def test_other_number_of_steps_is_not_compared(measured):
    rows = measured(pfl=[1.0, 1.0, 1.0])
    rows[1].turns["round"] = [Turn(1.0, 120)] * 3
    line = lines_of(rows, PEAKS)[1]
    assert line["refused"] == "made 120 optimisation steps a round where the plain loop made 140"
    assert line["times_plain"] is None and line["share_of_arithmetic"] is None
    assert line["seconds"]["median"] == 1.0


def test_other_model_is_not_compared(measured):
    rows = measured(loop=[1.0, 1.0, 1.0], pool=[2.0, 2.0, 2.0], auto=[2.0, 2.0, 2.0])
    rows[1].refused = "its model differs"
    lines = lines_of(rows, PEAKS)
    assert lines[1]["times_plain"] is None
    assert lines[3]["times_best_engine"]["median"] == 1.0, "the row that differs is not the fastest engine"


def test_tf32_on_a_cpu_is_called_float32(report):
    assert not any("tf32" in note for note in notes_of(report))
    report.lines[0]["precision"] = "tf32"
    assert "a CPU computes tf32 in float32" in notes_of(report)


def test_busy_machine_is_called_busy(report):
    assert not any("not idle" in note for note in notes_of(report))
    report.machine["load_at_start"] = 3.0
    assert any("not idle (load 3.0 on 2 cores" in note for note in notes_of(report))


def test_time_per_step_of_ragged_rounds_is_of_real_steps(measured):
    rows = measured()
    rows[0].turns["round"] = [Turn(1.0, 10), Turn(4.0, 20), Turn(9.0, 30)]
    assert lines_of(rows, PEAKS)[0]["seconds_per_client_step"] == {"median": 0.2, "low": 0.1, "high": 0.3}


def test_notes_say_what_unequal_clients_cost(report):
    def costs() -> list[str]:
        return [note for note in notes_of(report) if "equal sizes" in note]

    assert not costs()
    pool = next(line for line in report.lines if line["runner"] == "pool")
    slow = pool["seconds"] | {"all": [2.0, 3.0, 1.5]}
    ragged = pool | {"sizes": "lognormal", "seconds": slow, "steps": [140, 140, 70]}
    for other in ({"clients": 100}, {"precision": "tf32"}, {"method": "map"}, {"refused": "made 9 steps"}):
        report.lines.append(ragged | other)
    assert not costs()
    report.lines.append(ragged)
    assert costs() == [
        "w lognormal, 20 of 100, pool: a client-step takes 2.00 times as long as with equal sizes "
        "(1.50-3.00 round by round, 1.95 over all rounds)"
    ]


def test_note_says_where_rounding_carries_models_apart(report):
    line = next(line for line in report.lines if line["runner"] == "pool")
    line |= {"difference": 0.27, "sway": 0.3}
    report.lines.append(line | {"phase": "end"})
    found = [note for note in notes_of(report) if "differs from the plain loop's by 2.7e-01" in note]
    assert found == [
        "w, 20 of 100, pool: its model after one round differs from the plain loop's by 2.7e-01 of the distance "
        "moved; rounding errors in its start move the plain loop's model by 3.0e-01"
    ]


def test_plain_loop_stands_first_with_one_and_with_all_threads():
    peer = Peer("a peer", "theirs", ("true",))
    rows = rows_of(BenchCell(), ["pool", "auto"], [peer], cores=4)
    assert [(row.runner, row.threads) for row in rows[:4]] == [
        ("plain", 1), ("plain", 4), ("pool", 4), ("auto", 4)
    ]  # fmt: skip
    assert [(row.runner, row.peer) for row in rows[4:]] == [("a peer", peer)]
    assert [row.runner for row in rows_of(BenchCell(), [], [], cores=1)] == ["plain"]


def test_document_becomes_the_page_of_results(report, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("write_performance", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page, found = tmp_path / "page.md", tmp_path / "found.json"
    page.write_text(f"Before.\n{script.BEGIN}\nold\n{script.END}\nAfter.\n")
    report.machine["date"] = "2026-01-02"
    found.write_text(json.dumps(report.as_dict()))
    monkeypatch.setattr(script, "PAGE", page)
    script.main([str(found)])
    text = page.read_text()
    assert text.startswith("Before.") and text.endswith("After.\n") and "old" not in text
    assert "2026-01-02, version" in text and "| w | 20 of 100 | pool | 1 | 1-2 | 140 | 2.00 |" in text
