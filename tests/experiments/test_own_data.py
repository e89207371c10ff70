"""Data of one's own: the same federation in every form gives the same run, and settings follow from the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import idiolect
from idiolect.errors import UserError
from idiolect.federation import to_dataset

PEOPLE = ("ann", "bo", "cy")
COLUMNS = ["age", "pulse", "height"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Rows of three people, in the order of their names, which is the order of every form."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(60, 3)).astype(np.float32), columns=COLUMNS)
    rows["person"] = np.repeat(PEOPLE, 20)
    rows["ill"] = np.where(rows["age"] + rows["pulse"] > 0, "yes", "no")
    return rows


def as_tuple(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    return {"data": (frame[COLUMNS].to_numpy(), frame["ill"].tolist(), frame["person"].tolist())}


def as_tensors(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    y = torch.tensor(frame["ill"] == "yes").long()
    return {
        "data": {"x": torch.tensor(frame[COLUMNS].to_numpy()), "y": y, "client": frame["person"].tolist()}
    }


def as_list_of_clients(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    return {"data": [(rows[COLUMNS].to_numpy(), rows["ill"].tolist()) for _, rows in frame.groupby("person")]}


def as_named_clients(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    return {"data": {who: (rows[COLUMNS].to_numpy(), rows["ill"]) for who, rows in frame.groupby("person")}}


def as_frame(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    return {"data": frame, "client_column": "person", "label_column": "ill"}


def as_torch_dataset(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    x, y = torch.tensor(frame[COLUMNS].to_numpy()), torch.tensor(frame["ill"] == "yes").long()
    return {"data": TensorDataset(x, y), "client_of": lambda row: frame["person"][row]}


def as_own_torch_dataset(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(frame)

        def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
            return torch.tensor(frame[COLUMNS].to_numpy()[row]), int(frame["ill"][row] == "yes")

    return {"data": Rows(), "client_of": frame["person"].tolist()}


def as_npz(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    arrays = {
        "x": frame[COLUMNS].to_numpy(),
        "y": frame["ill"].to_numpy(str),
        "client": frame["person"].to_numpy(str),
    }
    np.savez(folder / "rows.npz", **arrays)
    return {"data": folder / "rows.npz"}


def as_csv(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    frame.to_csv(folder / "rows.csv", index=False)
    return {"data": str(folder / "rows.csv"), "client_column": "person", "label_column": "ill"}


def as_parquet(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    frame.to_parquet(folder / "rows.parquet")
    return {"data": folder / "rows.parquet", "client_column": "person", "label_column": "ill"}


def as_folder_of_files(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    for who, rows in frame.groupby("person"):
        rows.drop(columns="person").to_csv(folder / f"{who}.csv", index=False)
    return {"data": folder, "label_column": "ill"}


def as_registered(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    idiolect.register_dataset("patients", frame, client_column="person", label_column="ill")
    return {"dataset": "patients"}


FORMS: list[Callable[[pd.DataFrame, Path], dict[str, Any]]] = [
    as_tensors,
    as_list_of_clients,
    as_named_clients,
    as_frame,
    as_torch_dataset,
    as_own_torch_dataset,
    as_npz,
    as_csv,
    as_parquet,
    as_folder_of_files,
    as_registered,
]


def numbers(given: dict[str, Any], out: Path) -> tuple[np.ndarray, dict[str, Any]]:
    done = idiolect.run("fedper", **given, rounds=2, evaluate_every=1, engine="loop", out=out)
    keys = ["round", "client", "split", "predictor", "moment", "population", "metric"]
    return done.rows.sort_values(keys)["value"].to_numpy(), done.manifest


@pytest.fixture(scope="module")
def expected(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    folder = tmp_path_factory.mktemp("tuple")
    return numbers(as_tuple(frame, folder), folder / "runs")[0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_of_the_same_federation_gives_the_same_numbers(
    form: Callable[..., Any], frame: pd.DataFrame, expected: np.ndarray, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    found, manifest = numbers(form(frame, rows), tmp_path / "runs")
    np.testing.assert_array_equal(found, expected)
    assert manifest["client_names"] == (["0", "1", "2"] if form is as_list_of_clients else list(PEOPLE))


def test_settings_that_are_left_open_follow_from_the_data(frame: pd.DataFrame, tmp_path: Path) -> None:
    manifest = numbers(as_frame(frame, tmp_path), tmp_path)[1]
    spec = manifest["spec"]
    assert (spec["partition"], spec["clients"], spec["participation_rate"]) == ("natural", 0, 1.0)
    assert spec["model"] == "mlpnet(hidden=64, head_bias=True)"
    assert manifest["feature_names"] == COLUMNS and manifest["class_names"] == ["no", "yes"]
    assert len(manifest["preprocessing"]["mean"]) == 3


def test_other_data_under_the_same_settings_are_another_run(frame: pd.DataFrame, tmp_path: Path) -> None:
    first = numbers(as_frame(frame, tmp_path), tmp_path)[1]
    changed = frame.assign(ill=np.where(frame["age"] > 0, "yes", "no"))
    assert numbers(as_frame(changed, tmp_path), tmp_path)[1]["name"] != first["name"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": "mnist"}, "data and dataset both say what to train on"),
        ({"partition": "iid"}, "names the client of every row, and partition iid would mix their rows"),
        ({"repartition": True}, "repartition needs a partition"),
        ({"client_of": [0] * 60}, "client_of does not apply to data given as a frame"),
        ({"task": "regresion"}, "task must be one of classification, .*; got 'regresion'"),
        ({"method": "fedavg", "fill": "median"}, "fill must be none, mean, zero or a number"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(
    changes: dict[str, Any], sentence: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        idiolect.run(**{"rounds": 1, "out": tmp_path / "runs", **as_frame(frame, tmp_path), **changes})
    assert not (tmp_path / "runs").exists()


def test_tensors_of_any_kind_are_taken() -> None:
    x, y = torch.tensor([[0.5, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
    for given in (x.bfloat16(), x.to_sparse(), x.double().requires_grad_()):
        assert to_dataset((given, y)).train_x.tolist() == x.tolist()


def test_several_inputs_are_named_in_a_mapping_of_arrays() -> None:
    data = {"x": {"picture": np.zeros((2, 3, 3)), "age": [30, 40]}, "y": [0, 1], "client": ["a", "b"]}
    assert to_dataset(data).inputs == (("picture", (3, 3)), ("age", (1,)))


def test_missing_values_are_filled_with_the_number_zero() -> None:
    assert to_dataset(([[np.nan], [1.0]], [0, 1]), fill=0).fill == "0"


def test_tokens_in_a_file_have_a_vocabulary(tmp_path: Path) -> None:
    np.savez(tmp_path / "tokens.npz", x=[[0, 1], [2, 3]], y=[2, 4])
    found = to_dataset(tmp_path / "tokens.npz", vocabulary=5, task="next_token")
    assert found.vocabulary == 5 and found.train_y.tolist() == [2, 4]


def test_options_of_rows_do_not_apply_to_a_dataset() -> None:
    dataset = to_dataset(([[0.0], [1.0]], [0, 1]))
    with pytest.raises(UserError, match="split_of does not apply to data given as a Dataset"):
        to_dataset(dataset, split_of=["train", "test"])


def test_a_client_that_cannot_be_served_is_named_as_the_data_name_it(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    split = np.where(frame["person"] == "bo", ["train", "test"] * 30, ["train", "valid", "test"] * 20)
    given = as_frame(frame.assign(split=split), tmp_path)
    with pytest.raises(UserError, match="persfl chooses on validation data and client 'bo' holds none"):
        idiolect.run("persfl", **given, rounds=1, engine="loop", out=tmp_path / "runs")


def test_columns_without_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="label_column describes data of your own; give data too"):
        idiolect.run("fedavg", label_column="ill", out=tmp_path)


def test_rows_of_named_clients_are_shared_out_anew_when_asked(frame: pd.DataFrame, tmp_path: Path) -> None:
    given = {**as_frame(frame, tmp_path), "partition": "iid", "clients": 4, "repartition": True}
    assert (
        len(idiolect.run("fedavg", **given, rounds=1, engine="loop", out=tmp_path).manifest["class_counts"])
        == 4
    )


def test_data_without_clients_are_shared_out(frame: pd.DataFrame, tmp_path: Path) -> None:
    pair = (frame[COLUMNS].to_numpy(), frame["ill"])
    done = idiolect.run(
        "fedavg", data=pair, partition="iid", clients=3, rounds=1, engine="loop", out=tmp_path
    )
    assert len(done.manifest["class_counts"]) == 3 and done.manifest["client_names"] == []


def test_data_that_say_nothing_of_clients_are_not_shared_out_unasked(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    pair = (frame[COLUMNS].to_numpy(), frame["ill"])
    with pytest.raises(UserError, match="does not say which client a row belongs to; name the column"):
        idiolect.run("fedavg", data=pair, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_labels_that_are_written_otherwise_are_another_run(frame: pd.DataFrame, tmp_path: Path) -> None:
    x, truth, who = frame[COLUMNS].to_numpy(), (frame["ill"] == "yes").to_numpy(), frame["person"]
    names = {
        numbers({"data": (x, y, who)}, tmp_path)[1]["name"] for y in (truth, truth.astype(int), frame["ill"])
    }
    assert len(names) == 3


def test_a_small_client_and_a_broken_client_function_are_named(frame: pd.DataFrame, tmp_path: Path) -> None:
    small = frame[:41]
    with pytest.raises(UserError, match=r"client 'cy' holds 1 samples, .* leave the client out"):
        idiolect.run(**as_frame(small, tmp_path), out=tmp_path)
    pairs = as_torch_dataset(frame, tmp_path)["data"]
    with pytest.raises(UserError, match="fails on row 3: IndexError"):
        idiolect.run(data=pairs, client_of=lambda row: PEOPLE[row], out=tmp_path)


def test_a_name_stands_for_one_dataset(frame: pd.DataFrame) -> None:
    idiolect.register_dataset("patients", frame, client_column="person", label_column="ill")
    idiolect.register_dataset("patients", frame, client_column="person", label_column="ill")
    with pytest.raises(UserError, match="patients is a dataset already, of other data"):
        idiolect.register_dataset("patients", frame[:40], client_column="person", label_column="ill")
    with pytest.raises(UserError, match="mnist is a dataset already"):
        idiolect.register_dataset("mnist", frame, client_column="person", label_column="ill")
