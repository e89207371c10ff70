"""Pairs of cells that were named before anything was run: which is better, tested over seeds.

Every seed has a partition of its own, so that the differences by seed are independent: Student's t over them, from
three seeds on, and Holm's correction over the pairs of one campaign alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.special import stdtr

from idiolect.experiments.execution import Execution
from idiolect.reproduction.compared_number import ComparedNumber, t_interval
from idiolect.reproduction.papers import TableCell, table
from idiolect.reproduction.recorded import RecordedUse, recorded_request
from idiolect.reproduction.reproduction_result import Reproduction, number_text, write_reproduction
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import Results
from idiolect.reproduction.tables import cell_number, cell_requests
from idiolect.statistics import FEWEST_UNITS, holm

__all__ = ["NamedPair", "PairResult", "pairs_table", "tested"]

LEVEL = 0.05


class Side(NamedTuple):
    """One side of a pair: a cell of a table; a predictor, where given, is read in place of the cell's."""

    table: str
    row: str
    column: str
    predictor: str = ""

    def cell(self) -> TableCell:
        found = table(self.table).cell(self.row, self.column)
        if not self.predictor:
            return found
        return replace(
            found, reading=replace(found.reading, predictor=self.predictor), value=None, spread=None
        )

    @property
    def text(self) -> str:
        return f"{self.row}{f' as {self.predictor}' if self.predictor else ''}, {self.table} {self.column}"


@dataclass(frozen=True)
class NamedPair:
    """A claim: ``better`` is better than ``worse``.

    Args:
        preset: under which both ran.
        smaller: smaller values are better.
    """

    better: Side
    worse: Side
    preset: str = "paper"
    smaller: bool = False

    @classmethod
    def read(cls, block: Mapping[str, Any]) -> NamedPair:
        others = {key: value for key, value in block.items() if key not in ("better", "worse")}
        return cls(Side(*block["better"]), Side(*block["worse"]), **others)


class PairResult(NamedTuple):
    """By how much the better side is better, in the unit of its cell.

    Args:
        differences: by seed; positive where the better side is better.
        p: two-sided; NaN below three seeds.
    """

    pair: NamedPair
    differences: list[float]
    p: float

    @classmethod
    def of(cls, pair: NamedPair, differences: list[float]) -> PairResult:
        return cls(pair, differences, _p_value(differences))


def _p_value(differences: Sequence[float]) -> float:
    """Returns the p-value of Student's paired test.

    >>> round(_p_value([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    n = len(differences)
    if n < FEWEST_UNITS:
        return math.nan
    if not (spread := stdev(differences)):
        return 0.0 if fmean(differences) else 1.0
    return float(2 * stdtr(n - 1, -abs(fmean(differences)) / (spread / math.sqrt(n))))


def tested(results: Sequence[PairResult]) -> list[str]:
    """Returns for each pair a sentence: the difference, its interval, and the verdict with Holm's correction.

    Args:
        results: of all pairs that were named in advance; those without a verdict yet count in Holm's with p = 1.
    """
    corrected = holm([1.0 if math.isnan(one.p) else one.p for one in results])
    return [_sentence(one, float(p)) for one, p in zip(results, corrected, strict=True)]


def _sentence(found: PairResult, corrected: float) -> str:
    pair, seeds = found.pair, len(found.differences)
    order = "below" if pair.smaller else "above"
    claim = f"{pair.better.text} {order} {pair.worse.text} (preset {pair.preset})"
    if not seeds:
        return f"{claim}: not run"
    text = f"{claim}: better by {fmean(found.differences):.3g}"
    interval = t_interval(found.differences)
    if math.isnan(found.p) or interval is None:
        return f"{text}; {seeds} seed{'s' if seeds > 1 else ''}, no verdict below {FEWEST_UNITS}"
    verdict = "shown" if corrected < LEVEL and fmean(found.differences) > 0 else "not shown"
    if corrected < LEVEL and fmean(found.differences) < 0:
        verdict = "the other order is shown"
    low, high = (number_text(bound) for bound in interval)
    return f"{text} (95 % {low} to {high}), {seeds} seeds, p = {found.p:.2g}, Holm {corrected:.2g}: {verdict}"


def pairs_table(
    id: str,
    pairs: Sequence[NamedPair],
    request: ReproductionRequest,
    results: Results | None,
    execution: Execution,
) -> Reproduction:
    """Writes the verdicts on pairs, whose runs are made or read from results.

    Args:
        request: of the campaign; each pair has its own preset.
    """
    found = [_result(pair, request, results, execution) for pair in pairs]
    numbers = [
        ComparedNumber(one.pair.better.text, one.pair.worse.text).measured(one.differences)
        if one.differences
        else ComparedNumber(
            one.pair.better.text, one.pair.worse.text, missing="not all runs of the pair are there"
        )
        for one in found
    ]
    caption = (
        "by how much the row is better than the column, in pairs named in advance; Holm over all, run or not"
    )
    request = replace(request, results=results, settings={}, grid={}, preset="as each pair says")
    return write_reproduction(id, caption, numbers, tested(found), request, execution.out)[0]


def _result(
    pair: NamedPair, request: ReproductionRequest, results: Results | None, execution: Execution
) -> PairResult:
    values = [
        _by_seed(side.cell(), pair.preset, request, results, execution) for side in (pair.better, pair.worse)
    ]
    common = sorted(values[0].keys() & values[1].keys())
    sign = -1 if pair.smaller else 1
    return PairResult.of(pair, [sign * (values[0][seed] - values[1][seed]) for seed in common])


def _by_seed(
    cell: TableCell, preset: str, request: ReproductionRequest, results: Results | None, execution: Execution
) -> dict[int, float]:
    """Returns the cell's number by seed; seeds without one are left out."""
    own = replace(request, preset=preset, columns=(), methods=(), settings={}, grid={})
    if results is not None:
        own = recorded_request(RecordedUse(results, preset, request.precision), cell.scenarios, own)
    outcomes = own.outcomes(cell_requests(cell, own), execution)
    numbers = {seed: cell_number(cell, replace(own, seeds=(seed,)), outcomes) for seed in own.seeds}
    return {seed: one.value for seed, one in numbers.items() if one.value is not None}
