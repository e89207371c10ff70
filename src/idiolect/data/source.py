"""What is known of a dataset that lives in files: where they lie, how they are got, what they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KnownFile", "Source"]


@dataclass(frozen=True)
class KnownFile:
    """A file by its canonical name, with the md5 of its canonical bytes, or None where its archive's must do."""

    name: str
    md5: str | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A dataset in files.

    Args:
        name: what the catalogue calls it.
        layout: names its reader.
        folder: its own folder in the data folder; "." where its files lie in the data folder itself.
        n_train, n_test, n_classes, shape, mean, std: as in `Dataset`, for the whole of it.
        vocabulary: number of different tokens, or None for images.
        home, licence: where it comes from, and on what terms.
        train_files, test_files: the files of its parts, where they are known one by one.
        more_files: files that a download brings along and `load` reads only when an option asks for them.
        needs: what must lie in the folder besides, as patterns; "a|b" is met by either.
        base_url: the address that files, or the archive, are fetched from; empty without a plain download.
        archive: the one download that holds everything.
        taken: pattern of the archive's members; the group is the path in the dataset's folder.
        by_hand: what to do where there is no plain download; ends in "into", and the folder follows.
    """

    name: str
    layout: str
    folder: str
    n_train: int
    n_test: int
    n_classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocabulary: int | None = None
    home: str
    licence: str
    train_files: tuple[KnownFile, ...] = ()
    test_files: tuple[KnownFile, ...] = ()
    more_files: tuple[KnownFile, ...] = ()
    needs: tuple[str, ...] = ()
    base_url: str = ""
    archive: KnownFile | None = None
    taken: str = ""
    by_hand: str = ""

    @property
    def files(self) -> tuple[KnownFile, ...]:
        """The files that `load` reads."""
        return self.train_files + self.test_files

    @property
    def members(self) -> re.Pattern[str]:
        """Which members of the archive are taken; the group is where each goes."""
        names = "|".join(re.escape(file.name) for file in self.files + self.more_files)
        return re.compile(self.taken or f"{re.escape(self.folder)}/({names})")
