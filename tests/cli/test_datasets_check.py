"""`idiolect datasets check`: what it prints, and that malformed data end it with one sentence and exit code 2."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def hospitals(tmp_path):
    folder = tmp_path / "heart"
    folder.mkdir()
    for name, first in (("processed.va.data", 40), ("processed.cleveland.data", 60)):
        rows = "".join(f"{first + i % 5}.5,{'?' if i == 3 else i * i},{i % 3}\n" for i in range(12))
        (folder / name).write_text("age,thal,target\n" + rows)
    return folder


def test_check_says_what_it_found_and_what_to_type_next(idiolect, hospitals):
    answer = idiolect("datasets", "check", hospitals, "--label-column", "target>0")
    assert answer.code == 0 and answer.err == ""
    for piece in (
        "heart: 24 rows, float32 of shape [2]; 2 clients; classification with 2 classes",
        "cleveland",
        "Missing values: thal 2",
        "A run would refuse this: 2 values are missing; give --fill mean",
        f"Next: idiolect run --data {hospitals} --fill mean --label-column 'target>0'",
    ):
        assert piece in answer.out


def test_check_as_json_has_every_client(idiolect, hospitals):
    found = json.loads(idiolect("datasets", "check", hospitals, "--fill", "zero", "--json").out)
    assert [client["name"] for client in found["clients"]] == ["cleveland", "va"]
    assert found["clients"][0]["classes"] == {"0": 4, "1": 4, "2": 4}
    assert found["label_skew"] == 0 and found["refusals"] == [] and len(found["digest"]) == 64


def test_check_names_no_next_command_where_a_run_would_refuse_it(idiolect, tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("site,age,y\n" + "".join(f"{'ab'[i % 2]},{i},{i % 3}\n" for i in range(40)) + "c,,1\n")
    answer = idiolect("datasets", "check", path)
    assert "A run would refuse this: client c has fewer than the 3 rows" in answer.out
    assert "Next:" not in answer.out
    assert json.loads(idiolect("datasets", "check", path, "--fill", "mean", "--json").out)["next"] is None


def test_check_refuses_numbers_that_are_hardly_classes_as_a_run_does(idiolect, refused, tmp_path):
    path = tmp_path / "sugar.csv"
    path.write_text("age,target\n" + "".join(f"{i},{25 + i % 40}.0\n" for i in range(120)))
    sentence = "40 different numbers as labels on 120 rows"
    refused(idiolect("datasets", "check", path), sentence, "task=regression, or task=classification")
    refused(idiolect("run", "--data", path, "--out", tmp_path / "runs"), sentence)
    assert "with 1 numbers to predict" in idiolect("datasets", "check", path, "--task", "regression").out


def write_csv(folder):
    (folder / "a.csv").write_text("client,a,y\nnorth,1,0\nnorth,2\n")
    return folder / "a.csv"


def write_pickled(folder):
    np.savez(folder / "a.npz", x=np.array([{}, {}]), y=[0, 1])
    return folder / "a.npz"


def write_images(folder):
    for place, size in (("a/cat", (2, 2)), ("a/dog", (3, 3))):
        (folder / "pictures" / place).mkdir(parents=True)
        Image.new("L", size).save(folder / "pictures" / place / "0.png")
    return folder / "pictures"


def write_nothing(folder):
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize(
    ("write", "options", "pieces"),
    [
        (write_csv, (), ("a.csv, line 3", "2 fields", "3 columns")),
        (write_pickled, (), ("a.npz holds Python objects",)),
        (write_images, (), ("0.png", "3x3", "one size")),
        (write_nothing, (), ("holds no file that can be read",)),
        (lambda folder: folder / "none.csv", (), ("there is no file or folder",)),
        (write_nothing, ("--split-by", "luck"), ("--split-by must be time:COLUMN or group:COLUMN",)),
    ],
    ids=["short line", "pickled", "images", "empty folder", "not there", "option"],
)
def test_malformed_data_end_the_check_with_one_sentence(idiolect, refused, tmp_path, write, options, pieces):
    refused(idiolect("datasets", "check", write(tmp_path), *options), *pieces)


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [
        (
            "a,1,0,train\na,5,0,train\na,2,1,test\nb,3,0,train\nb,4,1,train\n",
            ("without test rows", "client 'b'"),
        ),
        (
            "a,1,0,train\na,,1,test\nb,3,0,train\nb,4,1,test\n",
            ("all.csv, line 3", "'u' is missing", "fill=mean"),
        ),
        ("a,1,0,train\na,2,1,exam\nb,3,0,train\nb,4,1,test\n", ("all.csv, line 3", "unknown split 'exam'")),
    ],
    ids=["no test rows", "missing value", "unknown split"],
)
def test_malformed_data_end_a_run_before_training(idiolect, refused, tmp_path, rows, pieces):
    (tmp_path / "all.csv").write_text("client,u,y,split\n" + rows)
    refused(idiolect("run", "--method", "fedavg", "--data", tmp_path / "all.csv", "--rounds", "1"), *pieces)
    assert not (tmp_path / "runs").exists()
