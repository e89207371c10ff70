"""The table of combinations: which two parts and which two methods work together, and why others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.methods.catalogue import METHODS, PARTS

__all__ = ["Pair", "method_pairs", "pairs", "pairs_page"]

SMALLER = {
    "ensemble_distillation": "ensemble_distillation(steps=2)",
    "optimal_teacher": "optimal_teacher(lambdas=(0.0, 0.5), temperatures=(1.0,), epochs=1)",
}  # options of parts that would take minutes with their defaults


class Pair(NamedTuple):
    """Two parts or two methods, and whether they can be combined."""

    first: str
    second: str
    method: str  # the pair as it is written
    refused: str  # why they cannot be combined; empty if they can


def pairs(attempt: Callable[[str], object]) -> Iterator[Pair]:
    """Tries every two parts of the package with their default options, the one that updates the server first.

    Args:
        attempt: makes a method from its text and tries it, raising ``UserError`` for what cannot work.
    """
    leading = [name for name, make in PARTS.items() if "server update" in make().roles]
    ordered = leading + [name for name in PARTS if name not in leading]
    return _tried(ordered, attempt)


def method_pairs(attempt: Callable[[str], object]) -> Iterator[Pair]:
    """Tries every two methods of the package with their default options, as ``pairs`` tries parts."""
    return _tried(list(METHODS), attempt)


def _tried(names: list[str], attempt: Callable[[str], object]) -> Iterator[Pair]:
    for first, second in combinations(names, 2):
        text = f"{SMALLER.get(first, first)} + {SMALLER.get(second, second)}"
        try:
            attempt(text)
        except UserError as error:
            yield Pair(first, second, text, str(error))
        else:
            yield Pair(first, second, text, "")


INTRODUCTION = """\
Combinations
============

Parts and whole methods are put together with `+`, as in `--method "map + fedadam(learning_rate=0.01)"`.
`idiolect methods "map + fedadam"` explains a composition before it runs.

- Order: the parts act in the order in which they are written, a method's parts at the method's place.  A later part
  wraps the earlier ones: the loss of `fedphp + feddyn` is FedDyn's terms on top of FedPHP's loss.
- Server update: a method has one.  The plain average, which most methods bring, gives way to any other one:
  `ditto + fedadam` has Adam on the server.  An average with a step other than 1, such as that of
  `scaffold(step=0.5)`, does not give way.  FedDF's distillation and FedAwS's spread-out classifier follow whichever
  update there is; FedDF needs one that uploads models; FedNova uploads directions, and FedCP half of a head.
- Robust means: `median`, `trimmed_mean`, `krum`, `multi_krum` and `geometric_median` take the place of the weighted
  mean of whatever is averaged, for any server update, and one method has one of them; `norm_bound` may stand before
  it.  They are refused where they could protect nothing: with FedProto, FedPAC, FedDistill and FedCurv, whose clients
  send sums, with FedAS, whose clients say how much they count, and with methods that read single uploads after the
  merge, such as FedDF, FedAMP and FedFomo.
- The same part: methods that bring the same part with the same options share it, at its first place.  With different
  options they are refused.
- Scene: what a part does otherwise than the scene says, such as SCAFFOLD's momentum 0, it does in a composition too.
- Predictors: each part reports the models it would report alone.  Where two of them have one name, the name says which
  piece each comes from: `companion(ditto)` and `companion(fedphp)`, `composed(fedper)` and `composed(flda)`,
  `LU(fedavg_lu)` and `LU(perfedavg_fo)`.
- Headline: the most personal predictor that a part exists for, whatever the order.  From the most personal on:
  `companion`, `ensemble`, `mix(...)`, `LU`, `composed`, `after-local`, `global`; a name of one's own comes before all.
  Of two of one kind the one that is written first.
- Refusals: a combination in which two parts would undo each other is refused before any training, with the reason and,
  where there is one, a spelling that works.

"""


def pairs_page(parts: list[Pair], methods: list[Pair]) -> str:
    """Writes the Markdown page: the rules, the table of parts, the list of methods, and the reasons of refusals."""
    return (
        INTRODUCTION + "Two parts\n---------\n\n"
        "Every two parts with their default options, `average` beneath those that leave the server alone:\n"
        "ok runs, no is refused before any training.  Columns are numbered like the rows.\n"
        "`idiolect methods --pairs` tries them all.\n\n"
        f"{_working(parts)} of {len(parts)} pairs of parts work.\n\n"
        + _matrix(parts)
        + "\n\nTwo methods\n-----------\n\n"
        "Every two methods with their default options, in either order: those that a method is refused with.\n\n"
        f"{_working(methods)} of {len(methods)} pairs of methods work.\n\n"
        + "\n".join(_refused_with(methods))
        + "\n\nRefused parts\n-------------\n\n"
        + "\n".join(_reasons(parts))
        + "\n\nRefused methods\n---------------\n\n"
        + "\n".join(_reasons(methods))
        + "\n"
    )


def _working(found: list[Pair]) -> int:
    return sum(not pair.refused for pair in found)


def _reasons(found: list[Pair]) -> list[str]:
    return [f"- {pair.first}, {pair.second}: {pair.refused}" for pair in found if pair.refused]


def _names(found: list[Pair]) -> list[str]:
    return list(dict.fromkeys(name for pair in found for name in (pair.first, pair.second)))


def _matrix(found: list[Pair]) -> str:
    names = _names(found)
    refused = {frozenset((pair.first, pair.second)) for pair in found if pair.refused}

    def mark(row: str, column: str) -> str:
        return "" if row == column else "no" if frozenset((row, column)) in refused else "ok"

    table = [["", *(str(number + 1) for number in range(len(names)))], ["---"] * (len(names) + 1)]
    for number, row in enumerate(names):
        table.append([f"{number + 1} {row}", *(mark(row, column) for column in names)])
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def _refused_with(found: list[Pair]) -> Iterator[str]:
    """Yields a line for each method with the others that it cannot be combined with."""
    for name in _names(found):
        refused = [p.second if p.first == name else p.first for p in found if p.refused and name in p[:2]]
        yield f"- {name}: {', '.join(refused) or 'goes with all others'}"
