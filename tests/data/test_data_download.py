from __future__ import annotations

import dataclasses
import functools
import http.server
import io
import threading
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from idiolect.data import get, load
from idiolect.data.sources import SOURCES
from idiolect.errors import UserError


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_get_brings_files_that_load(tmp_path: Path, mnist_home: Any) -> None:
    folder = get("mnist", tmp_path / "new", opener=mnist_home)
    assert folder == tmp_path / "new" / "mnist"
    assert everything_in(tmp_path) == sorted(f"new/mnist/{name}" for name in mnist_home.content)
    assert load("mnist", tmp_path / "new").train_x.shape == (20, 1, 28, 28)


def test_get_over_http_brings_the_same_files(
    tmp_path: Path, mnist_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for name, raw in mnist_home.content.items():
        (site / name).write_bytes(raw)
    with serving(site) as address:
        local = dataclasses.replace(SOURCES["mnist"], base_url=address)
        monkeypatch.setitem(SOURCES, "mnist", local)
        folder = get("mnist", tmp_path)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == mnist_home.content
        (site / "t10k-labels-idx1-ubyte.gz").unlink()
        with pytest.raises(UserError, match=r"cannot download http://127.*t10k-labels.*404"):
            get("mnist", tmp_path / "other")


class serving:
    """Serves a folder on the loopback address for the length of a with block."""

    def __init__(self, folder: Path) -> None:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.HTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
        )

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}/"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_get_again_asks_for_nothing(tmp_path: Path, mnist_home: Any) -> None:
    get("mnist", tmp_path, opener=mnist_home)
    mnist_home.asked.clear()
    get("mnist", tmp_path, opener=mnist_home)
    assert mnist_home.asked == []


def test_get_mends_a_damaged_file(tmp_path: Path, mnist_home: Any) -> None:
    folder = get("mnist", tmp_path, opener=mnist_home)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"broken")
    get("mnist", tmp_path, opener=mnist_home)
    assert load("mnist", tmp_path).train_x.shape == (20, 1, 28, 28)


def test_get_into_the_datasets_own_folder_does_not_nest(tmp_path: Path, mnist_home: Any) -> None:
    assert get("mnist", tmp_path / "mnist", opener=mnist_home) == tmp_path / "mnist"
    assert load("mnist", tmp_path / "mnist").name == "mnist"


def test_get_reports_progress(tmp_path: Path, mnist_home: Any) -> None:
    seen: dict[str, int] = {}
    get("mnist", tmp_path, opener=mnist_home, progress=seen.__setitem__)
    assert seen == {name: len(raw) for name, raw in mnist_home.content.items()}


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: b"<html>"])
def test_get_damaged_download_leaves_what_was_there(
    tmp_path: Path, mnist_home: Any, spoil: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"old")
    last = "t10k-labels-idx1-ubyte.gz"
    mnist_home.content[last] = spoil(mnist_home.content[last])
    with pytest.raises(UserError, match=rf"{last} arrived damaged: expected md5 .* try again"):
        get("mnist", tmp_path, opener=mnist_home)
    assert everything_in(tmp_path) == ["mnist/train-images-idx3-ubyte.gz"]
    assert (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").read_bytes() == b"old"


def test_get_without_network_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    def no_network(url: str) -> IO[bytes]:
        raise urllib.error.URLError("Name or service not known")

    with pytest.raises(
        UserError, match=r"cannot download https://.*Name or service.*check the network.*put them in .*cifar"
    ) as caught:
        get("cifar10", tmp_path, opener=no_network)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_get_broken_connection_leaves_nothing(tmp_path: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise ConnectionResetError("reset by peer")
            return super().read(3)

    with pytest.raises(UserError, match="reset by peer"):
        get("mnist", tmp_path, opener=lambda _: Breaking(b"something"))
    assert list(tmp_path.iterdir()) == []


def test_get_unwritable_folder_is_refused(tmp_path: Path, mnist_home: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write dataset 'mnist' to .*--data-dir"):
        get("mnist", tmp_path / "file", opener=mnist_home)


def test_get_of_names_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'synthetic' comes with idiolect"):
        get("synthetic", tmp_path)
    with pytest.raises(UserError, match="unknown dataset 'cifar'; did you mean"):
        get("cifar", tmp_path)
