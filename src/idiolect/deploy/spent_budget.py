"""What a deployment has spent of differential privacy: each site counts its uploads, the server keeps what sites say.

A site counts an upload before it leaves, also one that it makes again because the server or the network lost the one
before: that has new noise.  A rollback takes no upload back, so no count ever falls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from idiolect.errors import UserError
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget, Spent
from idiolect.experiments.setting import Setting
from idiolect.records import read_json_object, write_atomically

__all__ = ["SiteBudget", "note_spent", "spent_by_sites"]

UPLOADS, SPENT = "uploads.json", "spent.json"
MOST_UPLOADS = 10**9  # of a round; a file that says more is damaged


@dataclass(frozen=True)
class SiteBudget:
    """The budget of one site in one experiment, where the method promises privacy.

    Args:
        folder: of the site's private state, which holds the count of its uploads.
        most: epsilon above which the site makes no upload; None is no limit.
    """

    setting: Setting
    client: int
    folder: Path
    most: float | None

    def spent(self) -> list[Spent]:
        """Returns what the site has spent, by parts with noise.

        Raises:
            UserError: the count is damaged, or the accountant is not installed.
        """
        return self._of(self._uploads()) if self.setting.numbers_stay_at_sites else []

    def allow(self, round: int) -> None:
        """Refuses an upload that would spend more than the site allows."""
        if self.most is None or not self.setting.numbers_stay_at_sites:
            return
        most = max(one.epsilon for one in self._of(_with_one_more(self._uploads(), round)))
        if most > self.most:
            raise UserError(
                f"the upload of round {round + 1} would bring the site to epsilon {most:.4g}, and most_epsilon in its "
                f"site.toml allows {self.most:g}"
            )

    def count(self, round: int) -> list[float]:
        """Counts an upload that is about to leave; returns epsilon after it, by parts."""
        uploads = _with_one_more(self._uploads(), round)
        write_atomically(self.folder / UPLOADS, json.dumps({str(key): uploads[key] for key in uploads}))
        (self.folder / UPLOADS).chmod(0o600)
        return [one.epsilon for one in self._of(uploads)]

    def sentence(self) -> str:
        """Returns in words what the site has spent."""
        uploads = self._uploads()
        each = ", ".join(
            f"{one.part.written} epsilon {one.epsilon:.4g} at delta {one.guarantee.delta:g}"
            for one in self._of(uploads)
        )
        return f"has spent with {sum(uploads.values())} uploads: {each}"

    def _of(self, uploads: Mapping[int, int]) -> list[Spent]:
        times = {(round, self.client): count for round, count in uploads.items()}
        return [one for one in PrivacyBudget(self.setting, times).after(0) if one.guarantee.noise]

    def _uploads(self) -> dict[int, int]:
        """Returns by round how many uploads the site has made for it."""
        path = self.folder / UPLOADS
        try:
            found = {int(key): count for key, count in read_json_object(path).items()}
            if not all(type(count) is int and 0 < count <= MOST_UPLOADS for count in found.values()):
                raise ValueError("an upload is counted once")
            return found
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise UserError(
                f"{path} is damaged, so that nobody knows what the site has spent of its privacy; put a copy back, or "
                "leave this experiment"
            ) from None


def _with_one_more(uploads: Mapping[int, int], round: int) -> dict[int, int]:
    return {**uploads, round: uploads.get(round, 0) + 1}


def spent_by_sites(folder: Path, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Returns by site what it said last that it has spent; a damaged file costs little, since sites say it again."""
    path = folder / SPENT
    try:
        return {str(site): [float(one) for one in each] for site, each in read_json_object(path).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError):
        path.replace(path.with_suffix(".damaged"))
        say(
            f"{path} was damaged and is kept as {path.with_suffix('.damaged').name}; sites say again what they spent"
        )
        return {}


def note_spent(folder: Path, spent: dict[str, list[float]], said: Mapping[str, list[float]]) -> None:
    """Adds to ``spent`` what sites said, where it is more, and writes it."""
    for site, numbers in said.items():
        before = spent.get(site, [0.0] * len(numbers))
        spent[site] = [max(pair) for pair in zip(before, numbers, strict=True)]
    if said:
        write_atomically(folder / SPENT, json.dumps(spent))
