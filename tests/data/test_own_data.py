"""The same federation in every form a user may have it, and how arrays, labels and columns are understood."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from idiolect.data import Dataset, encode_frame, from_arrays, from_clients, from_frame, read_path
from idiolect.data.own.hugging_face import from_hub
from idiolect.errors import UserError

CLIENTS = {
    "north": (np.array([[0.5, 1], [1.5, 2], [2.5, 3]], np.float32), np.array([0, 2, 0])),
    "south": (np.array([[4.5, 5], [5.5, 6]], np.float32), np.array([2, 0])),
}
X = np.concatenate([x for x, _ in CLIENTS.values()])
Y = np.concatenate([y for _, y in CLIENTS.values()])
OWNERS = np.array(["north"] * 3 + ["south"] * 2)
SPLIT = np.array(["train", "train", "test", "train", "test"])


def frame_of(**more: object) -> pd.DataFrame:
    return pd.DataFrame({"client": OWNERS, "a": X[:, 0], "b": X[:, 1], "label": Y, **more})


def as_arrays(folder: Path) -> Dataset:
    return from_arrays(X, Y, client=OWNERS)


def as_mixed_arrays(folder: Path) -> Dataset:
    order = [3, 0, 4, 1, 2]  # clients by turns, each one's rows in their order
    return from_arrays(X[order].astype(np.float64), Y[order].astype(np.uint8), client=OWNERS[order])


def as_clients(folder: Path) -> Dataset:
    return from_clients(CLIENTS)


def as_frame(folder: Path) -> Dataset:
    return from_frame(frame_of())


def as_npz(folder: Path) -> Dataset:
    np.savez(folder / "all.npz", x=X, y=Y, client=OWNERS)
    return read_path(folder / "all.npz")


def as_parquet(folder: Path) -> Dataset:
    frame_of().to_parquet(folder / "all.parquet")
    return read_path(folder / "all.parquet")


def as_csv(folder: Path) -> Dataset:
    frame_of().to_csv(folder / "all.csv", index=False)
    return read_path(folder / "all.csv")


def as_semicolons(folder: Path) -> Dataset:
    frame_of().to_csv(folder / "all.csv", index=False, sep=";", encoding="utf-8-sig")
    return read_path(folder / "all.csv")


def as_folder_of_csv(folder: Path) -> Dataset:
    for name, rows in frame_of().groupby("client"):
        rows.drop(columns="client").to_csv(folder / f"part.{name}.tsv", index=False, sep="\t")
    return read_path(folder)


def as_folder_of_npz(folder: Path) -> Dataset:
    for name, (x, y) in CLIENTS.items():
        np.savez(folder / f"{name}.npz", x=x, y=y)
    return read_path(folder)


FORMS = [
    as_arrays,
    as_mixed_arrays,
    as_clients,
    as_frame,
    as_npz,
    as_parquet,
    as_csv,
    as_semicolons,
    as_folder_of_csv,
    as_folder_of_npz,
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_one_federation_has_one_digest_in_every_form(form, tmp_path):
    found = form(tmp_path)
    np.testing.assert_array_equal(found.train_x, X)
    np.testing.assert_array_equal(found.train_y, [0, 1, 0, 1, 0])
    assert found.train_ids.tolist() == OWNERS.tolist()
    assert found.class_names == ("0", "2") and found.task == "classification" and not len(found.test_y)
    assert found.digest == as_arrays(tmp_path).digest


def split_by_column(folder: Path) -> Dataset:
    frame_of(split=SPLIT).to_csv(folder / "all.csv", index=False)
    return read_path(folder / "all.csv")


def split_by_client_folders(folder: Path) -> Dataset:
    for (name, part), rows in frame_of(split=SPLIT).groupby(["client", "split"]):
        (folder / name).mkdir(exist_ok=True)
        rows[["a", "b", "label"]].to_csv(folder / name / f"{part}.csv", index=False)
    return read_path(folder)


def split_by_split_folders(folder: Path) -> Dataset:
    for (name, part), rows in frame_of(split=SPLIT).groupby(["client", "split"]):
        (folder / part).mkdir(exist_ok=True)
        rows[["a", "b", "label"]].to_parquet(folder / part / f"{name}.parquet")
    return read_path(folder)


def split_in_archive(folder: Path) -> Dataset:
    arrays = {}
    for part in ("train", "test"):
        rows = part == SPLIT
        arrays |= {f"{part}_x": X[rows], f"{part}_y": Y[rows], f"{part}_client": OWNERS[rows]}
    np.savez(folder / "all.npz", **arrays)
    return read_path(folder / "all.npz")


def split_by_numbers(folder: Path) -> Dataset:
    return from_arrays(X, Y, client=OWNERS, split=[0, 0, 2, 0, 2])


def split_by_client(folder: Path) -> Dataset:
    (x, y), (v, w) = CLIENTS.values()
    north = {"train": (x[:2], y[:2]), "test": (x[2:], y[2:])}
    return from_clients({"south": {"test": (v[1:], w[1:]), "train": (v[:1], w[:1])}, "north": north})


SPLIT_FORMS = [
    split_by_column,
    split_by_client_folders,
    split_by_split_folders,
    split_in_archive,
    split_by_numbers,
    split_by_client,
]


@pytest.mark.parametrize("form", SPLIT_FORMS, ids=lambda form: form.__name__)
def test_one_split_has_one_digest_in_every_form(form, tmp_path):
    found = form(tmp_path)
    assert found.splits.tolist() == [0, 0, 2, 0, 2]
    assert found.digest == from_arrays(X, Y, client=OWNERS, split=SPLIT).digest != as_arrays(tmp_path).digest


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float16, np.float64])
def test_numbers_of_any_type_become_float32(dtype):
    found = from_arrays(np.array([[0, 1], [1, 1]], dtype), [0, 1])
    assert found.train_x.dtype == np.float32 and found.train_x.tolist() == [[0, 1], [1, 1]]


def test_rows_keep_their_shape_and_images_their_bytes():
    assert from_arrays([1, 2], [0, 1]).shape == (1,)
    assert from_arrays(np.zeros((2, 3, 4, 5, 6)), [0, 1]).shape == (3, 4, 5, 6)
    assert from_arrays(np.zeros((2, 3, 4), np.uint8), [0, 1]).train_x.dtype == np.uint8
    assert from_arrays(np.zeros((2, 3), np.uint8), [0, 1]).train_x.dtype == np.float32


def test_tokens_need_a_vocabulary():
    found = from_arrays(np.array([[1, 2], [3, 0]], np.int32), [0, 3], vocabulary=4, task="next_token")
    assert found.train_x.dtype == np.int64 and found.n_classes == 4 and found.mean == ()


def test_several_inputs_lie_one_after_the_other():
    found = from_arrays({"picture": np.arange(8).reshape(2, 2, 2), "age": [30, 40]}, [0, 1])
    assert found.inputs == (("picture", (2, 2)), ("age", (1,)))
    assert found.train_x.tolist() == [[0, 1, 2, 3, 30], [4, 5, 6, 7, 40]]


@pytest.mark.parametrize(
    ("labels", "task", "names"),
    [
        ([10, 9, 10], "classification", ("9", "10")),
        (["10", "9", "10"], "classification", ("9", "10")),
        (["no", "yes", "no"], "classification", ("no", "yes")),
        ([True, False, True], "classification", ("False", "True")),
        ([1.0, 3.0, 1.0], "classification", ("1", "3")),
        ([0.5, 3.0, 1.0], "regression", ()),
        ([[0, 1], [1, 1], [0, 0]], "multilabel", ()),
        ([[0, 1], [1, 2], [0, 0]], "regression", ()),
    ],
)
def test_task_is_read_from_the_labels(labels, task, names):
    found = from_arrays([1, 2, 3], labels)
    assert (found.task, found.class_names) == (task, names)
    assert found.train_y.dtype == (np.int64 if names else np.float32)


def test_dates_order_rows_and_groups_are_numbered():
    dates = ["2024-03-01", "2024-01-01", "2024-02-01"]
    for given in (dates, np.array(dates, "datetime64[D]"), pd.to_datetime(dates)):
        assert np.argsort(from_arrays([1, 2, 3], [0, 1, 0], time=given).times).tolist() == [1, 2, 0]
    assert from_arrays([1, 2, 3], [0, 1, 0], group=["b", "a", "b"]).groups.tolist() == [1, 0, 1]


def test_words_are_encoded_alike_in_further_rows():
    frame = pd.DataFrame(
        {"sex": ["m", "f", "?"], "age": [1, 2, 3], "ok": [True, False, True], "y": list("aba")}
    )
    found = from_frame(frame, fill="mean")
    assert found.feature_names == ("sex=f", "sex=m", "age", "ok")
    np.testing.assert_array_equal(found.train_x, [[0, 1, 1, 1], [1, 0, 2, 0], [np.nan, np.nan, 3, 1]])
    np.testing.assert_array_equal(found.train_x, encode_frame(frame, found.manifest))
    further = encode_frame(pd.DataFrame({"ok": [False], "age": ["7"], "sex": ["m"]}), found.manifest)
    assert further.tolist() == [[0, 1, 7, 0]]
    with pytest.raises(UserError, match="row 0: column 'sex' holds 'x', which is none of f, m"):
        encode_frame(frame.assign(sex="x"), found.manifest)
    alike = from_frame(frame.iloc[:1], fill="mean", like=found.manifest)
    assert alike.class_names == ("a", "b") and alike.train_x.tolist() == [[0, 1, 1, 1]]


def test_further_rows_have_label_task_and_classes_of_the_dataset(tmp_path):
    frame = pd.DataFrame({"u": [1, 2, 3], "dose": [0.5, 1.0, 2.0]})
    dosed = from_frame(frame, label_column="dose")
    assert from_frame(frame[1:], like=dosed.manifest).train_y.tolist() == [[1.0], [2.0]]
    compared = from_frame(frame, label_column="dose>0.7").manifest
    assert from_frame(frame[1:], like=compared).train_y.tolist() == [1, 1]
    np.savez(tmp_path / "one.npz", x=[[1.0], [2.0]], y=["b", "b"])
    known = from_arrays([1, 2], ["a", "b"]).manifest
    assert read_path(tmp_path / "one.npz", like=known).train_y.tolist() == [1, 1]
    with pytest.raises(UserError, match="the dataset is no table"):
        from_frame(frame, label_column="dose", like=known)


def test_columns_of_lists_are_arrays(tmp_path):
    pd.DataFrame({"signal": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}).to_parquet(tmp_path / "all.parquet")
    assert read_path(tmp_path / "all.parquet").train_x.tolist() == [[1, 2], [3, 4]]


def heart(folder: Path) -> Path:
    header = "age,thal,target\n"
    (folder / "processed.cleveland.data").write_text(header + "63.0,6.0,0\n67.0,?,2\n")
    (folder / "processed.va.data").write_text(header + "40,,1\n50,,0\n")
    return folder


def test_hospitals_with_missing_values(tmp_path):
    found = read_path(heart(tmp_path), label_column="target>0", task="binary", fill="mean")
    assert found.train_ids.tolist() == ["cleveland", "cleveland", "va", "va"]
    assert found.class_names == ("target<=0", "target>0") and found.train_y.tolist() == [0, 1, 1, 0]
    assert np.isnan(found.train_x).tolist() == [[False, False], [False, True], [False, True], [False, True]]
    assert found.feature_names == ("age", "thal") and len(found.manifest["sha256"]) == 2


def test_table_without_a_header_has_numbered_columns(tmp_path):
    (tmp_path / "a.data").write_text("1,2,0\n3,4,1\n")
    found = read_path(tmp_path / "a.data", label_column="2")
    assert found.train_x.tolist() == [[1, 2], [3, 4]] and found.train_ids is None


def test_split_by_takes_its_column_out_of_the_features():
    frame = frame_of(visit=[3, 1, 2, 9, 8])
    assert from_frame(frame, split_by="time:visit").times.tolist() == [3, 1, 2, 9, 8]
    assert from_frame(frame, split_by="group:visit").feature_names == ("a", "b")


def test_clients_007_and_7_are_different(tmp_path):
    (tmp_path / "a.csv").write_text("user,a,y\n007,1,0\n7,2,1\n")
    assert read_path(tmp_path / "a.csv").train_ids.tolist() == ["007", "7"]


def write_saved(folder: Path, frame: pd.DataFrame, features: dict[str, object]) -> None:
    """Writes what `datasets.Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True, exist_ok=True)
    described = json.dumps({"info": {"features": features}})
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(
        {"huggingface": described}
    )
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    )


def test_saved_hugging_face_dataset_has_the_same_digest(tmp_path):
    write_saved(tmp_path / "whole", frame_of(), {"label": {"_type": "Value", "dtype": "int64"}})
    assert read_path(tmp_path / "whole").digest == as_arrays(tmp_path).digest
    frame = frame_of().assign(label=(Y > 0).astype(int))
    for part in ("train", "test"):
        labels = {"label": {"_type": "ClassLabel", "names": ["0", "2"]}}
        write_saved(tmp_path / "parts" / part, frame[part == SPLIT], labels)
    (tmp_path / "parts" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert read_path(tmp_path / "parts").digest == from_arrays(X, Y, client=OWNERS, split=SPLIT).digest


def test_names_of_classes_stay_as_hugging_face_has_them(tmp_path):
    frame = frame_of().assign(label=(Y > 0).astype(int))
    write_saved(tmp_path / "a", frame, {"label": {"_type": "ClassLabel", "names": ["01", "1.0"]}})
    found = read_path(tmp_path / "a")
    assert found.class_names == ("01", "1.0")
    assert sorted(found.train_y.tolist()) == sorted((Y > 0).astype(int).tolist())


def test_splits_of_an_archive_are_named_before_or_after_what_they_split(tmp_path):
    parts = {part: part == SPLIT for part in ("train", "test")}
    arrays = {"x": X, "y": Y, "client_id": OWNERS}
    np.savez(
        tmp_path / "b.npz",
        **{f"{part}_{key}": v[k] for part, k in parts.items() for key, v in arrays.items()},
    )
    np.savez(
        tmp_path / "a.npz",
        **{f"{key}_{part}": v[k] for part, k in parts.items() for key, v in arrays.items()},
    )
    expected = from_arrays(X, Y, client=OWNERS, split=SPLIT).digest
    assert {read_path(tmp_path / name).digest for name in ("a.npz", "b.npz")} == {expected}


def test_names_beyond_64_bits_with_a_sign_keep_their_digits():
    clients = np.array([2**63 + 5, 7], np.uint64)
    assert from_arrays([1, 2], [0, 1], client=clients).train_ids.tolist() == ["7", "9223372036854775813"]


def test_library_and_hub_give_the_same_dataset(tmp_path, monkeypatch):
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    held = library.DatasetDict(
        {
            part: library.Dataset.from_pandas(frame_of()[part == SPLIT], preserve_index=False)
            for part in ("train", "test")
        }
    )
    held.save_to_disk(tmp_path / "saved")
    expected = from_arrays(X, Y, client=OWNERS, split=SPLIT).digest
    assert read_path(tmp_path / "saved").digest == expected
    monkeypatch.setattr(library, "load_dataset", lambda *words: held)
    assert read_path("hf:someone/federation").digest == expected


class OnTheHub:
    """Stands for a dataset of the library: it gives its rows as an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def with_format(self, kind: str) -> OnTheHub:
        assert kind == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table[rows]


def test_hub_is_asked_for_name_and_configuration():
    table = pa.Table.from_pandas(frame_of(), preserve_index=False)
    asked = []

    def load(*words: str) -> dict[str, OnTheHub]:
        asked.extend(words)
        return {"train": OnTheHub(table[:3]), "test": OnTheHub(table[3:])}

    options = dict.fromkeys(("client_column", "label_column", "split_column", "split_by"))
    found = from_hub("someone/federation:small", options=options, manifest={}, load=load)
    assert asked == ["someone/federation", "small"] and found.splits.tolist() == [0, 0, 0, 2, 2]
    with pytest.raises(UserError, match="hf:someone/none cannot be loaded"):
        from_hub("someone/none", options=options, manifest={}, load=lambda name: 1 / 0)


def write_image(path: Path, value: int, mode: str = "L", size: tuple[int, int] = (3, 2)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


@pytest.mark.parametrize(
    "place", ["{part}/{client}/{label}", "{client}/{part}/{label}", "{client}/{label}/{part}"]
)
def test_images_in_folders_of_client_and_class(place, tmp_path):
    values = {
        ("b", "dog", "train"): 1,
        ("a", "cat", "train"): 2,
        ("a", "dog", "test"): 3,
        ("b", "cat", "test"): 4,
    }
    for (client, label, part), value in values.items():
        write_image(tmp_path / place.format(client=client, label=label, part=part) / "0.png", value)
    found = read_path(tmp_path)
    assert found.train_x.shape == (4, 1, 2, 3) and found.train_x[:, 0, 0, 0].tolist() == [2, 3, 1, 4]
    assert found.train_ids.tolist() == ["a", "a", "b", "b"] and found.splits.tolist() == [0, 2, 0, 2]
    assert found.class_names == ("cat", "dog") and found.train_y.tolist() == [0, 1, 1, 0]


def test_images_of_several_modes_are_in_colour(tmp_path):
    write_image(tmp_path / "10" / "a.png", 7)
    write_image(tmp_path / "9" / "a.png", 8, "RGB")
    found = read_path(tmp_path)
    assert found.train_ids is None and found.class_names == ("9", "10")
    assert found.train_x[:, :, 0, 0].tolist() == [[7, 7, 7], [8, 0, 0]]
