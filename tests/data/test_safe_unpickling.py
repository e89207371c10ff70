from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.data.safe_unpickling import read_pickled_dict
from idiolect.errors import UserError

PATH = Path("batch")

# What Python 2 wrote: {'data': array([[1, 2], [3, 4]], uint8), 'labels': [7, 9]}, protocol 2, byte strings.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
    b"U\x01b\x87Rq\x05(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNN"
    b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04\x01\x02\x03\x04tbU\x06labelsq\x08]q\x09(K\x07K\x09eu."
)


class Malicious:
    """Makes a folder when unpickled by the ordinary unpickler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_arrays_of_every_protocol_gives_them_back(protocol: int, dtype: str, order: Any) -> None:
    data = np.asarray(np.arange(12).reshape(3, 4), dtype, order=order)
    found = read_pickled_dict(pickle.dumps({b"data": data, "labels": [1, 2]}, protocol), PATH, "")
    np.testing.assert_array_equal(found["data"], data)
    assert found["data"].dtype == data.dtype.newbyteorder("=")
    assert found["data"].flags.writeable
    assert found["data"].flags.c_contiguous
    assert found["labels"] == [1, 2]


def test_reading_a_python_2_file_gives_str_keys() -> None:
    found = read_pickled_dict(PYTHON_2, PATH, "")
    assert found["data"].tolist() == [[1, 2], [3, 4]]
    assert found["data"].dtype == np.uint8
    assert found["labels"] == [7, 9]


@pytest.mark.parametrize("protocol", range(6))
def test_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    raw = pickle.dumps({"data": Malicious(tmp_path / "harm")}, protocol)
    with pytest.raises(UserError, match=r"batch asks Python to load \w+\.mkdir, .* refused .*; ask Ann"):
        read_pickled_dict(raw, PATH, "ask Ann")
    assert not (tmp_path / "harm").exists()
    pickle.loads(raw)
    assert (tmp_path / "harm").exists(), "the pickle should have done its harm when read the ordinary way"


@pytest.mark.parametrize(
    "name", ["builtins\neval", "numpy\nload", "numpy\nndarray.tofile", "_codecs\ndecode"]
)
def test_other_globals_are_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=name.replace("\n", ".")):
        read_pickled_dict(f"c{name}\n.".encode(), PATH, "")


def test_other_codecs_are_refused() -> None:
    with pytest.raises(UserError, match="encoding 'rot13', expected 'latin1'"):
        read_pickled_dict(b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.", PATH, "")


def test_object_and_float_arrays_are_refused() -> None:
    for data in (np.array([None, {}], object), np.zeros(3)):
        with pytest.raises(UserError, match=r"array of type '(O8|f8)', expected integers"):
            read_pickled_dict(pickle.dumps({"data": data}, 2), PATH, "")


def test_something_other_than_a_dictionary_is_refused() -> None:
    with pytest.raises(UserError, match="a list, expected a dictionary"):
        read_pickled_dict(pickle.dumps([1]), PATH, "")


@given(st.integers(0, len(PYTHON_2) - 1))
def test_truncated_pickle_is_refused(length: int) -> None:
    with pytest.raises(UserError, match=r"batch (is not a whole pickle|asks Python)"):
        read_pickled_dict(PYTHON_2[:length], PATH, "")


@settings(max_examples=200)
@given(st.integers(0, len(PYTHON_2) - 1), st.sampled_from(b"\x00.}]KUX(tbR\x85\x86\x87\xff"))
def test_altered_pickle_is_read_or_refused_but_never_crashes(position: int, value: int) -> None:
    altered = bytearray(PYTHON_2)
    altered[position] = value
    with suppress(UserError):
        assert isinstance(read_pickled_dict(bytes(altered), PATH, ""), dict)
