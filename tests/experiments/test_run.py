"""A run and a comparison, from spec to folder."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch

from idiolect.errors import UserError
from idiolect.experiments import Experiment, Silent, compare, run
from idiolect.experiments.identity import hash_of
from idiolect.methods import shortest
from idiolect.records import finished_folder, run_name

LOOP = {"engine": "loop", "device": "cpu"}


class Ear(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard: list[tuple] = []

    def begin(self, label: str, rounds: int, done: int) -> None:
        self.heard.append(("begin", label, rounds, done))

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        self.heard.append(("advance", rounds_done))

    def end(self) -> None:
        self.heard.append(("end",))

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def test_manifest_says_what_the_run_was(tiny, tmp_path):
    asked = replace(tiny, method="fedper(count=1)")
    manifest = run(asked, out=tmp_path, **LOOP).manifest
    assert manifest["spec"] == asdict(asked) | {"under": []}
    assert manifest["spec_hash"] == hash_of(asked)
    assert manifest["name"] == run_name(
        shortest(asked.method), asked.dataset, asked.partition, hash_of(asked), asked.seed
    )
    assert manifest["status"] == "finished"
    assert manifest["label"] == "FedPer" and manifest["headline"] == "composed"
    assert manifest["parts"] == ["average", "private_layers"]
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["versions"]["python"] == platform.python_version()
    assert {"idiolect", "numpy"} <= set(manifest["versions"])
    cores = len(os.sched_getaffinity(0))
    assert manifest["hardware"].items() >= {"machine": platform.machine(), "cores": cores}.items()
    assert manifest["hardware"]["memory_bytes"] > 1e8 and "cpu" in manifest["hardware"]
    assert abs(datetime.now(UTC) - datetime.fromisoformat(manifest["date"])) < timedelta(hours=1)
    assert "commit" in manifest and manifest["scene"].startswith(asked.dataset)
    assert manifest["data_seed"] == asked.seed
    assert manifest["engine"]["engine"] == "loop"
    assert manifest["parameters"] == 8 * 8 + 8 + 8 * 8 + 8 + 8 * 3
    assert manifest["seconds"] > 0
    assert "ran as fedper(count=1)" in manifest["notes"]


@pytest.mark.parametrize(
    ("precision", "said"), [("tf32", ["a CPU computes tf32 in float32"]), ("float32", [])]
)
def test_note_says_that_a_cpu_has_no_tf32(tiny, tmp_path, precision, said):
    assert run(replace(tiny, precision=precision), out=tmp_path, **LOOP).manifest["notes"] == said


def test_manifest_counts_classes_of_the_training_rows(tiny, tmp_path):
    manifest = run(tiny, out=tmp_path, **LOOP).manifest
    counts = np.array(manifest["class_counts"])
    assert counts.shape == (4, 3)
    assert counts.sum(1).tolist() == [12, 12, 12, 12]  # 20 rows less 4 and 4


def test_manifest_lists_what_the_partition_dropped(tiny, tmp_path):
    manifest = run(tiny, clients=3, out=tmp_path, **LOOP).manifest
    assert manifest["dropped"]["dropped"] == {"id not drawn": 20}
    assert manifest["dropped"]["n_clients"] == 3
    assert run(tiny, out=tmp_path, **LOOP).manifest["dropped"]["dropped"] == {}


def test_clients_that_never_trained_are_counted_in_a_note(tiny, tmp_path):
    manifest = run(tiny, rounds=1, participation_rate=0.25, out=tmp_path, **LOOP).manifest
    assert manifest["never_selected"] == 3
    assert any(note.startswith("3 clients never trained;") for note in manifest["notes"])
    everyone = run(tiny, rounds=1, out=tmp_path, **LOOP).manifest
    assert everyone["never_selected"] == 0
    assert not any("never trained" in note for note in everyone["notes"])


def test_clients_that_are_selected_and_fail_never_trained(tiny, tmp_path):
    found = run(tiny, rounds=1, under=["dropout(rate=0.7)"], out=tmp_path, **LOOP)
    trained = found.costs.query("population == 'all' and rounds > 0")["client"].nunique()
    count = found.manifest["never_selected"]  # the key of older versions: clients that never trained
    assert 0 < count == 4 - trained
    (note,) = [note for note in found.manifest["notes"] if "private state is scored" in note]
    assert "never trained" in note and "selected" not in note


def test_choice_is_recorded_beside_its_oracle(tiny, tmp_path):
    found = run(replace(tiny, method="superfed_mm"), out=tmp_path, **LOOP)
    assert set(found.manifest["choices"]) == {"mix(validated)", "mix(oracle)"}
    assert {"mix(validated)", "mix(oracle)"} <= set(found.rows["predictor"])
    member = found.manifest["choices"]["mix(validated)"]
    valid = found.rows.query("split == 'valid' and metric == 'accuracy' and round == 2")
    valid = valid[valid["predictor"].str.startswith("mix(")]
    means = valid.groupby("predictor", sort=False)["value"].mean()
    assert means[member] == means.max()
    assert not set(valid["predictor"]) & set(found.manifest["choices"])


def test_rows_name_round_client_split_moment_and_population(tiny, tmp_path):
    found = run(tiny, evaluate_every=1, participation_rate=0.5, out=tmp_path, **LOOP)
    rows = found.rows.query("metric == 'accuracy'")
    everyone = rows.query("population == 'all' and split == 'test' and predictor == 'global'")
    assert everyone.groupby("round")["client"].apply(list).to_dict() == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    cohort = rows.query("population == 'selected'")
    assert set(cohort["moment"]) == {"before", "after"}
    assert cohort.query("moment == 'before'").groupby("round")["client"].nunique().to_dict() == {1: 2, 2: 2}
    assert rows.query("split == 'server'")["client"].tolist() == [-1, -1]
    assert rows["value"].between(0, 1).all()


def test_last_round_is_evaluated_whatever_the_interval(tiny, tmp_path):
    found = run(tiny, rounds=3, evaluate_every=2, out=tmp_path, **LOOP)
    assert sorted(set(found.rows["round"])) == [2, 3]
    assert found.rounds["round"].tolist() == [1, 2, 3]


def test_finished_run_is_read_and_said_so(tiny, tmp_path):
    first = run(tiny, out=tmp_path, **LOOP)
    ear = Ear()
    again = run(tiny, out=tmp_path, watcher=ear, **LOOP)
    assert again.manifest == first.manifest
    assert ear.said == [f"{first.manifest['name']} is finished already: read, not run again"]
    assert ear.heard == []


def test_watcher_hears_beginning_every_round_and_end(tiny, tmp_path):
    ear = Ear()
    run(tiny, out=tmp_path, watcher=ear, **LOOP)
    assert ear.heard[0] == ("begin", "FedAvg", 2, 0)
    assert [word for word in ear.heard if word[0] == "advance"][:2] == [("advance", 1), ("advance", 2)]
    assert ear.heard[-1] == ("end",)


def test_watcher_hears_the_end_of_a_run_that_fails(tiny, tmp_path):
    ear = Ear()
    with pytest.raises(UserError, match=r"client 0 .* not finite in round 1"):
        run(tiny, learning_rate=1e30, out=tmp_path, watcher=ear, **LOOP)
    assert ear.heard[-1] == ("end",)
    assert not list(tmp_path.iterdir())


def test_run_that_breaks_down_late_keeps_its_last_checkpoint(tiny, tmp_path):
    settings = {"warmup_rounds": 0, "lr_decay": 1e6, "learning_rate": 1e-6, "rounds": 12}
    with pytest.raises(UserError, match=r"not finite in round \d+"):
        run(tiny, out=tmp_path, checkpoint_every=1, **settings, **LOOP)
    (partial,) = tmp_path.iterdir()
    assert partial.name.endswith(".partial")
    assert list(partial.glob("checkpoint-*"))


def test_unknown_setting_is_refused_before_anything_is_written(tiny, tmp_path):
    with pytest.raises(UserError, match="no setting 'epochs'"):
        run(tiny, epochs=3, out=tmp_path / "out", **LOOP)
    assert not (tmp_path / "out").exists()


# ---- comparisons


def test_comparison_folder_is_named_by_what_it_compares(tiny, tmp_path):
    done = compare(["fedavg", "fedper"], seeds=[3, 4], experiment=tiny, out=tmp_path, **LOOP)
    assert done.folder.parent == tmp_path
    assert done.folder.name.startswith("compare-synthetic-") and done.folder.name.endswith("-s3")
    assert [(r.manifest["method"], r.manifest["seed"]) for r in done.runs] == [
        ("fedavg", 3),
        ("fedavg", 4),
        ("fedper", 3),
        ("fedper", 4),
    ]
    for each in done.runs:
        folder = finished_folder(done.folder, each.manifest["name"])
        assert json.loads((folder / "manifest.json").read_text())["status"] == "finished"
    other = compare(["fedavg"], seeds=[3, 4], experiment=tiny, out=tmp_path, **LOOP)
    assert other.folder != done.folder


def test_comparison_writes_tables_and_pictures(tiny, tmp_path):
    folder = compare(["fedavg", "fedper"], experiment=tiny, out=tmp_path, **LOOP).folder
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {
        "table.md",
        "table.csv",
        "curves.png",
        "curves.csv",
        "clients.png",
        "clients.csv",
        "intervals.csv",
        "pairs.csv",
        "scatter.png",
        "scatter.csv",
        "partition.png",
    }
    assert "FedPer" in (folder / "table.md").read_text()


def test_comparison_gives_all_methods_the_same_clients(tiny, tmp_path):
    done = compare(["fedavg", "local", "map"], experiment=tiny, out=tmp_path, **LOOP)
    assert len({json.dumps(r.manifest["class_counts"]) for r in done.runs}) == 1
    specs = [{**r.manifest["spec"], "method": ""} for r in done.runs]
    assert all(spec == specs[0] for spec in specs)


@pytest.mark.parametrize(("test", "valid"), [(0.2, 0.08), (0.5, 0.05)])
def test_comparison_holds_out_a_tenth_of_the_training_part_for_all(test, valid, tiny, tmp_path):
    base = replace(tiny, valid=0, test=test)
    done = compare(["fedavg", "superfed_mm"], experiment=base, out=tmp_path, **LOOP)
    assert [r.manifest["spec"]["valid"] for r in done.runs] == pytest.approx([valid, valid])


def test_mixing_coefficient_needs_no_validation_data_where_an_oracle_picks_it(tiny, tmp_path):
    found = run(replace(tiny, method="superfed_mm(phase_one=0)"), valid=0.0, out=tmp_path, **LOOP)
    assert found.manifest["headline"] == "mix(oracle)" and set(found.manifest["choices"]) == {"mix(oracle)"}
    assert any("mix(oracle) is picked on test data" in note for note in found.manifest["notes"])
    rows = found.rows.query("metric == 'accuracy' and round == 2 and population == 'all' and split == 'test'")
    means = rows.groupby("predictor")["value"].mean()
    family = [f"mix({a / 10:.1f})" for a in range(11)]
    assert set(means.index) == {"global", "mix(oracle)", *family}
    assert means["mix(oracle)"] == means[family].max()
    assert set(found.rows["split"]) == {"test", "server"}
    train = [sum(counts) for counts in found.manifest["class_counts"]]
    assert train == [16] * 4  # 80 % of 20, as the paper trains


def test_comparison_that_asks_for_no_validation_data_shows_the_oracle(tiny, tmp_path):
    done = compare(["fedavg", "superfed_mm"], experiment=tiny, valid=0.0, out=tmp_path, **LOOP)
    assert [r.manifest["spec"]["valid"] for r in done.runs] == [0.0, 0.0]
    assert [r.manifest["headline"] for r in done.runs] == ["global", "mix(oracle)"]
    assert "mix(oracle)" in (done.folder / "table.md").read_text()


def test_method_that_cannot_do_without_validation_data_overrules_the_comparison(tiny, tmp_path):
    persfl = "persfl(lambdas=(0.5,), temperatures=(1.0,), epochs=1)"
    done = compare([persfl, "superfed_mm"], experiment=tiny, valid=0.0, out=tmp_path, **LOOP)
    assert [r.manifest["spec"]["valid"] for r in done.runs] == pytest.approx([0.08, 0.08])
    assert done.runs[1].manifest["headline"] == "mix(validated)"


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_newcomers_without_validation_data_are_scored_by_the_oracle(engine, tiny, tmp_path):
    experiment = replace(tiny, method="superfed_mm", newcomers=1, participation_rate=0.5)
    found = run(experiment, valid=0.0, out=tmp_path, engine=engine, device="cpu")
    new = found.rows.query("population == 'new' and moment == 'after'")
    assert "mix(oracle)" in set(new["predictor"]) and "mix(validated)" not in set(new["predictor"])
    assert set(new["split"]) == {"test"} and new["value"].notna().all()


def test_comparison_with_validation_data_keeps_its_share(tiny, tmp_path):
    done = compare(["fedavg", "superfed_mm"], experiment=tiny, out=tmp_path, **LOOP)
    assert [r.manifest["spec"]["valid"] for r in done.runs] == [0.2, 0.2]


@pytest.mark.parametrize(("methods", "seeds"), [([], [0]), (["fedavg"], [])])
def test_comparison_of_nothing_is_refused(methods, seeds, tmp_path):
    with pytest.raises(UserError, match="at least one method and one seed"):
        compare(methods, seeds=seeds, out=tmp_path)


def test_comparison_with_one_bad_method_runs_none(tiny, tmp_path):
    with pytest.raises(UserError, match="the network has 3 units"):
        compare(["fedavg", "fedper(count=9)"], experiment=tiny, out=tmp_path / "out", **LOOP)
    assert not (tmp_path / "out").exists()


def test_experiment_is_frozen():
    with pytest.raises(AttributeError):
        Experiment().rounds = 3  # type: ignore[misc]


def test_validation_split_is_scored_on_request_and_changes_nothing_else(tiny, tmp_path):
    plain = run(tiny, out=tmp_path, **LOOP)
    scored = run(tiny, score_valid=True, out=tmp_path, **LOOP)
    assert set(plain.rows["split"]) == {"test", "server"}
    valid = scored.rows[scored.rows["split"] == "valid"]
    assert set(valid["client"]) == {0, 1, 2, 3} and set(valid["predictor"]) == {"global"}
    rest = scored.rows[scored.rows["split"] != "valid"]
    assert rest["value"].tolist() == plain.rows["value"].tolist()
    with pytest.raises(UserError, match="score_valid needs validation data; set valid above 0"):
        run(tiny, score_valid=True, valid=0.0, out=tmp_path, **LOOP)


def test_notes_are_kept_and_change_no_name(tiny, tmp_path):
    noted = run(tiny, notes=["seen on a Tuesday"], out=tmp_path / "a", **LOOP)
    plain = run(tiny, out=tmp_path / "b", **LOOP)
    assert "seen on a Tuesday" in noted.manifest["notes"]
    assert noted.manifest["name"] == plain.manifest["name"]


def test_comparison_may_give_every_method_its_own_experiment(tiny, tmp_path):
    def base(method: str) -> Experiment:
        return replace(tiny, method=method, rounds=1 if method == "fedavg" else 3)

    done = compare(["fedavg", "fedrs(alpha=0.5)"], experiment=base, out=tmp_path, **LOOP)
    assert [len(each.rounds) for each in done.runs] == [1, 3]
    assert [each.manifest["method"] for each in done.runs] == ["fedavg", "fedrs(alpha=0.5)"]
