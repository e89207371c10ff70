"""Methods with a run that diverged: they have no final numbers, and every table says so in their place.

A method that diverged with one of its seeds has no mean over the others, which would be those that it was lucky with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from idiolect.records import Run, divergence_of
from idiolect.reports.run_groups import identity_of, scenes_of
from idiolect.statistics import replicate_of

__all__ = ["divergence_notes", "divergence_text", "ended_runs"]


def ended_runs(runs: Iterable[Run]) -> list[Run]:
    """Returns the runs of the methods that diverged with no seed."""
    runs = list(runs)
    lost = {identity_of(run) for run in runs if divergence_of(run.manifest) is not None}
    return [run for run in runs if identity_of(run) not in lost]


def divergence_text(group: Sequence[Run]) -> str:
    """Returns what a table says in place of the numbers of one method; empty where no seed diverged."""
    found = [(replicate_of(run), each) for run in group if (each := divergence_of(run.manifest)) is not None]
    if not found:
        return ""
    if len(group) == 1:
        return found[0][1].text
    places = "; ".join(f"seed {replicate.seed}: {each.place}" for replicate, each in found)
    return f"diverged ({len(found)} of {len(group)} seeds; {places})"


def divergence_notes(runs: Iterable[Run]) -> list[str]:
    """Returns a sentence for each method of each scene that diverged."""
    runs = list(runs)
    scenes = scenes_of(runs)
    return [
        f"{label}{f' in {scene}' if len(scenes) > 1 else ''} {text}; it has no final numbers"
        for scene, groups in scenes.items()
        for label, group in groups.items()
        if (text := divergence_text(group))
    ]
