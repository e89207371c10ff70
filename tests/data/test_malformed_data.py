"""Every malformed input is refused in one sentence that says what, where and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from idiolect.data import encode_frame, from_arrays, from_clients, from_frame, read_path
from idiolect.errors import UserError

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
Y = [0, 1, 0]


def text(content: str | bytes, name: str = "a.csv", **options: Any) -> Callable[[Path], object]:
    """Reads a file with this content."""

    def read(folder: Path) -> object:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_path(folder / name, **options)

    return read


def npz(**arrays: Any) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        np.savez(folder / "a.npz", **arrays)
        return read_path(folder / "a.npz")

    return read


def arrays(x: Any = X, y: Any = Y, **options: Any) -> Callable[[Path], object]:
    return lambda folder: from_arrays(x, y, **options)


def frame(**columns: Any) -> Callable[[Path], object]:
    return lambda folder: from_frame(pd.DataFrame(columns))


def truncated_parquet(folder: Path) -> object:
    pd.DataFrame({"a": X, "y": Y}).to_parquet(folder / "a.parquet")
    (folder / "a.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-20])
    return read_path(folder / "a.parquet")


def truncated_npz(folder: Path) -> object:
    np.savez(folder / "a.npz", x=X, y=Y)
    (folder / "a.npz").write_bytes((folder / "a.npz").read_bytes()[:-40])
    return read_path(folder / "a.npz")


def folder_of(**files: str) -> Callable[[Path], object]:
    """Reads a folder of text files; __ in a name is a folder."""

    def read(folder: Path) -> object:
        for name, content in files.items():
            path = folder / "all" / f"{name.replace('__', '/')}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (folder / "all").mkdir(exist_ok=True)
        return read_path(folder / "all")

    return read


def images(
    *sizes: tuple[int, int], broken: bool = False, place: str = "site/cat"
) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        (folder / place).mkdir(parents=True)
        for number, size in enumerate(sizes):
            Image.new("L", size).save(folder / place / f"{number}.png")
        if broken:
            path = folder / place / "0.png"
            path.write_bytes(path.read_bytes()[:30])
        return read_path(folder)

    return read


def folder_with_empty_parquet(folder: Path) -> object:
    rows = pd.DataFrame({"u": [1.0, 2.0], "y": [0, 1]})
    (folder / "all").mkdir()
    rows.to_parquet(folder / "all" / "a.parquet")
    rows[:0].to_parquet(folder / "all" / "b.parquet")
    return read_path(folder / "all")


def column_that_further_rows_lack(folder: Path) -> object:
    known = from_frame(pd.DataFrame({"age": [30, 40], "sex": ["f", "m"], "y": [0, 1]}))
    other = pd.DataFrame({"size": [1, 2], "sex": ["f", "m"], "y": [0, 1]})
    return from_frame(other, like=known.manifest)


def unknown_word_in_further_rows(folder: Path) -> object:
    known = from_frame(pd.DataFrame({"sex": ["f", "m"], "y": [0, 1]}))
    return encode_frame(pd.DataFrame({"sex": ["f", "d"]}), known.manifest)


CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no rows": (arrays([], []), ("data has no rows", "give at least one")),
    "rows of different lengths": (arrays([[1], [2, 3], [4]]), ("row 1", "[2]", "[1]", "cut or pad")),
    "more labels than rows": (arrays(X, [0, 1]), ("3 rows but 2 values of label", "one for each row")),
    "missing value": (
        arrays([[1, 2], [3, np.nan], [5, 6]]),
        ("row 1", "[1] is missing (NaN); fill it (fill=mean"),
    ),
    "two missing words": (
        frame(smoker=["no", None, "yes", "?"], y=[0, 1, 0, 1]),
        ("row 1", "column 'smoker' is missing (NaN), as are 2 values in all; fill them"),
    ),
    "infinite value": (arrays([[1, 2], [3, np.inf], [5, 6]]), ("row 1", "[1]", "infinite", "replace")),
    "too large for float32": (arrays([[1, 2], [1e300, 4], [5, 6]]), ("row 1", "beyond what float32 holds")),
    "complex numbers": (arrays(np.ones((3, 2), complex)), ("x holds complex numbers", "give numbers")),
    "objects": (arrays([[{}], [{}], [{}]]), ("x holds Python objects", "give numbers")),
    "words as rows": (arrays([["a"], ["b"], ["c"]]), ("x holds words", "from_frame")),
    "missing label": (arrays(y=["a", None, "b"]), ("row 1", "the label is missing", "remove the row")),
    "label that is NaN": (arrays(y=[0, 1, np.nan]), ("row 2", "the label is missing")),
    "labels of two types": (
        arrays(y=np.array(["a", 1, "b"], object)),
        ("row 1", "1", "another type than 'a'"),
    ),
    "one class": (arrays(y=[1, 1, 1]), ("at least two classes", "the labels are 1", "check the label")),
    "three classes for binary": (arrays(y=[0, 1, 2], task="binary"), ("two classes", "0, 1, 2")),
    "fractions for classification": (
        arrays(y=[0, 1, 0.5], task="classification"),
        ("row 2", "0.5", "regression"),
    ),
    "words for regression": (arrays(y=["a", "b", "c"], task="regression"), ("needs numbers", "'a'")),
    "label not among the classes": (arrays(class_names=["0", "2"]), ("row 1", "unknown label '1'", "0, 2")),
    "numbers for multilabel": (
        arrays(y=[[0, 1], [0, 2], [1, 1]], task="multilabel"),
        ("row 1", "[0, 2]", "0 and 1"),
    ),
    "a label for each row": (
        arrays(np.zeros((200, 1)), np.arange(200)),
        ("200 different numbers as labels", "regression"),
    ),
    "four rows for each of 31 numbers": (
        arrays(np.zeros((124, 1)), np.arange(124) % 31 * 1.0),
        (
            "31 different numbers as labels on 124 rows",
            "give task=regression, or task=classification if they are",
        ),
    ),
    "a word for each row": (
        arrays(np.zeros((200, 1)), [f"w{i}" for i in range(200)]),
        ("200 different words as labels on 200 rows, which are hardly classes; give task=classification if",),
    ),
    "unknown task": (arrays(task="ranking"), ("task must be one of classification", "'ranking'")),
    "token beyond the vocabulary": (arrays([[1], [2], [9]], vocabulary=4), ("tokens 1..9", "0..3")),
    "missing client": (arrays(client=["a", None, "b"]), ("row 1", "the client is missing")),
    "unknown split": (
        arrays(split=["train", "exam", "test"]),
        ("row 1", "unknown split 'exam'", "train, valid"),
    ),
    "split out of range": (arrays(split=[0, 1, 3]), ("row 2", "unknown split 3", "0, 1, 2")),
    "times that have no order": (arrays(time=["2024-01-01", "soon", "x"]), ("row 1", "'soon'", "2024-01-31")),
    "vocabulary in words": (arrays([[1], [2], [0]], vocabulary="many"), ("whole number from 1", "'many'")),
    "no labels": (arrays(y=[], task="regression"), ("no labels", "one for each row")),
    "label too large for a class": (arrays(y=[0.0, 1e300, 1.0]), ("row 1", "1e+300", "regression")),
    "clients as lists": (
        lambda folder: from_frame(pd.DataFrame({"client": [[1], ["a"]], "u": [1, 2], "y": [0, 1]})),
        ("client must be one name for each row",),
    ),
    "clients as sets": (
        lambda folder: from_frame(pd.DataFrame({"client": [{1}, {2}], "u": [1, 2], "y": [0, 1]})),
        ("row 0", "the client is a set", "words or whole numbers"),
    ),
    "clients as a number": (lambda folder: from_clients(5), ("clients are given as int", "(x, y)")),
    "two ways to split": (arrays(split=[0, 1, 2], time=[1, 2, 3]), ("splits and by times", "one of them")),
    "no clients": (lambda folder: from_clients({}), ("no clients", "(x, y)")),
    "client of another shape": (
        lambda folder: from_clients({"a": ([[1, 2]], [0]), "b": ([[1]], [1])}),
        ("client 'b'", "[1]", "client 'a'", "one shape"),
    ),
    "client without labels": (
        lambda folder: from_clients([[X, Y], [X, [1]]]),
        ("client 1", "3 rows but 1 labels"),
    ),
    "client without rows": (
        lambda folder: from_clients({"a": (X, Y), "b": (X[:0], Y[:0])}),
        ("client 'b' has no rows", "leave it out"),
    ),
    "client without parts": (lambda folder: from_clients({"a": {"train": (X, Y)}, "b": {}}), ("client 'b'",)),
    "client named by a pair": (
        lambda folder: from_clients({("a", 1): (X, Y), ("b", 2): (X, Y)}),
        ("('a', 1) cannot name a client", "words or whole numbers"),
    ),
    "rows without numbers": (arrays(np.empty((3, 0))), ("shape [0]", "check the rows")),
    "array of no split beside those of splits": (
        npz(train_x=X, train_y=Y, test_x=X, test_y=Y, owner=["a", "b", "c"]),
        ("array owner is of no split", "train and test", "leave it out"),
    ),
    "file of a client without rows": (folder_with_empty_parquet, ("client 'b' has no rows",)),
    "split twice": (
        lambda folder: from_frame(pd.DataFrame({"a": X, "y": Y, "split": Y, "t": Y}), split_by="time:t"),
        ("column 'split'", "split_by=time:t", "rename the column"),
    ),
    "client with an unknown split": (
        lambda folder: from_clients({"a": {"exam": (X, Y)}}),
        ("client 'a'", "'exam'", "train, valid and test"),
    ),
    "dates as a feature": (
        frame(day=pd.to_datetime(["2024-01-01"]), y=[0]),
        ("'day' holds dates", "time:day"),
    ),
    "too many words": (
        frame(note=[f"w{i}" for i in range(30)], y=[0, 1] * 15),
        ("'note'", "30 different words"),
    ),
    "one word in a column of numbers": (
        text("price,y\n1,0\n" + "".join(f"{'n/a?' if i in (5, 9) else i / 8},{i % 2}\n" for i in range(40))),
        (
            "a.csv, line 8: column 'price' holds 'n/a?'",
            "one of 2 in 41 values that are no number",
            "leave it empty",
        ),
    ),
    "decimal commas": (
        text("price;y\n" + "".join(f"{f'{i},49' if i % 2 else i};{i % 2}\n" for i in range(60))),
        (
            "a.csv, line 3: column 'price' holds '1,49'",
            "one of 30 in 60 values that are no number",
            "points, as in 1.49",
        ),
    ),
    "as many words as numbers": (
        text("code,y\n" + "".join(f"{f'w{i}' if i % 2 else i},{i % 2}\n" for i in range(60))),
        ("column 'code' holds 60 different words",),
    ),
    "two client columns": (frame(user=["a"], site=["b"], x=[1], y=[0]), ("user, site", "client_column")),
    "nothing to learn from": (frame(client=["a"], y=[0]), ("no column besides client, y",)),
    "column of the dataset that is absent": (
        column_that_further_rows_lack,
        ("data has no column 'age' (1 of 2 are absent)", "the dataset has it as a feature"),
    ),
    "unknown word": (unknown_word_in_further_rows, ("row 1", "'sex' holds 'd'", "f, m")),
    "empty file": (text(""), ("a.csv is empty", "header and at least one row")),
    "only a header": (text("a,y\n"), ("a.csv has a header but no rows",)),
    "not UTF-8": (text(b"a,y\n1,caf\xe9\n"), ("a.csv is not UTF-8 at byte 9", "save it as UTF-8")),
    "line with too many fields": (
        text("a,y\n1,0\n2,1,7\n3,0\n"),
        ("line 3", "3 fields", "2 columns", "correct"),
    ),
    "line with too few fields": (text("a,b,y\n1,2,0\n2,1\n"), ("line 3", "2 fields", "3 columns")),
    "two columns of one name": (
        text("a,a,y\n1,2,0\n"),
        ("the column 'a' more than once", "a name of its own"),
    ),
    "column without a name": (text(",a,y\n0,1,0\n"), ("column 0 has no name", "without the row numbers")),
    "no label column": (text("a,b\n1,2\n"), ("no column label, target, y, class", "one of a, b")),
    "label column that is not there": (text("a,y\n1,2\n", label_column="z"), ("'z'", "label_column", "a, y")),
    "client column that is not there": (
        text("a,y\n1,2\n", client_column="who"),
        ("'who'", "client_column", "a, y"),
    ),
    "comparison of words": (text("a,y\n1,no\n", label_column="y>0"), ("'y>0'", "compares words", "== or !=")),
    "unknown split in a file": (
        text("a,split,y\n1,train,0\n2,exam,1\n"),
        ("a.csv, line 3", "unknown split 'exam'"),
    ),
    "missing value in a file": (
        text("a,y\n1,0\n?,1\n"),
        ("a.csv, line 3", "column 'a' is missing", "fill=mean"),
    ),
    "missing label in a file": (text("a,y\n1,0\n2,\n"), ("a.csv, line 3", "the label is missing")),
    "unknown way to split": (
        text("a,y\n1,0\n", split_by="luck:a"),
        ("time:COLUMN or group:COLUMN", "luck:a"),
    ),
    "kind of file": (text("hello", "a.docx"), ("a.docx is of a kind that cannot be read", ".parquet")),
    "file that is not there": (
        lambda folder: read_path(folder / "none.csv"),
        ("no file or folder", "none.csv"),
    ),
    "pickled arrays": (npz(x=np.array([{}, {}]), y=[0, 1]), ("a.npz holds Python objects", "could run code")),
    "archive of random bytes": (
        text(bytes(range(1, 200)), "a.npz"),
        ("a.npz is no .npz file", "numpy.savez"),
    ),
    "archive without x": (npz(rows=X, y=Y), ("a.npz has no array x", "rows, y")),
    "archive of unequal arrays": (npz(x=X, y=[0, 1]), ("y is an array [2]", "x has 3 rows")),
    "archive that is cut off": (truncated_npz, ("a.npz is no whole .npz file", "write it again")),
    "Parquet that is cut off": (truncated_parquet, ("a.parquet is no whole Parquet file", "write it again")),
    "folder without files": (folder_of(), ("holds no file that can be read", ".csv")),
    "files with other columns": (
        folder_of(a="u,y\n1,0\n", b="v,y\n1,1\n"),
        ("b.csv", "a.csv", "u, v", "same columns"),
    ),
    "files with other types": (folder_of(a="u,y\n1,0\n", b="u,y\nx,1\n"), ("b.csv", "Field u", "one type")),
    "client in name and column": (
        folder_of(a="site,u,y\n1,2,0\n"),
        ("file name and the columns site", "client_column"),
    ),
    "split in some names": (folder_of(a__train="u,y\n1,0\n", b="u,y\n1,1\n"), ("b", "train, valid and test")),
    "two files of one client": (
        folder_of(**{"a.b": "u,y\n1,0\n", "a__b": "u,y\n1,1\n", "c": "u,y\n1,1\n"}),
        ("a.b.csv", "'a/b'", "rename one"),
    ),
    "images of different sizes": (images((3, 2), (2, 2)), ("1.png", "2x2", "0.png of 3x2", "one size")),
    "broken image": (images((3, 2), broken=True), ("0.png is not a whole image", "write it again")),
    "images in too many folders": (images((3, 2), place="a/b/c/d"), ("0.png", "4 folders", "client/class")),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_refused_in_one_sentence(name, tmp_path):
    read, pieces = CASES[name]
    with pytest.raises(UserError) as refusal:
        read(tmp_path)
    sentence = str(refusal.value)
    assert "\n" not in sentence and not re.search(r"np\.\w+\(|Traceback", sentence)
    for piece in pieces:
        assert piece in sentence, sentence


def test_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        UserError, match=r"cannot read .*a\.csv \(Permission denied\); check .* that you may read it"
    ):
        read_path(tmp_path / "a.csv")
