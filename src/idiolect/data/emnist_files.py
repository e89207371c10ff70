"""The six official splits of EMNIST: how many classes each has, and what its files are called.

Source: G. Cohen, S. Afshar, J. Tapson and A. van Schaik, "EMNIST: an extension of MNIST to handwritten letters",
2017, https://arxiv.org/abs/1702.05373.
"""

from __future__ import annotations

from idiolect.data.source import KnownFile

__all__ = ["DEFAULT_SPLIT", "SPLITS", "emnist_files"]

SPLITS = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
DEFAULT_SPLIT = "byclass"


def emnist_files(split: str, part: str) -> tuple[KnownFile, KnownFile]:
    """The images and the labels of a part, "train" or "test"."""
    stem = f"emnist-{split}-{part}"
    return KnownFile(f"{stem}-images-idx3-ubyte.gz", None), KnownFile(f"{stem}-labels-idx1-ubyte.gz", None)
