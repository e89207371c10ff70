"""Folders of images of the user's own: client/class/image.png, or class/image.png for images without owners.

A level of train, valid and test may lie anywhere above the images.  All images need one size.  They are grey
[1, H, W] if all are, and else in colour [3, H, W].
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.data.dataset import Array, Dataset
from idiolect.data.image_files import read_file
from idiolect.data.own.arrays import from_arrays
from idiolect.data.own.file_formats import AGAIN, places_in
from idiolect.errors import UserError

__all__ = ["decode_alike", "read_image_folder"]

DEEP = ("I", "F")  # modes of Pillow with more than 8 bits a pixel start with these letters


def read_image_folder(
    folder: Path,
    paths: Sequence[Path],
    *,
    name: str,
    task: str | None,
    class_names: Sequence[str] | None,
    manifest: dict[str, Any],
) -> Dataset:
    """Returns the images of a folder, with class and client named by the folders they lie in."""
    places, splits = places_in(folder, [path.parent for path in paths])
    depth = len(places[0])
    for path, place in zip(paths, places, strict=True):
        if len(place) != depth or depth not in (1, 2):
            raise UserError(
                f"{path} lies in {len(place)} folders besides train, valid and test; put every image into "
                "client/class, or "
                "every one into a folder of its class"
            )
    digest = hashlib.sha256()

    def contents() -> Iterable[tuple[str, bytes]]:
        for path in paths:
            raw = read_file(path, AGAIN)
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(raw)
            yield str(path), raw

    x = decode_alike(contents(), len(paths))
    return from_arrays(
        x,
        np.array([place[-1] for place in places]),
        client=np.array([place[0] for place in places]) if depth == 2 else None,
        split=None if splits is None else np.array(splits),
        task=task,
        name=name,
        class_names=class_names,
        manifest=manifest | {"sha256": {str(folder): digest.hexdigest()}},
        place=lambda row: str(paths[row]),
    )


def decode_alike(contents: Iterable[tuple[str, bytes]], count: int) -> Array:
    """Returns images of one size as uint8 [count, C, H, W], given as names and bytes."""
    rows, first = np.empty((0, 0, 0, 0), np.uint8), ""
    for number, (name, raw) in enumerate(contents):
        image = _decode(name, raw)
        if number == 0:
            rows, first = np.empty((count, *image.shape), np.uint8), name
        if image.shape[1:] != rows.shape[2:]:
            sizes = [f"{shape[-1]}x{shape[-2]}" for shape in (image.shape, rows.shape)]
            raise UserError(
                f"{name} is an image of {sizes[0]} but {first} of {sizes[1]}; scale or cut all images to one size"
            )
        if len(image) > rows.shape[1]:
            rows = np.repeat(rows, len(image), axis=1)
        rows[number] = image
    return rows


def _decode(name: str, raw: bytes) -> Array:
    """Returns a grey image as [1, H, W] and any other as [3, H, W]."""
    import PIL.Image  # noqa: PLC0415

    try:
        with PIL.Image.open(io.BytesIO(raw)) as stored:
            mode = stored.mode
            image = np.asarray(stored.convert("L" if mode in ("1", "L") else "RGB"))
    except Exception as problem:  # a broken image may raise anything at all
        raise UserError(f"{name} is not a whole image ({type(problem).__name__}); {AGAIN}") from problem
    if mode.startswith(DEEP):
        raise UserError(
            f"{name} has more than 8 bits for each pixel (mode {mode}); save it with 8 bits, or as arrays"
        )
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
