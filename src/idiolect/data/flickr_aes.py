"""FLICKR-AES: photographs with the scores, 1 to 5, that each rater gave them; a score is a class, a rater a client.

    FLICKR-AES_image_labeled_by_each_worker.csv: worker, imagePair, score; images in the folder 40K

Source: J. Ren et al., "Personalized image aesthetics", ICCV 2017.  Arivazhagan et al. (FedPer), 2019,
https://arxiv.org/abs/1912.00818, section 4.1, use raters with 60 to 290 ratings.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from idiolect.data.image_files import decode, read_file
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import ReaderResult
from idiolect.data.sources import Source
from idiolect.errors import UserError

__all__ = ["read_flickr_aes"]

FIELDS = ("worker", "imagePair", "score")
SCORES = {str(score): score - 1 for score in range(1, 6)}


class _Rating(NamedTuple):
    rater: str
    image: str
    label: int


def read_flickr_aes(
    source: Source, root: Path, *, size: int = 224, min_ratings: int = 60, max_ratings: int = 290
) -> ReaderResult:
    """Reads one row per rating: the image, and the score minus one.

    Args:
        size: images are scaled to size x size, whatever their shape (FedPer does not state it).
        min_ratings, max_ratings: raters with fewer or more ratings are left out, before images are read; a row
            takes 3 size^2 bytes, and all 193,208 ratings at the default size would take 29 GB.

    Ratings of images that are not in the folder are left out and counted.
    """
    for option, value in (("size", size), ("min_ratings", min_ratings), ("max_ratings", max_ratings)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"dataset {source.name}: {option} must be a whole number from 1, not {value!r}")
    folder, advice = locate(source, root), fetch_again(source, root)
    raw = read_file(folder / source.needs[0], advice)
    ratings = _ratings(raw, folder / source.needs[0], advice)
    there = {path.name for path in (folder / "40K").iterdir()}
    usable = [rating for rating in ratings if rating.image in there]
    counts = Counter(rating.rater for rating in usable)
    kept = [rating for rating in usable if min_ratings <= counts[rating.rater] <= max_ratings]
    if not kept:
        raise UserError(
            f"dataset {source.name}: no rater of {folder} has from min_ratings={min_ratings} to "
            f"max_ratings={max_ratings} ratings of images that are there; widen the range, or {advice}"
        )
    left_out = {
        "ratings without an image": len(ratings) - len(usable),
        "ratings of other raters": len(usable) - len(kept),
    }
    sums = {source.needs[0]: hashlib.sha256(raw).hexdigest()}
    return _content(kept, folder / "40K", size, advice, sums)._replace(left_out=left_out)


def _ratings(raw: bytes, path: Path, advice: str) -> list[_Rating]:
    try:
        lines = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise UserError(f"{path} is not a table of ratings ({problem}); {advice}") from problem
    if not lines or tuple(field.strip() for field in lines[0]) != FIELDS:
        raise UserError(f"{path}: expected the columns {', '.join(FIELDS)}; {advice}")
    found = []
    for number, line in enumerate(lines[1:], start=2):
        fields = [field.strip() for field in line]
        if len(fields) != 3 or not fields[0] or fields[2] not in SCORES or Path(fields[1]).name != fields[1]:
            raise UserError(f"{path}, line {number}: expected a rater, an image and a score 1 to 5; {advice}")
        found.append(_Rating(fields[0], fields[1], SCORES[fields[2]]))
    return found


def _content(
    ratings: list[_Rating], folder: Path, size: int, advice: str, sums: dict[str, str]
) -> ReaderResult:
    """Decodes every image once, into the rows of all its ratings."""
    rows_of: dict[str, list[int]] = {}
    for row, rating in enumerate(ratings):
        rows_of.setdefault(rating.image, []).append(row)
    x, digest = np.empty((len(ratings), 3, size, size), np.uint8), hashlib.sha256()
    for name in sorted(rows_of):
        raw = read_file(folder / name, advice)
        x[rows_of[name]] = decode(raw, folder / name, size, advice, resize=True)
        digest.update(name.encode())
        digest.update(raw)
    owners = tuple(sorted({rating.rater for rating in ratings}))
    number = {rater: k for k, rater in enumerate(owners)}
    return ReaderResult(
        train_x=x,
        train_y=np.array([rating.label for rating in ratings], np.int64),
        test_x=np.empty((0, 3, size, size), np.uint8),
        test_y=np.empty(0, np.int64),
        sha256=sums | {folder.name: digest.hexdigest()},
        train_ids=np.array([number[rating.rater] for rating in ratings], np.int64),
        owners=owners,
    )
