"""FLICKR-AES: a row per rating, a client per rater."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from idiolect.data import describe, get, load
from idiolect.errors import UserError

CSV = "FLICKR-AES_image_labeled_by_each_worker.csv"
RATINGS = [("B7", "a.jpg", 5), ("A1", "a.jpg", 1), ("A1", "b.jpg", 3), ("B7", "b.jpg", 2), ("C2", "b.jpg", 4)]
ALL = {"min_ratings": 1, "max_ratings": 99}


def write(root: Path, ratings: Any = RATINGS, header: str = "worker, imagePair, score") -> Path:
    folder = root / "flickr-aes"
    (folder / "40K").mkdir(parents=True, exist_ok=True)
    for name, colour, size in (("a.jpg", (40, 80, 120), (50, 30)), ("b.jpg", (200, 160, 90), (16, 16))):
        PIL.Image.new("RGB", size, colour).save(folder / "40K" / name, quality=95)
    lines = ratings if isinstance(ratings, str) else "".join(f"{w},{i},{s}\n" for w, i, s in ratings)
    (folder / CSV).write_text(f"{header}\n{lines}")
    return folder


def test_every_rating_is_a_row_of_its_rater(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = load("flickr-aes", tmp_path, size=16, **ALL)
    assert dataset.manifest["owners"] == ["A1", "B7", "C2"]
    assert dataset.train_ids is not None
    assert dataset.train_ids.tolist() == [1, 0, 0, 1, 2]
    assert dataset.train_y.tolist() == [4, 0, 2, 1, 3]
    assert dataset.train_x.shape == (5, 3, 16, 16)
    colours = dataset.train_x.mean(axis=(2, 3))
    np.testing.assert_allclose(colours, [(40, 80, 120)] * 2 + [(200, 160, 90)] * 3, atol=2)
    assert (dataset.n_classes, len(dataset.test_y)) == (5, 0)
    assert set(dataset.manifest["sha256"]) == {CSV, "40K"}


def test_images_are_scaled_to_224_by_default(tmp_path: Path) -> None:
    write(tmp_path)
    assert load("flickr-aes", tmp_path, **ALL).shape == (3, 224, 224)
    row = {row.name: row for row in describe(tmp_path)}["flickr-aes"]
    assert (row.shape, row.status) == ((3, 224, 224), "present")


@pytest.mark.parametrize(
    "header", ["worker,imagePair,score", " worker, imagePair, score ", "\ufeffworker,imagePair,score"]
)
def test_header_may_have_spaces_or_a_byte_order_mark(tmp_path: Path, header: str) -> None:
    write(tmp_path, header=header)
    assert len(load("flickr-aes", tmp_path, size=8, **ALL).train_y) == 5


def test_raters_outside_the_range_are_left_out_and_their_ratings_counted(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = load("flickr-aes", tmp_path, size=8, min_ratings=2, max_ratings=2)
    assert dataset.manifest["owners"] == ["A1", "B7"]
    assert dataset.manifest["left_out"]["ratings of other raters"] == 1
    with pytest.raises(UserError, match=r"no rater of .* has from min_ratings=60 to max_ratings=290 ratings"):
        load("flickr-aes", tmp_path)


def test_ratings_of_absent_images_are_left_out_before_they_count(tmp_path: Path) -> None:
    write(tmp_path, [*RATINGS, ("C2", "lost.jpg", 1)])
    dataset = load("flickr-aes", tmp_path, size=8, min_ratings=1, max_ratings=1)
    assert dataset.manifest["owners"] == ["C2"]
    assert dataset.manifest["left_out"] == {"ratings without an image": 1, "ratings of other raters": 4}


@pytest.mark.parametrize(
    ("ratings", "header", "message"),
    [
        (RATINGS, "worker,image,score", "expected the columns worker, imagePair, score"),
        (RATINGS, "", "expected the columns"),
        (
            [("A1", "a.jpg", 6)],
            "worker,imagePair,score",
            "line 2: expected a rater, an image and a score 1 to 5",
        ),
        ([("A1", "a.jpg", 2.5)], "worker,imagePair,score", "line 2: expected"),
        ([("A1", "a.jpg", 2), ("", "a.jpg", 2)], "worker,imagePair,score", "line 3: expected"),
        ([("A1", "../b.jpg", 2)], "worker,imagePair,score", "line 2: expected"),
        ("A1,a.jpg,1\nA1,b.", "worker,imagePair,score", "line 3: expected"),
    ],
)
def test_broken_table_is_refused_by_line(tmp_path: Path, ratings: Any, header: str, message: str) -> None:
    folder = write(tmp_path, ratings, header)
    with pytest.raises(UserError, match=message) as caught:
        load("flickr-aes", tmp_path, **ALL)
    assert str(folder / CSV) in str(caught.value) and "\n" not in str(caught.value)


def test_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    (write(tmp_path) / CSV).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not a table of ratings"):
        load("flickr-aes", tmp_path, **ALL)


def test_broken_image_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path) / "40K" / "b.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=rf"{path} is not a whole image"):
        load("flickr-aes", tmp_path, **ALL)


@pytest.mark.parametrize("option", ["size", "min_ratings", "max_ratings"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True, "8"])
def test_wrong_option_is_refused(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"flickr-aes: {option} must be a whole number from 1, not {value!r}"):
        load("flickr-aes", tmp_path, **{option: value})


@pytest.mark.parametrize("ask", [lambda root: load("flickr-aes", root), lambda root: get("flickr-aes", root)])
def test_absent_data_say_what_to_put_where(tmp_path: Path, ask: Any) -> None:
    with pytest.raises(UserError, match=f"put {CSV} and the folder of images 40K") as caught:
        ask(tmp_path)
    assert str(caught.value).endswith(f"into {tmp_path / 'flickr-aes'}")
    assert list(tmp_path.iterdir()) == []
