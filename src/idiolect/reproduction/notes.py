"""What stands under a reproduced table."""

from __future__ import annotations

from collections.abc import Sequence

from idiolect.reproduction.entry import Entry
from idiolect.reproduction.plan import Ask
from idiolect.reproduction.quick import MARK

__all__ = ["notes_of"]


def notes_of(entries: Sequence[Entry], given: Sequence[str], ask: Ask) -> list[str]:
    """The mark of a quick one, what the numbers are, what was not run and why, what was refused, doubts."""
    several = len(ask.seeds) > 1
    found = [MARK] if ask.quick else ["measured, and the paper's number in brackets"]
    found.append(f"preset {ask.preset}, {len(ask.seeds)} seed{'s' if several else ''}")
    if several:
        found.append("±: half the 95 % t interval of the mean over seeds")
    if ask.grid:
        found.append("the best of the authors' settings, chosen on test data as in the paper")
        found.append("a mean over several scenes is the mean of each scene's own best")
    found += given
    doubts = dict.fromkeys((one.column, one.note) for one in entries if one.note and not ask.quick)
    found += [f"{column}: {note}" for column, note in doubts]
    for word, field in (("not run", "missing"), ("refused", "failed")):
        reasons: dict[str, list[str]] = {}
        for one in entries:
            if getattr(one, field):
                reasons.setdefault(getattr(one, field), []).append(f"{one.row} / {one.column}")
        found += [f"{word} ({_listed(cells)}): {reason}" for reason, cells in reasons.items()]
    return found


def _listed(cells: list[str]) -> str:
    return ", ".join(cells) if len(cells) <= 4 else f"{', '.join(cells[:3])} and {len(cells) - 3} more"
