"""A run whose numbers are no longer finite: it stops, or is recorded and the others go on; tables say where."""

from __future__ import annotations

from dataclasses import replace

import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.experiments import sweep
from idiolect.records import Divergence, divergence_of
from idiolect.reports import gather, summarise, write_page, write_report

LOOP = {"engine": "loop", "device": "cpu", "quiet": True}
# All rounds of this method are sound and evaluated; what every client trains after the last one is not.
BREAKS_AT_END = "fedavg_lu(epochs=5, lr_scale=1e30)"
BREAKS_AT_ONCE = "map(private_lr_scale=1e30)"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison in which one of three methods diverges with both seeds; its folder and runs."""
    experiment = idiolect.Experiment(
        dataset="synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=4,
        model="mlpnet(hidden=8)",
        rounds=2,
        participation_rate=1.0,
        local_epochs=6,
        batch_size=8,
        evaluate_every=1,
    )
    out = tmp_path_factory.mktemp("compared")
    done = idiolect.compare(
        ["fedavg", BREAKS_AT_END, "fedper"],
        seeds=[0, 1],
        experiment=experiment,
        out=out,
        on_divergence="record",
        **LOOP,
    )
    return experiment, out, done


def test_comparison_goes_on_and_its_table_says_where_a_method_diverged(compared):
    _, _, done = compared
    assert [divergence_of(run.manifest) is not None for run in done.runs] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    table = (done.folder / "table.md").read_text()
    (line,) = [line for line in table.splitlines() if line.startswith("| FedAvg-LU")]
    assert "diverged (2 of 2 seeds; seed 0: round 2, client 0; seed 1: round 2, client 0)" in line
    assert "- FedAvg-LU diverged (2 of 2 seeds" in table
    frame = summarise(done.runs).set_index("method")
    assert frame.loc["FedAvg-LU", ["global_accuracy", "personal_accuracy", "worst_tenth"]].isna().all()
    assert frame.loc[["FedAvg", "FedPer"], "personal_accuracy"].notna().all()
    alone = summarise([run for run in done.runs if run.manifest["label"] != "FedAvg-LU"]).set_index("method")
    same = ["personal_accuracy", "groups", "sd_clients", "worst_tenth", "bytes_up"]
    both = ["FedAvg", "FedPer"]
    assert frame.loc[both, same].equals(alone.loc[both, same])
    for name in ("curves.csv", "clients.csv", "pairs.csv", "intervals.csv"):
        text = (done.folder / name).read_text()
        assert "FedPer" in text and "FedAvg-LU" not in text, name


def test_manifest_says_round_and_client_and_the_run_has_no_models(compared):
    _, _, done = compared
    run = done.runs[2]
    assert run.manifest["diverged"] == {
        "round": 2,
        "client": 0,
        "what": run.manifest["diverged"]["what"],
        "moment": "end",
    }
    assert run.manifest["diverged"]["what"].startswith("private/")
    assert not list(run.folder.glob("checkpoint*"))
    with pytest.raises(UserError, match="diverged in round 2 and has no models"):
        run.model(client=0)
    with pytest.raises(UserError, match=r"diverged \(round 2, client 0\) and has no final values"):
        idiolect.statistics.client_scores(run)


def test_page_of_a_folder_names_the_method_that_diverged(compared, tmp_path):
    _, out, _ = compared
    heard: list[str] = []
    found = gather([out], heard.append)
    assert len(found) == 6 and not heard
    page = write_page(found, tmp_path / "report.html").read_text()
    assert "FedAvg-LU diverged (2 of 2 seeds; seed 0: round 2, client 0" in page
    lost = [run for run in found if divergence_of(run.manifest)]
    with pytest.raises(UserError, match="no run to draw: FedAvg-LU diverged"):
        write_page(lost, tmp_path / "lost.html")
    (table, csv) = write_report(lost, tmp_path / "lost")
    assert "diverged (2 of 2 seeds" in table.read_text() and "round 2, client 0" in csv.read_text()


def test_stop_names_method_and_seed_and_takes_what_is_recorded_for_what_it_is(compared):
    """The runs of the comparison are there, the diverged ones among them: they are refused without training."""
    experiment, out, done = compared
    methods = ["fedavg", BREAKS_AT_END, "fedper"]
    with pytest.raises(UserError, match=r"^FedAvg-LU, seed 0: client 0 got parameters that are not finite"):
        idiolect.compare(methods, seeds=[0, 1], experiment=experiment, out=out, **LOOP)
    again = idiolect.compare(
        methods, seeds=[0, 1], experiment=experiment, out=out, on_divergence="record", **LOOP
    )
    assert [run.manifest["date"] for run in again.runs] == [run.manifest["date"] for run in done.runs]


def test_method_of_which_one_seed_diverged_has_no_mean_over_the_others(compared):
    """Seeds that ended are no fair sample of all seeds."""
    _, _, done = compared
    manifest = dict(done.runs[1].manifest)
    manifest["diverged"] = Divergence(1, None, "params", "merge")._asdict()
    runs = [done.runs[0], done.runs[1]._replace(manifest=manifest), *done.runs[4:]]
    frame = summarise(runs).set_index("method")
    assert frame.loc["FedAvg", "diverged"] == "diverged (1 of 2 seeds; seed 1: round 1, server)"
    assert frame.loc["FedAvg", ["personal_accuracy", "personal_low"]].isna().all()
    assert frame.loc["FedPer", "diverged"] == "" and frame.loc["FedPer", "personal_accuracy"] > 0


def _facts(run: idiolect.FinishedRun) -> tuple[Divergence | None, str]:
    return divergence_of(run.manifest), repr(run.rows.to_dict("list"))


def test_run_that_was_stopped_is_recorded_when_it_is_resumed(tiny, tmp_path):
    asked = replace(tiny, method=BREAKS_AT_END, local_epochs=6, evaluate_every=1)
    options = {"checkpoint_every": 1, **LOOP}
    with pytest.raises(
        UserError, match=r"^FedAvg-LU: client 0 got parameters that are not finite after round 2"
    ):
        idiolect.run(asked, out=tmp_path / "stopped", **options)
    (partial,) = (tmp_path / "stopped").iterdir()
    assert partial.suffix == ".partial" and list(partial.glob("checkpoint-*"))
    resumed = idiolect.run(asked, out=tmp_path / "stopped", resume=True, on_divergence="record", **options)
    whole = idiolect.run(asked, out=tmp_path / "whole", on_divergence="record", **options)
    assert _facts(resumed) == _facts(whole)
    assert _facts(whole)[0] is not None and len(whole.rows)


def test_run_that_diverges_in_its_first_round_is_recorded_without_rows(tiny, tmp_path):
    done = idiolect.run(
        replace(tiny, method=BREAKS_AT_ONCE, local_epochs=6), out=tmp_path, on_divergence="record", **LOOP
    )
    found = divergence_of(done.manifest)
    assert found is not None and (found.round, found.moment) == (1, "training") and not len(done.rows)
    write_report([done], tmp_path / "report")
    assert "diverged (round 1, client 0)" in (tmp_path / "report/table.md").read_text()


def test_sweep_refuses_a_trial_that_diverged_though_it_is_recorded(tiny, tmp_path):
    """Its last evaluation before the divergence is no value of the setting."""
    done = sweep(
        ["fedavg_lu(epochs=5)"],
        vary=["fedavg_lu.lr_scale=1.0,1e30"],
        experiment=replace(tiny, local_epochs=6, evaluate_every=1),
        out=tmp_path,
        on_divergence="record",
        **LOOP,
    )
    assert not done.tried[0].failed and "diverged (round 2, client 0)" in done.tried[1].failed


@pytest.mark.slow
def test_jobs_record_what_one_process_records(tiny, tmp_path):
    methods = ["fedavg", BREAKS_AT_END, BREAKS_AT_ONCE]
    found = []
    for jobs in (1, 2):
        experiment = replace(tiny, local_epochs=6)
        options = {"out": tmp_path / str(jobs), "jobs": jobs, "on_divergence": "record", **LOOP}
        done = idiolect.compare(methods, experiment=experiment, **options)
        found.append([_facts(run) for run in done.runs])
    assert found[0] == found[1] and [each is not None for each, _ in found[0]] == [False, True, True]
    with pytest.raises(UserError, match=r"^FedAvg-LU: client 0 got parameters that are not finite"):
        idiolect.compare(methods[:2], experiment=experiment, out=tmp_path / "stop", jobs=2, **LOOP)
