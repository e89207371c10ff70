"""Reads images from PNG and JPEG files.  Decoding needs Pillow, which Matplotlib installs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from idiolect.errors import UserError

__all__ = ["decode", "read_class_folders", "read_file", "read_images", "sorted_files"]

Image = npt.NDArray[np.uint8]


def read_file(path: Path, advice: str) -> bytes:
    """Returns the bytes of a file; `advice` ends the error where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {advice}") from problem


def sorted_files(folder: Path, pattern: str, advice: str) -> list[Path]:
    """Returns the files of a folder in the order of their names, at least one."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise UserError(f"found no {pattern} in {folder}; {advice}")
    return found


def decode(raw: bytes, path: Path, side: int, advice: str, resize: bool = False) -> Image:
    """Decodes an image in colour, [3, side, side].

    Args:
        raw: the bytes of the file `path`.
        resize: scales an image of another size (bilinear); without it, such an image is refused.
    """
    import PIL.Image  # noqa: PLC0415

    try:
        with PIL.Image.open(io.BytesIO(raw)) as stored:
            image = stored.convert("RGB")
    except Exception as problem:  # a broken image may raise anything at all
        raise UserError(f"{path} is not a whole image ({problem}); {advice}") from problem
    if image.size != (side, side):
        if not resize:
            raise UserError(
                f"{path} is an image of {image.width}x{image.height}, expected {side}x{side}; {advice}"
            )
        image = image.resize((side, side), PIL.Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def read_images(paths: Sequence[Path], side: int, advice: str) -> tuple[Image, str]:
    """Returns the images [N, 3, side, side], and one sha256 over the names and bytes of all files."""
    images, digest = np.empty((len(paths), 3, side, side), np.uint8), hashlib.sha256()
    for image, path in zip(images, paths, strict=True):
        raw = read_file(path, advice)
        image[:] = decode(raw, path, side, advice)
        digest.update(path.name.encode())
        digest.update(raw)
    return images, digest.hexdigest()


def read_class_folders(
    folders: Sequence[Path], pattern: str, side: int, advice: str
) -> tuple[Image, npt.NDArray[np.int64], str]:
    """Returns the images of one folder per class, their classes, and one sha256; all folders must hold equally many."""
    paths = [sorted_files(folder, pattern, advice) for folder in folders]
    sizes = [len(found) for found in paths]
    if min(sizes) != max(sizes):
        few, many = folders[sizes.index(min(sizes))], folders[sizes.index(max(sizes))]
        raise UserError(
            f"{few} holds {min(sizes)} images but {many} holds {max(sizes)}; expected as many of each; {advice}"
        )
    images, digest = read_images([path for found in paths for path in found], side, advice)
    return images, np.repeat(np.arange(len(folders), dtype=np.int64), sizes), digest
