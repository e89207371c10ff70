"""Tables and figures from runs: what is run, skipped, taken up, listed as not run, and compared."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace

import pytest

from idiolect.errors import UserError
from idiolect.experiments.jobs import campaign, side_by_side
from idiolect.records import read_runs
from idiolect.reproduction import pictures, request
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.papers import FIGURE_KINDS, figures, table
from idiolect.reproduction.reproduce import ids, reproduce
from idiolect.reproduction.reproduction_result import Reproduction, write_files
from idiolect.reproduction.scenarios import find_scenario

from ..child_process import child_process

LOOP = {"engine": "loop", "device": "cpu"}


@pytest.fixture
def stand_in(tiny, monkeypatch):
    """Every scenario stands for the tiny experiment; what the method is called stays."""

    def known(name: str):
        def experiment(method: str, preset: str):
            text = find_scenario(name).method_text(method, preset)
            broken = "weight=0.001" in text and text.startswith("fedprox")
            return replace(tiny, method=text, learning_rate=1e30 if broken else 0.1)

        return SimpleNamespace(name=name, experiment=experiment, warning_of=find_scenario(name).warning_of)

    monkeypatch.setattr(request, "find_scenario", known)


@pytest.fixture
def counted(monkeypatch):
    """The experiments that were really started, by method."""
    started: list[str] = []
    honest = side_by_side.make_run

    def make_run(experiment, *how):
        done = honest(experiment, *how)
        started.append(experiment.method)
        return done

    monkeypatch.setattr(side_by_side, "make_run", make_run)
    return started


def _entries(done) -> dict[tuple[str, str], ComparedNumber]:
    return {(one.row, one.column): one for one in done.numbers}


def test_measured_number_is_the_one_of_the_run(stand_in, tmp_path):
    done = reproduce("map-table2", columns=["fa-lenet"], methods=["FedAvg", "map"], out=tmp_path, **LOOP)
    found = _entries(done)
    assert set(found) == {("FedAvg", "fa-lenet"), ("MAP", "fa-lenet")}
    for row, predictor in (("FedAvg", "after-local"), ("MAP", "companion")):
        run = next(r for r in read_runs(tmp_path) if r.manifest["label"] == row)
        rows = run.rows[(run.rows["round"] == 2) & (run.rows["population"] == "selected")]
        rows = rows[(rows["moment"] == "after") & (rows["metric"] == "accuracy")]
        mean = 100 * rows[rows["predictor"] == predictor]["value"].mean()
        one = found[row, "fa-lenet"]
        assert one.value == pytest.approx(mean)
        printed = {"FedAvg": 91.3, "MAP": 91.8}[row]
        assert (one.paper, one.difference) == (printed, pytest.approx(mean - printed))
        assert one.interval is None and one.within is None


def test_seeds_make_an_interval_that_is_asked_whether_the_paper_lies_in_it(stand_in, tmp_path):
    done = reproduce("map-table1", columns=["fa-mlpnet"], methods=["fedavg"], seeds=3, out=tmp_path, **LOOP)
    (one,) = done.numbers
    runs = read_runs(tmp_path)
    assert sorted(run.manifest["seed"] for run in runs) == [0, 1, 2]
    last = [run.rows[(run.rows["split"] == "server") & (run.rows["round"] == 2)] for run in runs]
    numbers = [100 * rows[rows["metric"] == "accuracy"]["value"].item() for rows in last]
    assert one.value == pytest.approx(fmean(numbers))
    low, high = one.interval
    assert low < one.value < high and one.seeds == 3
    assert one.within == (low <= 86.2 <= high)
    assert "3 seeds" in " ".join(done.notes)


@pytest.mark.parametrize(("interval", "within"), [((1.0, 3.0), True), ((2.1, 3.0), False), (None, None)])
def test_within(interval, within):
    assert ComparedNumber("r", "c", value=2.5, interval=interval, paper=2.0).within is within
    assert ComparedNumber("r", "c", value=2.5, interval=interval).within is None


def test_what_is_done_is_not_run_again_and_tables_share_runs(stand_in, tmp_path, monkeypatch):
    asked = {"columns": ["fa-lenet"], "methods": ["fedavg"], "out": tmp_path, **LOOP}
    first = reproduce("map-table2", **asked)
    (folder,) = [path for path in tmp_path.iterdir() if path.name.startswith("fedavg")]
    before = (folder / "manifest.json").stat().st_mtime_ns
    again, other = reproduce("map-table2", **asked), reproduce("map-table1", **asked)
    assert again.numbers == first.numbers
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    assert len(read_runs(tmp_path)) == 1 and other.numbers[0].value is not None


def test_method_that_diverges_says_so_in_its_cell_and_the_others_go_on(stand_in, counted, tmp_path):
    asked = {"columns": ["fa-lenet"], "methods": ["fedprox", "fedavg", "fedrs"], "seeds": 2, **LOOP}
    done = reproduce("map-table2", out=tmp_path, **asked)
    found = _entries(done)
    lost = found["FedProx", "fa-lenet"]
    assert (lost.value, lost.failed, lost.diverged, lost.seeds) == (None, "", 2, 2)
    assert lost.where.startswith("seed 0 diverged (round 1, client ") and "; seed 1 diverged (" in lost.where
    assert found["FedAvg", "fa-lenet"].value is not None and found["FedRS", "fa-lenet"].value is not None
    assert not done.failures and len(counted) == 6
    assert any(
        note.startswith("diverged (FedProx / fa-lenet): seed 0 diverged (round 1") for note in done.notes
    )
    table = (done.folder / "map-table2.md").read_text()
    (line,) = [line for line in table.splitlines() if line.startswith("| FedProx")]
    assert "| diverged (2 of 2 seeds) (92.00) |" in line
    rows = {
        row["row"]: row for row in csv.DictReader((done.folder / "map-table2.csv").read_text().splitlines())
    }
    assert rows["FedProx"]["diverged"] == "2" and "round 1, client" in rows["FedProx"]["where"]
    again = reproduce("map-table2", out=tmp_path, **asked)
    assert again.numbers == done.numbers and len(counted) == 12  # read again, not trained


def test_divergence_is_a_refusal_where_that_is_asked_and_the_others_go_on(stand_in, counted, tmp_path):
    asked = {"columns": ["fa-lenet"], "methods": ["fedprox", "fedavg"], "out": tmp_path, **LOOP}
    done = reproduce("map-table2", on_divergence="stop", **asked)
    found = _entries(done)
    assert found["FedProx", "fa-lenet"].value is None
    assert "FedProx: " in found["FedProx", "fa-lenet"].failed
    assert "not finite in round 1" in found["FedProx", "fa-lenet"].failed
    assert found["FedAvg", "fa-lenet"].value is not None and counted == ["fedavg"]
    assert len(done.failures) == 1
    assert any(note.startswith("refused (FedProx / fa-lenet): ") for note in done.notes)


def test_run_options_reach_every_run(stand_in, monkeypatch, tmp_path):
    made = []

    def make_run(experiment, execution, judge):
        made.append(execution)
        raise UserError("not run in this test")

    monkeypatch.setattr(side_by_side, "make_run", make_run)
    options = {"store": "host", "checkpoint_every": 3, "engine": "pool", "workers": 1, "device": "cpu"}
    done = reproduce("map-table2", columns=["fa-lenet"], methods=["fedavg", "map"], out=tmp_path, **options)
    assert len(made) == 2 and done.failures == ["not run in this test"]
    for execution in made:
        assert {name: getattr(execution, name) for name in options} == options and execution.resume
    with pytest.raises(
        UserError, match="rounds cannot be set in a reproduction, which runs the settings of the paper"
    ):
        reproduce("map-table2", rounds=3)


def test_cells_without_their_data_are_listed_with_the_command(tmp_path):
    done = reproduce(
        "map-table1", columns=["c10-tfcnn", "cinic-resnet20"], data_dir=tmp_path / "none", out=tmp_path
    )
    assert len(done.numbers) == 42 and not done.failures
    assert all(one.value is None and one.missing for one in done.numbers)
    told = [note for note in done.notes if note.startswith("not run ")]
    assert len(told) == 2
    assert f"idiolect datasets get cifar10 --data-dir {tmp_path / 'none'}" in " ".join(told)
    assert "FedAvg / c10-tfcnn, FedProx / c10-tfcnn, FedMMD / c10-tfcnn and 18 more" in " ".join(told)


def test_mean_of_several_scenarios_needs_all_of_them(stand_in, tmp_path, monkeypatch):
    done = reproduce("map-table3", columns=["personalisation"], methods=["map"], out=tmp_path, **LOOP)
    (one,) = done.numbers
    assert one.value is not None and one.paper == 75.61
    honest = campaign.availability

    def gone(dataset, data_dir):
        return honest(dataset, data_dir)._replace(present=False, advice="get it")

    monkeypatch.setattr(campaign, "availability", gone)
    (one,) = reproduce(
        "map-table3", columns=["personalisation"], methods=["map"], out=tmp_path, **LOOP
    ).numbers
    assert one.value is None and "get it" in one.missing


def test_user_rows_read_one_client_and_sd_over_users(stand_in, tmp_path):
    done = reproduce("persfl-table2", columns=["fedavg-ds1"], seeds=2, out=tmp_path, **LOOP)
    found = _entries(done)
    runs = read_runs(tmp_path)
    means, by_client = [], []
    for client in range(4):
        numbers = []
        for run in runs:
            rows = run.rows[(run.rows["round"] == 2) & (run.rows["client"] == client)]
            rows = rows[(rows["population"] == "all") & (rows["split"] == "test")]
            numbers.append(
                rows[(rows["predictor"] == "global") & (rows["metric"] == "accuracy")]["value"].item()
            )
        by_client.append([100 * number for number in numbers])
        means.append(100 * fmean(numbers))
        assert found[f"User {client}", "fedavg-ds1"].value == pytest.approx(means[-1])
    middle = fmean(means)
    assert found["Avg", "fedavg-ds1"].value == pytest.approx(middle)
    within = [stdev(values) for values in zip(*by_client, strict=True)]  # users of one seed, then over seeds
    assert found["SD", "fedavg-ds1"].value == pytest.approx(fmean(within))
    assert "there is no client 9; the run has 4" in found["User 9", "fedavg-ds1"].failed


def test_choices_of_users_are_read_from_the_runs_remarks(stand_in, tmp_path):
    asked = {"columns": ["c10-ds1-temperature", "c10-ds1-lambda"], "seeds": 1, "out": tmp_path, **LOOP}
    done = reproduce("persfl-table5", **asked)
    found = _entries(done)
    for client in range(4):
        assert found[f"User {client}", "c10-ds1-temperature"].value in (1.0, 5.0, 25.0)
        assert found[f"User {client}", "c10-ds1-lambda"].value in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert found["User 0", "c10-ds1-lambda"].paper == 0.45


def test_calibration_error_is_measured_in_its_own_unit(stand_in, tmp_path):
    done = reproduce(
        "superfed-table1", columns=["c10-ece", "c10-top5"], methods=["fedavg"], out=tmp_path, **LOOP
    )
    found = _entries(done)
    assert 0 <= found["FedAvg", "c10-ece"].value <= 1 and found["FedAvg", "c10-ece"].paper == 0.4722
    assert found["FedAvg", "c10-top5"].value == 100.0


def test_spread_over_clients_and_the_oracles_coefficient(stand_in, tmp_path):
    done = reproduce("superfed-table3", columns=["mm-personal", "mm-alpha"], out=tmp_path, **LOOP)
    found = _entries(done)
    one = found["L/R = 0.4", "mm-personal"]
    assert one.spread is not None and one.paper_spread == 3.04 and "phase_one=0.4" in one.ran_as
    assert 0 <= found["L/R = 0.4", "mm-alpha"].value <= 1
    assert len(read_runs(tmp_path)) == 10


def test_best_of_grid_takes_the_best_of_the_authors_settings(stand_in, tmp_path):
    asked = {"columns": ["fa-lenet"], "methods": ["perfedavg_fo"], "out": tmp_path, **LOOP}
    (one,) = reproduce("map-table2", best_of_grid=True, **asked).numbers
    single = []
    for run in read_runs(tmp_path):
        rows = run.rows[(run.rows["predictor"] == "after-local") & (run.rows["round"] == 2)]
        single.append(100 * rows[rows["metric"] == "accuracy"]["value"].mean())
    assert len(single) == 3 and max(single) > min(single)
    assert one.value == pytest.approx(max(single))
    middle = fmean(single)
    assert one.spread == pytest.approx((sum((x - middle) ** 2 for x in single) / 2) ** 0.5)
    with pytest.raises(UserError, match="persfl-table2 reports no best of several settings"):
        reproduce("persfl-table2", best_of_grid=True, out=tmp_path)


def test_facts_need_no_run(stand_in, tmp_path):
    done = reproduce("fedphp-table1", columns=["clients", "train", "local_classes"], out=tmp_path, **LOOP)
    found = _entries(done)
    assert found["Cifar10-100-5", "clients"].value == 4 and found["Cifar10-100-5", "clients"].paper == 100
    assert found["Cifar10-100-5", "train"].value == 12
    assert not [path for path in tmp_path.iterdir() if (path / "manifest.json").exists()]


def test_settings_need_no_data(tmp_path):
    done = reproduce("persfl-table7", out=tmp_path, data_dir=tmp_path)
    assert all(one.difference == 0 for one in done.numbers) and len(done.numbers) == 30


def test_quick_is_marked_and_shows_no_number_of_the_paper(stand_in, monkeypatch, tmp_path):
    monkeypatch.setattr(request, "quick_experiment", lambda experiment: experiment)
    done = reproduce("map-table2", columns=["fa-lenet"], methods=["fedavg"], quick=True, out=tmp_path, **LOOP)
    (one,) = done.numbers
    assert one.value is not None and one.paper is None and one.paper_spread is None
    assert done.folder == tmp_path / "map-table2-quick"
    for file in done.folder.iterdir():
        text = file.read_text()
        assert "91.3" not in text and "quick" in text
    assert done.notes[0].startswith("quick: ")


def test_files_hold_measured_and_printed_numbers(tmp_path):
    numbers = [
        ComparedNumber("A & b", "x_1", value=71.234, interval=(70.0, 72.5), seeds=3, paper=72.0, unit="%"),
        ComparedNumber("A & b", "y", missing="no data", paper=1.5),
    ]
    write_files(tmp_path, Reproduction("t", "caption", False, tuple(numbers), ("a note",), tmp_path))
    markdown = (tmp_path / "t.md").read_text()
    assert "| A & b | 71.23 ± 1.25 (72.00) | not run (1.5) |" in markdown and "- a note" in markdown
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert (rows[0]["value"], rows[0]["within"], rows[1]["missing"]) == ("71.234", "True", "no data")
    latex = (tmp_path / "t.tex").read_text()
    assert r"A \& b & 71.23 $\pm$ 1.25 (72.00) & not run (1.5) \\" in latex and r"x\_1" in latex


@pytest.mark.parametrize(
    ("id", "asked", "piece"),
    [
        ("map-tabel2", {}, "unknown table or figure 'map-tabel2'; did you mean map-table2"),
        ("map-table2", {"columns": ["fa-lenett"]}, "unknown column 'fa-lenett'; did you mean fa-lenet"),
        ("map-table2", {"methods": ["fedpre"]}, "unknown method 'fedpre'; did you mean fedrep"),
        ("fedphp-fig4", {"columns": ["php-c11"]}, "unknown scenario 'php-c11'; did you mean php-c10"),
        ("map-table2", {"seeds": 0}, "seeds must be at least 1"),
        ("fedper-fig2", {"preset": "official"}, "has no preset 'official'"),
    ],
)
def test_mistake_is_refused(id, asked, piece, tmp_path):
    with pytest.raises(UserError, match=piece):
        reproduce(id, out=tmp_path, **asked)


def test_drawings_say_that_nothing_is_run(tmp_path):
    for id in ("map-fig1", "fedper-fig10"):
        done = reproduce(id, out=tmp_path)
        assert not done.numbers and done.notes[0].startswith(f"nothing is run for {id}")


@pytest.mark.parametrize(
    ("id", "asked", "panels"),
    [
        ("fedphp-fig4", {"columns": ["php-c10"], "methods": ["fedavg", "fedphp"]}, 1),
        ("fedper-fig3", {}, 1),
        ("fedphp-fig2", {"columns": ["php-c100"]}, 4),
        ("fedphp-fig6", {"columns": ["php-c10"], "methods": ["local", "fedphp"]}, 1),
        pytest.param("fedphp-fig7", {"columns": ["php-c100"], "quick": True}, 4, marks=pytest.mark.slow),
        ("fedphp-fig8", {"columns": ["php-c10"]}, 1),
        ("persfl-fig2", {"columns": ["persfl-c10-ds1"], "seeds": 1}, 1),
        pytest.param("persfl-fig3", {"seeds": 1}, 4, marks=pytest.mark.slow),
        ("map-fig8", {}, 2),
        pytest.param("map-fig9", {"methods": ["fedavg", "map", "fedrep"]}, 1, marks=pytest.mark.slow),
        ("map-fig10", {"columns": ["map-fa-lenet"]}, 1),
        pytest.param("map-fig11", {"columns": ["map-fa-lenet"]}, 1, marks=pytest.mark.slow),
        ("superfed-fig3", {"methods": ["superfed_mm"]}, 2),
        pytest.param("superfed-fig4", {"methods": ["superfed_mm"]}, 4, marks=pytest.mark.slow),
    ],
)
def test_figure_gives_numbers_points_and_a_picture(
    id, asked, panels, stand_in, few_values, drawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(request, "quick_experiment", lambda experiment: replace(experiment, evaluate_every=1))
    done = reproduce(id, out=tmp_path, **asked, **LOOP)
    assert done.numbers and not done.failures, done.notes
    assert any(one.value is not None for one in done.numbers)
    points = (done.folder / f"{id}-points.csv").read_text().splitlines()
    assert len(points) > 1
    assert (done.folder / f"{id}.png").read_bytes().startswith(b"\x89PNG")
    (picture,) = drawn
    assert sum(axes.axison for axes in picture.axes) == panels


@pytest.fixture
def few_values(monkeypatch):
    """Of everything that a figure varies, the first two values."""
    names = reproduce.__globals__
    honest = names["figure"]

    def figure(id):
        found = honest(id)
        first = {"options": found.options, "settings": found.settings}
        few = {name: {key: values[:2] for key, values in varied.items()} for name, varied in first.items()}
        return replace(found, **few)

    monkeypatch.setitem(names, "figure", figure)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that pictures are made of."""
    found = []
    honest = pictures.image

    def image(figure, kind):
        found.append(figure)
        return honest(figure, kind)

    monkeypatch.setattr(pictures, "image", image)
    return found


def test_every_kind_with_data_has_a_drawing():
    assert set(pictures.DRAWINGS) == set(FIGURE_KINDS) - {"schematic", "unknown"}
    assert {found.kind for found in figures()} <= set(FIGURE_KINDS)


def test_picture_comes_in_every_format_named(stand_in, tmp_path):
    asked = {"columns": ["php-c10"], "methods": ["fedavg"], "out": tmp_path, **LOOP}
    done = reproduce("fedphp-fig4", formats=["svg", "pdf"], **asked)
    assert (done.folder / "fedphp-fig4.svg").read_bytes().startswith(b"<?xml")
    assert (done.folder / "fedphp-fig4.pdf").read_bytes().startswith(b"%PDF")
    assert not (done.folder / "fedphp-fig4.png").exists()
    with pytest.raises(UserError, match="a format must be one of png, svg, pdf; got 'gif'"):
        reproduce("fedphp-fig4", formats=["gif"], **asked)


def test_what_is_picked_on_test_data_says_oracle(stand_in, few_values, tmp_path):
    """In the row of the entry and in every file; what is not picked there does not say it."""
    grid = {"columns": ["fa-lenet"], "methods": ["perfedavg_fo"]}
    picked = [
        ("map-table2", {**grid, "best_of_grid": True}),
        ("superfed-table1", {"columns": ["c10-personal"], "methods": ["superfed_mm"]}),
        ("superfed-fig4", {"methods": ["superfed_mm"]}),
    ]
    for id, asked in picked:
        done = reproduce(id, out=tmp_path, **asked, **LOOP)
        measured = [one for one in done.numbers if one.value is not None]
        assert measured and all(one.rule == "oracle" for one in measured), id
        rows = list(csv.DictReader((done.folder / f"{id}.csv").read_text().splitlines()))
        assert all(row["rule"] == "oracle" for row in rows if row["value"])
        assert "oracle" in (done.folder / f"{id}.md").read_text()
    (one,) = reproduce("map-table2", out=tmp_path, **grid, **LOOP).numbers
    assert one.value is not None and one.rule == ""


def test_figure_compares_with_the_numbers_that_the_paper_prints(stand_in, tmp_path):
    (one,) = reproduce("map-fig10", columns=["map-fa-lenet"], out=tmp_path, **LOOP).numbers
    assert one.paper == 16 and 0 <= one.value <= 4
    done = reproduce("fedphp-fig6", columns=["php-c10"], methods=["fedphp"], out=tmp_path, **LOOP)
    assert done.numbers[0].paper is None and done.numbers[0].value == pytest.approx(0.0, abs=1e-9)


def test_column_of_tables_as_a_figure(stand_in, tmp_path):
    done = reproduce("map-fig9", methods=["fedavg", "map"], out=tmp_path, **LOOP)
    assert {one.column for one in done.numbers} == {"map-table1", "map-table2"}
    printed = {(one.row, one.column): one.paper for one in done.numbers}
    assert printed["MAP", "map-table2"] == 73.9 == table("map-table2").cell("MAP", "avg").value


def test_every_id_is_known():
    assert len(ids()) == 64 and {"map-table2", "fedper-fig18"} <= set(ids())


def _command(out: Path) -> list[str]:
    words = ["reproduce", "map-table2", "--column", "fa-lenet", "--methods", "fedavg,map", "--quick"]
    return [
        sys.executable,
        "-m",
        "idiolect",
        *words,
        "--engine",
        "loop",
        "--device",
        "cpu",
        "--out",
        str(out),
    ]


def _checkpointed(out: Path) -> bool:
    return any(out.glob("map-*.partial/checkpoint-2.safetensors"))


@pytest.mark.slow
def test_killed_reproduction_goes_on_and_ends_with_the_same_numbers(tmp_path):
    """Offline, as a user runs it; killed without warning in the second run, after its second round."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "IDIOLECT_DATA": str(tmp_path / "no-data")}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    began = time.monotonic()
    subprocess.run(_command(whole), check=True, capture_output=True, env=surroundings, timeout=180)
    took = time.monotonic() - began
    assert took < 180
    nowhere = subprocess.DEVNULL
    with child_process(_command(killed), stdout=nowhere, stderr=nowhere, env=surroundings) as first:
        while not _checkpointed(killed):
            assert first.poll() is None, "ended before it could be killed"
            assert time.monotonic() < began + took + 180
            time.sleep(0.01)
    assert not (killed / "map-table2-quick").exists()
    finished = [path for path in killed.iterdir() if not path.name.endswith(".partial")]
    assert [path.name.partition("-")[0] for path in finished] == ["fedavg"]
    stamp = (finished[0] / "manifest.json").stat().st_mtime_ns
    again = subprocess.run(
        [*_command(killed), "--json"],
        check=True,
        capture_output=True,
        text=True,
        env=surroundings,
        timeout=180,
    )
    assert (finished[0] / "manifest.json").stat().st_mtime_ns == stamp, "a finished run was run again"
    assert (killed / "map-table2-quick/map-table2.csv").read_text() == (
        whole / "map-table2-quick/map-table2.csv"
    ).read_text()
    assert json.loads(again.stdout)["quick"] is True
    runs = [{run.manifest["name"]: run for run in read_runs(out)} for out in (whole, killed)]
    assert set(runs[0]) == set(runs[1]) and len(runs[0]) == 2
    for name in runs[0]:
        assert runs[0][name].rows.equals(runs[1][name].rows), name
        assert runs[0][name].rounds["train_loss"].equals(runs[1][name].rounds["train_loss"])
