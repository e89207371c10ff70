"""A finished reproduction: its numbers, its notes, its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from idiolect.errors import unknown_name
from idiolect.experiments.execution import Execution
from idiolect.reproduction.entry import Entry
from idiolect.reproduction.files import write_files
from idiolect.reproduction.notes import notes_of
from idiolect.reproduction.plan import Ask

__all__ = ["Reproduction", "refuse_unknown", "written"]


@dataclass(frozen=True)
class Reproduction:
    """Args:
    entries: one for every number.
    notes: what a reader of the numbers should know.
    folder: holds the tables; None where there was nothing to run.
    """

    id: str
    caption: str
    quick: bool
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    folder: Path | None

    @property
    def failures(self) -> list[str]:
        """Refusals, each once."""
        return list(dict.fromkeys(one.failed for one in self.entries if one.failed))


def written(
    id: str, caption: str, entries: list[Entry], notes: Sequence[str], ask: Ask, where: Execution
) -> Reproduction:
    """The reproduction, its tables in ``<out>/<id>``, or ``<out>/<id>-quick``."""
    told = notes_of(entries, notes, ask)
    folder = Path(where.out) / (f"{id}-quick" if ask.quick else id)
    title = f"{id} (quick): {caption}" if ask.quick else f"{id}: {caption}"
    write_files(folder, id, entries, title, told, ask.quick)
    return Reproduction(id, caption, ask.quick, tuple(entries), tuple(told), folder)


def refuse_unknown(kind: str, asked: Sequence[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in asked:
        if name not in known:
            raise unknown_name(kind, name, known)
