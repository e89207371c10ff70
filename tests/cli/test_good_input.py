"""What the commands print and leave behind when all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from idiolect import data, methods
from idiolect import run as run_method
from idiolect.experiments import Silent
from idiolect.option_parsing import split_outside_brackets
from idiolect.records import WriteLock

from ..child_process import child_process

FILES = {"manifest.json", "rounds.parquet", "clients.parquet", "table.md", "table.csv", "curves.png"}
PERSFL = "persfl(lambdas=(0.0, 0.5), temperatures=[1.0, 5.0], epochs=1)"


def folders(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.is_dir())


# ---- run


def test_quick_run_prints_one_json_document_and_nothing_else(command, tmp_path):
    answer = command("run", "--method", "fedper", "--quick", "--json", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert all(": round " in line for line in answer.err.splitlines())  # progress, where the machine is slow
    document = json.loads(answer.out)
    (line,) = document["methods"]
    assert line["method"] == "FedPer" and line["predictor"] == "composed"
    assert 0 <= line["personal_accuracy"] <= 1
    folder = Path(document["folder"])
    assert folder.parent == tmp_path / "out"
    assert json.loads((folder / "manifest.json").read_text())["spec"]["rounds"] == 3


def test_run_folder_holds_record_table_and_pictures(idiolect, small, tmp_path):
    answer = idiolect("run", "--method", "fedper", *small, "--out", tmp_path / "out")
    assert answer.code == 0
    (folder,) = folders(tmp_path / "out")
    assert {path.name for path in folder.iterdir()} >= FILES
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "FedPer" in (folder / "table.md").read_text()
    assert "FedPer" in answer.out and str(folder) in answer.out


@pytest.mark.parametrize("text", ["local + fine_tune()", "proximal(weight=0.1)", "FedAvg-LU(epochs=2)"])
def test_method_composed_as_text_runs(text, idiolect, small, tmp_path):
    answer = idiolect("run", "--method", text, *small, "--json", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["methods"][0]["personal_accuracy"] is not None


def test_run_in_the_working_folder_goes_to_runs(idiolect, small, tmp_path):
    assert idiolect("run", "--method", "fedavg", *small).code == 0
    assert len(folders(tmp_path / "runs")) == 1


def test_finished_run_is_read_and_not_overwritten(idiolect, small, tmp_path):
    words = ("run", "--method", "fedavg", *small, "--json", "--out", tmp_path / "out")
    first = idiolect(*words)
    (folder,) = folders(tmp_path / "out")
    record = ("manifest.json", "rounds.parquet", "clients.parquet")
    before = [(folder / name).stat().st_mtime_ns for name in record]
    again = idiolect(*words)
    assert [(folder / name).stat().st_mtime_ns for name in record] == before
    assert again.out == first.out
    assert "is finished already" in again.err and "is finished already" not in first.err


def test_flag_wins_over_set_and_set_over_quick(idiolect, small, tmp_path):
    words = ("--quick", "--set", "rounds=4", "--set", "evaluate_every=4", "--rounds", "1")
    idiolect("run", "--method", "fedavg", *small, *words, "--out", tmp_path / "out")
    (folder,) = folders(tmp_path / "out")
    spec = json.loads((folder / "manifest.json").read_text())["spec"]
    assert (spec["rounds"], spec["evaluate_every"]) == (1, 4)


def test_set_reads_numbers_words_none_and_calls(idiolect, small, tmp_path):
    pairs = ("learning_rate=0.5", "weighting=samples", "clip_norm=None", "partition=label_k(k=2)")
    small = tuple(word for word in small if word not in ("--partition", "by_id"))
    flags = [word for pair in pairs for word in ("--set", pair)]
    answer = idiolect("run", "--method", "fedavg", *small, *flags, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    (folder,) = folders(tmp_path / "out")
    spec = json.loads((folder / "manifest.json").read_text())["spec"]
    found = [spec[key] for key in ("learning_rate", "weighting", "clip_norm", "partition")]
    assert found == [0.5, "samples", None, "label_k(k=2)"]


# ---- interruption


class Interrupts(Silent):
    def __init__(self, at: int) -> None:
        self.at = at
        self.said: list[str] = []
        self.hinted: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def hint(self, sentence: str) -> None:
        self.hinted.append(sentence)

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if rounds_done == self.at:
            raise KeyboardInterrupt


def _interrupted(out: Path, small: tuple[str, ...], **options: Any) -> Interrupts:
    """The watcher of a run of two rounds that it has stopped after the second."""
    flags = dict(zip(small[:8:2], small[1:8:2], strict=True))
    settings = {name.removeprefix("--"): value for name, value in flags.items()}
    settings |= {"clients": int(settings["clients"]), "rounds": 2, "participation_rate": 1.0}
    watcher = Interrupts(2)
    with pytest.raises(KeyboardInterrupt):
        run_method("fedper", out=out, engine="loop", watcher=watcher, **options, **settings)
    return watcher


def _interrupt(out: Path, small: tuple[str, ...]) -> Path:
    _interrupted(out, small, checkpoint_every=1)
    (partial,) = folders(out)
    assert partial.name.endswith(".partial")
    return partial


def test_interrupted_run_is_refused_without_resume_and_kept(idiolect, refused, small, tmp_path):
    partial = _interrupt(tmp_path / "out", small)
    before = {path: path.stat().st_mtime_ns for path in sorted(partial.rglob("*"))}
    answer = idiolect("run", "--method", "fedper", *small, "--out", tmp_path / "out")
    refused(answer, str(partial), "interrupted", "--resume")
    assert {path: path.stat().st_mtime_ns for path in sorted(partial.rglob("*"))} == before


def test_resumed_run_prints_what_an_uninterrupted_one_prints(idiolect, small, tmp_path):
    partial = _interrupt(tmp_path / "out", small)
    words = ("run", "--method", "fedper", *small, "--json", "--out")
    resumed = json.loads(idiolect(*words, tmp_path / "out", "--resume").out)
    whole = json.loads(idiolect(*words, tmp_path / "other").out)
    for document in (resumed, whole):
        document.pop("folder")
        document["methods"][0].pop("seconds")
    assert resumed == whole
    assert not partial.exists()


def test_ctrl_c_says_what_is_kept(small, tmp_path):
    watcher = _interrupted(tmp_path / "out", small, checkpoint_every=1)
    (partial,) = folders(tmp_path / "out")
    assert watcher.said == [f"{partial} goes on with --resume"]
    assert not any("nothing to resume" in hint for hint in watcher.hinted)
    watcher = _interrupted(tmp_path / "other", small, checkpoint_every=10)
    assert watcher.said == ["stopped before the first checkpoint"] and not folders(tmp_path / "other")


@pytest.mark.parametrize("words", [(), ("--resume",)])
def test_run_beside_a_live_one_is_refused(words, idiolect, refused, small, tmp_path):
    partial = _interrupt(tmp_path / "out", small)
    before = {path: path.stat().st_mtime_ns for path in sorted(partial.rglob("*"))}
    live = WriteLock(partial)
    answer = idiolect("run", "--method", "fedper", *small, "--out", tmp_path / "out", *words)
    live.release()
    refused(answer, str(partial), "another process")
    assert {path: path.stat().st_mtime_ns for path in sorted(partial.rglob("*"))} == before


def test_nothing_to_resume_is_told(small, tmp_path):
    first, *_ = _interrupted(tmp_path, small, resume=True).hinted
    assert first.startswith(f"nothing to resume in {tmp_path}: fedper-") and first.endswith(" begins")


# ---- compare


def test_comparison_over_seeds_prints_one_json_document(idiolect, small, tmp_path):
    words = ("--methods", "fedavg,fedper", "--quick", "--seeds", "2", "--json")
    answer = idiolect("compare", *words, *small, "--out", tmp_path / "out")
    assert answer.code == 0 and answer.err == ""
    document = json.loads(answer.out)
    assert [line["method"] for line in document["methods"]] == ["FedAvg", "FedPer"]
    assert [line["seeds"] for line in document["methods"]] == [2, 2]
    folder = Path(document["folder"])
    assert {path.name for path in folder.iterdir()} >= {"table.md", "curves.png", "clients.png"}
    seeds = [json.loads((run / "manifest.json").read_text())["seed"] for run in folders(folder)]
    assert sorted(seeds) == [0, 0, 1, 1]


def test_comparison_holds_out_validation_data_for_every_method_and_records_it(idiolect, small, tmp_path):
    words = ("--methods", f"fedavg,{PERSFL},superfed_mm", "--set", "valid=0", "--json")
    answer = idiolect("compare", *small, *words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    runs = folders(Path(json.loads(answer.out)["folder"]))
    manifests = [json.loads((run / "manifest.json").read_text()) for run in runs]
    assert len(manifests) == 3
    assert all(manifest["spec"]["valid"] == pytest.approx(0.1 * 0.8) for manifest in manifests)
    assert len({json.dumps(manifest["class_counts"]) for manifest in manifests}) == 1


def test_comparison_of_methods_that_choose_nothing_holds_nothing_out(idiolect, small, tmp_path):
    words = ("--methods", "fedavg,fedper", "--set", "valid=0", "--json")
    answer = idiolect("compare", *small, *words, "--out", tmp_path / "out")
    runs = folders(Path(json.loads(answer.out)["folder"]))
    specs = [json.loads((run / "manifest.json").read_text())["spec"] for run in runs]
    assert [spec["valid"] for spec in specs] == [0, 0]


def test_comparison_of_two_settings_of_a_method_gives_two_lines(idiolect, small, tmp_path):
    words = ("--methods", "map(alpha=0.5),map(alpha=0.9)", "--json")
    answer = idiolect("compare", *small, *words, "--out", tmp_path / "out")
    names = [line["method"] for line in json.loads(answer.out)["methods"]]
    assert len(set(names)) == 2 and all(name.startswith("MAP") for name in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fedavg,fedper", ["fedavg", "fedper"]),
        (f"local, {PERSFL} ,map(alpha=0.5, rule=freq)", ["local", PERSFL, "map(alpha=0.5, rule=freq)"]),
        ("fedavg + proximal(weight=1),local", ["fedavg + proximal(weight=1)", "local"]),
        (",fedavg,,", ["", "fedavg", "", ""]),
        ("", [""]),
    ],
)
def test_methods_are_split_at_commas_outside_brackets(text, expected):
    assert split_outside_brackets(text, ",") == expected


# ---- listings


def test_methods_lists_every_method(idiolect):
    answer = idiolect("methods")
    assert answer.code == 0 and answer.err == ""
    for name in methods.names():
        assert f" {name} " in answer.out


def test_methods_in_json_is_one_document_with_options_and_defaults(idiolect):
    listed = json.loads(idiolect("methods", "--json").out)
    assert [row["name"] for row in listed] == methods.names()
    by_name = {row["name"]: row for row in listed}
    assert by_name["map"]["options"]["alpha"] == 0.9
    assert by_name["map"]["presets"] == ["paper", "official", "complete", "complete_official"]


def test_method_page_names_label_options_presets_and_parts(idiolect):
    page = idiolect("methods", "map").out
    assert page.startswith("MAP\n")
    for piece in ("alpha = 0.9", "paper, official, complete", "restricted_softmax", "Headline predictor:"):
        assert piece in page


@pytest.mark.parametrize("name", methods.names())
def test_method_page_is_found_under_every_name(name, idiolect):
    assert methods.label(name) in idiolect("methods", name).out


def test_datasets_says_what_is_present_and_where_the_others_are_looked_for(idiolect, mnist):
    listed = json.loads(idiolect("datasets", "--json", "--data-dir", mnist.parent).out)
    rows = {row["name"]: row for row in listed}
    assert tuple(rows) == data.names()
    assert rows["fashion-mnist-12k"]["status"] == "present"
    assert rows["mnist"]["status"] == "present" and rows["mnist"]["where"] == str(mnist)
    assert rows["cifar10"]["status"] == "missing"


def test_datasets_prints_a_table_of_all(idiolect):
    answer = idiolect("datasets")
    assert answer.code == 0 and answer.err == ""
    assert all(name in answer.out for name in data.names())


# ---- help and progress


def test_help_of_the_module_lists_the_commands(command):
    answer = command("--help")
    assert answer.code == 0 and answer.err == ""
    assert all(word in answer.out for word in ("run", "compare", "methods", "datasets"))


@pytest.mark.parametrize("words", [["run"], ["compare"], ["methods"], ["datasets"], ["datasets", "get"]])
def test_help_of_every_command_is_printed(words, idiolect):
    answer = idiolect(*words, "--help")
    assert answer.code == 0
    assert "Usage: " in answer.out and " ".join(words) in answer.out


def test_progress_is_silent_where_standard_error_is_no_terminal(idiolect, small, tmp_path):
    answer = idiolect("run", "--method", "fedavg", *small, "--out", tmp_path / "out")
    assert answer.code == 0
    assert answer.err == ""
    assert "rounds/s" not in answer.out and "\x1b" not in answer.out


def test_progress_bar_is_shown_on_a_terminal_and_not_on_standard_output(small, tmp_path):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "idiolect", "run", "--method", "fedavg", *small, "--json"]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    words += ["--out", str(tmp_path / "out")]
    with child_process(words, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += (piece := os.read(ours, 4096))
            except OSError:
                break
            if not piece:
                break
        assert process.stdout is not None
        printed = process.stdout.read()
        assert process.wait(60) == 0
    os.close(ours)
    text = shown.decode()
    assert "engine loop on cpu" in text
    assert "FedAvg" in text and "2/2" in text and "rounds/s" in text
    assert json.loads(printed)["methods"][0]["method"] == "FedAvg"


def test_comparison_with_a_method_that_diverges_goes_on_where_that_is_asked(idiolect, tmp_path):
    words = ("compare", "--methods", "fedavg,fedavg_lu(lr_scale=1e30)", "--quick", "--rounds", "1")
    asked = (*words, "--clients", "4", "--engine", "loop", "--device", "cpu", "--out", tmp_path)
    answer = idiolect(*asked)
    assert answer.code == 2 and "FedAvg-LU: " in answer.err and "not finite after round 1" in answer.err
    answer = idiolect(*asked, "--resume", "--on-divergence", "record", "--json")
    assert answer.code == 0
    methods = {one["method"]: one for one in json.loads(answer.out)["methods"]}
    assert methods["FedAvg-LU"]["diverged"].startswith("diverged (round 1, client ")
    assert methods["FedAvg"]["personal_accuracy"] > 0 and methods["FedAvg-LU"]["personal_accuracy"] is None
