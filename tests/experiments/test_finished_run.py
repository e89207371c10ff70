"""A finished run gives back the models that it trained, from its folder and without its data."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import idiolect
from idiolect.errors import UserError
from idiolect.evaluation import METRICS, score
from idiolect.experiments import Experiment, FinishedRun
from idiolect.experiments.finished.recorded_setting import HERE
from idiolect.experiments.setting import prepare, read_dataset
from idiolect.federation.store.row_generations import GenerationMark
from idiolect.methods import names
from idiolect.records.manifest import read_manifest, write_manifest
from idiolect.records.tensor_files import read_tensors, write_tensors

COMPOSED = ("fedavg_lu", "fedrep", "flda", "fedfu", "apfl", "fedphp(inference=ensemble)", "superfed_mm")
NORMALISED = "vgg8_bn"


def recorded_scores(run: FinishedRun, predictor: str, metric: str = "accuracy") -> list[float]:
    rows = run.rows
    wanted = {"predictor": predictor, "split": "test", "population": "all", "metric": metric}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return [float(value) for value in rows.groupby("client")["value"].last()]


def scores_of_models(run: FinishedRun, predictor: str | None = None) -> list[float]:
    """Accuracies of the models on the raw test rows of their clients."""
    experiment = Experiment(**run.manifest["spec"])
    federation, dataset = prepare(experiment, HERE).federation, read_dataset(experiment.dataset)
    found = []
    for name, model in run.models(predictor).items():
        rows = federation.clients[run.number_of(name)].test
        logits = model(torch.from_numpy(dataset.train_x[rows]))
        scored = score([{"model": logits}], [torch.from_numpy(dataset.train_y[rows])], METRICS)
        found.append(scored["model"]["accuracy"][0])
    return found


def check_models(experiment: Experiment, folder: Path) -> FinishedRun:
    idiolect.run(experiment, out=folder, engine="loop")
    run = idiolect.open(next(path for path in folder.iterdir() if path.name.endswith("-s0")))
    assert scores_of_models(run) == recorded_scores(run, run.manifest["headline"])
    return run


@pytest.mark.parametrize("method", COMPOSED)
def test_models_score_what_the_run_recorded(tiny: Experiment, tmp_path: Path, method: str) -> None:
    check_models(replace(tiny, method=method, rounds=1, learning_rate=0.1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", names())
def test_models_of_all_methods_score_what_the_run_recorded(
    tiny: Experiment, tmp_path: Path, method: str
) -> None:
    public = 8 if idiolect.method(method).needs_public else 0
    check_models(replace(tiny, method=method, public=public, learning_rate=0.1), tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of five clients, one of whom is a newcomer and one of whom never trained, kept on disk."""
    return idiolect.run(
        "fedper",
        dataset="synthetic(n_clients=5, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=5,
        newcomers=1,
        model="mlpnet(hidden=8)",
        rounds=2,
        checkpoint_every=1,
        participation_rate=0.25,
        local_epochs=1,
        engine="loop",
        store="disk",
        out=tmp_path_factory.mktemp("runs"),
    )


def copy_of(run: FinishedRun, folder: Path) -> Path:
    assert run.folder is not None
    return Path(shutil.copytree(run.folder, folder / run.folder.name))


def test_a_finished_run_needs_no_data(finished: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr("idiolect.experiments.setting.load", refuse)
    assert finished.folder is not None
    run = idiolect.open(finished.folder)
    assert run.predict(np.zeros((2, 8), np.float32), client="3").shape == (2,)
    assert list(run.models()) == list(run.clients) == ["1", "2", "3", "4"]  # 0 is the newcomer


def test_clients_that_never_trained_have_models_too(finished: FinishedRun) -> None:
    trained = set(finished.rows[finished.rows["population"] == "selected"]["client"])
    assert len(trained) < len(finished.clients)
    assert scores_of_models(finished) == recorded_scores(finished, "composed")


def test_reading_models_leaves_the_run_as_it_was(finished: FinishedRun, tmp_path: Path) -> None:
    folder = copy_of(finished, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    list(idiolect.open(folder).models().values())
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    assert after == before


def test_a_run_can_be_sent_to_another_process(finished: FinishedRun) -> None:
    finished.model(0)
    again = pickle.loads(pickle.dumps(finished))
    assert (again.folder, type(again)) == (finished.folder, FinishedRun)
    assert torch.equal(again.model(0)(torch.ones(1, 1, 1, 8)), finished.model(0)(torch.ones(1, 1, 1, 8)))


def test_probabilities_and_labels_agree(finished: FinishedRun) -> None:
    x = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    chances = finished.predict_proba(x, client=finished.clients[1])
    assert np.allclose(chances.sum(1), 1) and (chances.argmax(1) == finished.predict(x, client="2")).all()


def test_a_number_that_is_only_a_name_means_that_client(finished: FinishedRun) -> None:
    assert [finished.number_of(client) for client in (0, "1", "4", 4)] == [0, 0, 3, 3]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (("0", "-1"), np.array([0, -1], np.int64)),
        (("007", "1"), np.array(["007", "1"])),
        (("9" * 20, "1"), np.array(["9" * 20, "1"])),
        (("1", "no"), np.array(["1", "no"])),
        (("False", "True"), np.array([False, True])),
    ],
)
def test_labels_are_predicted_as_they_are_written(
    finished: FinishedRun, monkeypatch: pytest.MonkeyPatch, written: tuple[str, ...], expected: np.ndarray
) -> None:
    run = pickle.loads(pickle.dumps(finished))
    run.inputs = finished.inputs._replace(class_names=written)
    outputs = np.eye(2, dtype=np.float32)
    monkeypatch.setattr(FinishedRun, "_outputs", lambda *_: outputs)
    found = run.predict(outputs, client=0)
    assert found.dtype.kind == expected.dtype.kind and found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("client", "predictor", "sentence"),
    [
        (9, None, "there is no client 9; there are clients 0 to 3, named 1, 2, 3, 4"),
        (
            1,
            None,
            "client 1 is the number of one client and the name of another; give the name as text: '2' or '1'",
        ),
        (1.5, None, "client '1.5'"),
        (None, None, "client 'None'"),
        ("ann", None, "client 'ann'"),
        (0, "companion", "predictor 'companion'"),
    ],
)
def test_models_that_do_not_exist_are_refused(
    finished: FinishedRun, client: int | str, predictor: str | None, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        finished.model(client, predictor)


def test_predicting_without_a_client_is_one_sentence(finished: FinishedRun) -> None:
    for predict in (finished.predict, finished.predict_proba):
        with pytest.raises(UserError, match="say whose model predicts with client=NAME, one of 1, 2, 3, 4"):
            predict(np.zeros((2, 8), np.float32))


def test_models_show_their_clients(finished: FinishedRun) -> None:
    assert repr(finished.models()) == "<models of 4 clients: 1, 2, 3, 4>"


def test_a_method_with_private_layers_has_no_shared_model(finished: FinishedRun) -> None:
    with pytest.raises(UserError, match="FedPer has no shared model"):
        finished.global_model()


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros((2, 9), np.float32), r"rows of the shape \[1, 1, 8\] and these have \[9\]"),
        (np.full((2, 8), np.nan, np.float32), "missing"),
        (np.full((2, 8), np.inf, np.float32), "infinite"),
        (np.full((2, 8), "a"), "numbers"),
        (pd.DataFrame({"a": [1.0]}), "columns"),
        ("some/path.png", "some/path.png is a path or a word.*give arrays, not paths"),
        ([Path("a.png"), Path("b.png")], "give arrays, not paths"),
    ],
)
def test_rows_that_models_cannot_read_are_refused(finished: FinishedRun, x: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        finished.predict(x, client=0)


def test_folders_that_are_no_finished_run_are_refused(finished: FinishedRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        idiolect.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a run"):
        idiolect.open(tmp_path)
    folder = copy_of(finished, tmp_path)
    partial = folder.rename(folder.with_name(f"{folder.name}.partial"))
    with pytest.raises(UserError, match="unfinished"):
        idiolect.open(partial)


@pytest.mark.parametrize("file", ["checkpoint-2*.safetensors", "private/*/rows", "clients.parquet"])
def test_a_damaged_run_is_refused(finished: FinishedRun, tmp_path: Path, file: str) -> None:
    (path,) = copy_of(finished, tmp_path).glob(file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    trained = finished.rows[finished.rows["population"] == "selected"]["client"]
    with pytest.raises(UserError, match="damaged"):
        [idiolect.open(tmp_path / finished.name).model(finished.clients[client]) for client in trained]


def test_a_run_without_its_private_rows_is_refused_and_stays_so(
    finished: FinishedRun, tmp_path: Path
) -> None:
    folder = copy_of(finished, tmp_path)
    (rows,) = folder.glob("private/*/rows")
    rows.unlink()
    with pytest.raises(UserError, match="rows is missing"):
        idiolect.open(folder).model(0)
    assert not rows.exists()


def test_a_run_whose_checkpoints_shared_their_rows_is_read(finished: FinishedRun, tmp_path: Path) -> None:
    """Older versions kept ``private/rows`` and ``private/index`` for both checkpoints, and a mark of other fields."""
    folder = copy_of(finished, tmp_path)
    for name in ("rows", "index"):
        (path,) = folder.glob(f"private/*/{name}")
        path.rename(folder / "private" / name)
    (path,) = folder.glob("checkpoint-2*.safetensors")
    leaves, facts = read_tensors(path)
    mark = {name: leaves.pop(f"/private/{name}") for name in GenerationMark._fields}
    old = {"entries": mark["entries"], "digest": mark["digest"], "before": torch.tensor(0)}
    layout = json.loads(facts["layout"])
    layout["private"] = dict.fromkeys([*old, "row_bytes"])
    path.unlink()
    leaves |= {f"/private/{name}": value for name, value in old.items()}
    write_tensors(folder / "checkpoint-2.safetensors", leaves, {**facts, "layout": json.dumps(layout)})
    x = torch.randn(4, 1, 1, 8, generator=torch.Generator().manual_seed(1))
    for client in finished.clients:
        found, expected = (one.model(client)(x) for one in (idiolect.open(folder), finished))
        assert torch.equal(found, expected)


def test_a_chosen_predictor_is_the_one_that_the_run_chose(tiny: Experiment, tmp_path: Path) -> None:
    run = idiolect.run(replace(tiny, method="superfed_mm", learning_rate=0.1), out=tmp_path, engine="loop")
    x = torch.randn(4, 1, 1, 8, generator=torch.Generator().manual_seed(1))
    for member in ("mix(0.0)", "mix(0.7)"):
        run.manifest["choices"]["mix(validated)"] = member
        assert torch.equal(run.model(0)(x), run.model(0, member)(x))
    assert not torch.equal(run.model(0)(x), run.model(0, "mix(0.0)")(x))


def test_a_run_without_checkpoints_has_no_models(finished: FinishedRun, tmp_path: Path) -> None:
    folder = copy_of(finished, tmp_path)
    for path in folder.glob("checkpoint-*"):
        path.unlink()
    with pytest.raises(UserError, match="holds no checkpoint"):
        idiolect.open(folder).model(0)


def test_a_run_with_a_network_that_is_not_loaded_says_what_to_load(
    finished: FinishedRun, tmp_path: Path
) -> None:
    folder = copy_of(finished, tmp_path)
    said = json.dumps(read_manifest(folder)).replace("mlpnet(hidden=8)", "my_network(hidden=8)")
    write_manifest(folder, json.loads(said))
    with pytest.raises(UserError, match="my_network, which is not loaded; load the file"):
        idiolect.open(folder).model(0)


def test_a_regression_predicts_in_the_units_of_its_targets(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    own = {}
    for name in ("a", "b"):
        x = random.normal(5, 10, size=(20, 3)).astype(np.float32)
        own[name] = x, 1000 + 7 * x[:, :1]
        x[::4, 1] = np.nan
    how = {"task": "regression", "fill": "mean", "model": "mlpnet(hidden=8)", "rounds": 2, "engine": "loop"}
    run = idiolect.run("fedper", data=own, out=tmp_path, quiet=True, **how)
    setting = prepare(Experiment(**run.manifest["spec"]), HERE)
    dataset = read_dataset(run.manifest["dataset"])
    found = []
    for client in range(2):
        rows = setting.federation.clients[client].test
        misses = run.predict(dataset.train_x[rows], client) - dataset.train_y[rows, 0]
        found.append(float(np.sqrt((misses.astype(np.float64) ** 2).mean())))
    assert found == pytest.approx(recorded_scores(run, "composed", "rmse"), rel=1e-5)
    with pytest.raises(UserError, match="no probabilities"):
        run.predict_proba(own["a"][0], client="a")
