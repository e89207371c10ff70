"""Exported models predict in a process that has PyTorch alone, exactly what the run recorded."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import idiolect
from idiolect.data.catalogue import REGISTERED
from idiolect.errors import UserError
from idiolect.experiments import Experiment, FinishedRun
from idiolect.experiments.finished import exported_models
from idiolect.experiments.finished.recorded_setting import HERE
from idiolect.experiments.setting import prepare, read_dataset
from idiolect.methods import names
from idiolect.records import Run, write_atomically
from idiolect.records.manifest import checksum_of

PREDICTS = """
import json, sys, torch
wanted, found = json.loads(sys.argv[1]), {}
for rows, program in wanted.items():
    x, y = torch.load(rows)
    model = torch.export.load(program).module()
    for size in (1, 7, len(y)):
        logits = torch.cat([model(some) for some in torch.split(x, size)])
        found.setdefault(rows, []).append((logits.argmax(1) == y).double().mean().item())
assert not any(name.startswith("idiolect") for name in sys.modules)
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _quiet_tracing() -> Iterator[None]:
    """Keeps PyTorch's trace of an export, thousands of records, out of pytest's log."""
    logger = logging.getLogger("torch.__trace")
    before, logger.propagate = logger.propagate, False
    yield
    logger.propagate = before


@pytest.fixture
def images(tiny: Experiment) -> Iterator[Experiment]:
    """Three clients with a few raw images of the embedded data, which a model scales and normalises."""
    whole = read_dataset("fashion-mnist-12k")
    few = replace(
        whole,
        train_x=whole.train_x[:90],
        train_y=whole.train_y[:90],
        test_x=whole.test_x[:20],
        test_y=whole.test_y[:20],
        train_ids=np.repeat(["site a", "site b", "site c"], 30),
    )
    idiolect.register_dataset("few_images", few)
    scene = replace(tiny, dataset="few_images", partition="natural", clients=0)
    yield replace(scene, rounds=1, learning_rate=0.1, public=8)
    REGISTERED.pop("few_images", None)


def raw_test_rows(run: FinishedRun, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as they are in the dataset, before any preprocessing, and their labels."""
    experiment = Experiment(**run.manifest["spec"])
    rows = prepare(experiment, HERE).federation.clients[client].test
    dataset = read_dataset(experiment.dataset)
    return torch.from_numpy(dataset.train_x[rows]), torch.from_numpy(dataset.train_y[rows])


def recorded_accuracy(run: Run, client: int, predictor: str) -> float:
    """A client's last accuracy on its test rows."""
    wanted = {
        "client": client,
        "predictor": predictor,
        "split": "test",
        "population": "all",
        "metric": "accuracy",
    }
    rows = run.rows
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return float(rows["value"].iloc[-1])


def check_programs(methods: tuple[str, ...], experiment: Experiment, folder: Path) -> None:
    """Runs methods, exports a client of each and compares what the programs predict elsewhere with the record."""
    programs, recorded = {}, {}
    for place, method in enumerate(methods):
        run = idiolect.run(replace(experiment, method=method), out=folder, engine="loop")
        client = place % len(run.clients)
        (exported,) = run.export(client, out=folder / f"models-{place}", formats=["program"])
        assert not exported.notes
        rows = folder / f"rows-{place}.pt"
        torch.save(raw_test_rows(run, client), rows)
        programs[str(rows)] = str(exported.files[0])
        recorded[str(rows)] = [recorded_accuracy(run, client, run.manifest["headline"])] * 3
    call = [sys.executable, "-I", "-c", PREDICTS, json.dumps(programs)]
    found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    assert found == recorded


def test_programs_predict_with_torch_alone_what_the_run_recorded(images: Experiment, tmp_path: Path) -> None:
    check_programs(("fedrep", "flda"), images, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlpnet(hidden=8)", "lenet_bn"])
def test_programs_of_all_methods_predict_what_the_run_recorded(
    images: Experiment, tmp_path: Path, model: str
) -> None:
    check_programs(tuple(names()), replace(images, model=model), tmp_path)


def test_statistics_of_a_mixture_come_from_the_data_of_the_run(images: Experiment, tmp_path: Path) -> None:
    run = idiolect.run(replace(images, method="apfl", model="lenet_bn"), out=tmp_path, engine="loop")
    x, y = raw_test_rows(run, 1)
    assert run.folder is not None
    assert (run.predict(x, client=1) == y.numpy()).mean() == recorded_accuracy(run, 1, "mix(alpha)")
    few = REGISTERED.pop("few_images")
    read_dataset("fashion-mnist-12k")  # only the last dataset is kept in memory
    with pytest.raises(UserError, match="recomputes normalisation statistics"):
        idiolect.open(run.folder).model(1)
    with pytest.raises(UserError, match="not those that"):
        idiolect.open(run.folder, data=replace(few, train_y=few.train_y[::-1].copy())).model(1)
    again = idiolect.open(run.folder, data=few)
    assert torch.equal(again.model(1)(x), run.model(1)(x))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run whose predictor is made of two networks and a gate."""
    return idiolect.run(
        "flda",
        dataset="synthetic(n_clients=3, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=3,
        model="mlpnet(hidden=8)",
        rounds=1,
        participation_rate=1.0,
        local_epochs=1,
        engine="loop",
        out=tmp_path_factory.mktemp("runs"),
    )


ROWS = torch.randn(5, 1, 1, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("predictor", ["composed", "global"])
def test_weights_load_as_the_same_model(finished: FinishedRun, tmp_path: Path, predictor: str) -> None:
    (exported,) = finished.export(1, predictor=predictor, out=tmp_path, formats=["weights"])
    assert [path.name for path in exported.files] == [
        f"client-1-{predictor}{end}" for end in (".safetensors", ".json")
    ]
    for path in exported.files:
        assert torch.equal(idiolect.load_model(path)(ROWS), finished.model(1, predictor)(ROWS))


def test_the_page_of_a_model_says_what_it_is(finished: FinishedRun, tmp_path: Path) -> None:
    (exported,) = finished.export(shared=True, out=tmp_path)
    page = json.loads((tmp_path / "global.json").read_text())
    assert page["input"] == {"shape": ["batch", 1, 1, 8], "dtype": "float32"}
    assert page["provenance"]["run"] == finished.name and page["client"] is None
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in exported.files[:-1]}
    assert page["files"] == digests and set(digests) == {"global.pt2", "global.safetensors"}
    tensors = set(safetensors_names(tmp_path / "global.safetensors"))
    assert tensors == {name for name, _ in finished.setting.forms[0].broadcasts[0]["params"].items()}


def safetensors_names(path: Path) -> list[str]:
    with safe_open(path, framework="pt") as file:
        return list(file.keys())


def test_the_same_model_can_be_exported_again_and_another_cannot(
    finished: FinishedRun, tmp_path: Path
) -> None:
    finished.export(0, out=tmp_path, formats=["weights"])
    before = (tmp_path / "client-0.safetensors").stat().st_mtime_ns
    (again,) = finished.export(0, out=tmp_path, formats=["program", "weights"])
    assert (tmp_path / "client-0.safetensors").stat().st_mtime_ns == before and len(again.files) == 3
    page = tmp_path / "client-0.json"
    page.write_text(page.read_text().replace('"seed": 0', '"seed": 1'))
    for load in (lambda: finished.export(0, out=tmp_path), lambda: idiolect.load_model(page)):
        with pytest.raises(UserError, match="what it says does not match its checksum"):
            load()
    other = json.loads(page.read_text())
    page.write_text(json.dumps({**other, "checksum": checksum_of(other)}))
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="another model"):
        finished.export(0, out=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_files_that_are_no_model_are_not_replaced(finished: FinishedRun, tmp_path: Path) -> None:
    (tmp_path / "client-0.pt2").write_text("mine")
    with pytest.raises(UserError, match="another model"):
        finished.export(0, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["client-0.pt2"]


def test_damaged_weights_are_refused(finished: FinishedRun, tmp_path: Path) -> None:
    finished.export(0, out=tmp_path, formats=["weights"])
    path = tmp_path / "client-0.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match="damaged"):
        idiolect.load_model(path)


def test_a_model_that_is_no_program_keeps_its_weights(
    finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("the forward pass depends on values\nin many lines")

    monkeypatch.setattr(torch.export, "export", refuse)
    (exported,) = finished.export(0, out=tmp_path, formats=["program"])
    assert exported.notes == [
        "client 0 cannot be written as program (RuntimeError: the forward pass depends on values); its weights load "
        "with idiolect.load_model"
    ]
    assert torch.equal(idiolect.load_model(exported.files[0])(ROWS), finished.model(0)(ROWS))


def test_a_model_that_cannot_be_written_leaves_nothing(
    finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes | str) -> Path:
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")
        return write_atomically(path, content)

    monkeypatch.setattr(exported_models, "write_atomically", full)
    with pytest.raises(UserError, match="No space left on device"):
        finished.export(0, out=tmp_path, formats=["weights"])
    assert not list(tmp_path.iterdir())


def test_a_copy_of_a_model_has_tensors_of_its_own(finished: FinishedRun, tmp_path: Path) -> None:
    model = finished.model(0)
    expected, copy = model(ROWS), deepcopy(model)
    assert copy.double()(ROWS).dtype == torch.float64
    assert torch.equal(model(ROWS), expected) and model.inputs.mean.dtype == torch.float32
    torch.save(model, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(ROWS), expected)


def test_formats_are_checked_before_anything_is_written(finished: FinishedRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="format"):
        finished.export(0, out=tmp_path / "out", formats=["weights", "pickle"])
    with pytest.raises(UserError, match="there is no client 9"):
        finished.export(9, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="is no folder"):
        finished.export(0, out=tmp_path / "file")


def test_onnx_computes_the_same(finished: FinishedRun, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    (exported,) = finished.export(0, out=tmp_path, formats=["onnx"])
    assert not exported.notes
    evaluator = reference.ReferenceEvaluator(str(tmp_path / "client-0.onnx"))
    (found,) = evaluator.run(None, {"rows": ROWS.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), finished.model(0)(ROWS))
