from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from idiolect.data.idx import read_idx, read_idx_part
from idiolect.data.sources import SOURCES
from idiolect.errors import UserError

ToIdx = Callable[..., bytes]
REUSED_FOLDER = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@REUSED_FOLDER
@given(
    values=arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)),
    packed=st.booleans(),
)
def test_read_idx_gives_back_what_was_written(
    tmp_path: Path, to_idx: ToIdx, values: np.ndarray[Any, Any], packed: bool
) -> None:
    path = tmp_path / ("values.gz" if packed else "values")
    raw = to_idx(values)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    found, digest = read_idx(path, values.ndim)
    np.testing.assert_array_equal(found, values)
    assert found.shape == values.shape
    assert found.flags.writeable
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


@REUSED_FOLDER
@given(st.data())
def test_read_idx_truncated_anywhere_is_refused(tmp_path: Path, to_idx: ToIdx, data: st.DataObject) -> None:
    packed = data.draw(st.booleans())
    raw = to_idx(np.arange(12).reshape(3, 2, 2))
    stored = gzip.compress(raw) if packed else raw
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(UserError, match=r"images.*`idiolect datasets get NAME"):
        read_idx(path, 3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: b"\x01" + raw[1:], "not an idx file: expected it to begin 00 00"),
        (lambda raw: raw[:2] + b"\x0d" + raw[3:], r"idx type 0x0d, expected 0x08"),
        (lambda raw: raw[:3] + b"\x01" + raw[4:], "1 dimensions, expected 3"),
        (lambda raw: raw + b"x", "3 x 2 x 2 values, so it should have 28 bytes, but it has 29"),
        (lambda raw: raw[:10], "ends inside its header: expected 16 bytes, found 10"),
        (lambda raw: b"", "not an idx file"),
    ],
)
def test_read_idx_spoilt_file_says_what_was_expected(
    tmp_path: Path, to_idx: ToIdx, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "images"
    path.write_bytes(spoil(to_idx(np.zeros((3, 2, 2)))))
    with pytest.raises(UserError, match=message) as caught:
        read_idx(path, 3, advice="ask Ann")
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("ask Ann")


def test_read_idx_web_page_saved_as_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_text("<html>404</html>")
    with pytest.raises(UserError, match="not a whole gzip file"):
        read_idx(path, 3)


def test_read_idx_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*images \(No such file"):
        read_idx(tmp_path / "images", 3)


def test_read_idx_part_with_uneven_counts_names_both_files(tmp_path: Path, to_idx: ToIdx) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(to_idx(np.zeros((3, 28, 28))))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(to_idx(np.zeros(2)))
    with pytest.raises(UserError, match=r"images-idx3-ubyte holds 3 images but .*labels-idx1-ubyte holds 2"):
        read_idx_part(SOURCES["mnist"].train_files, tmp_path)
