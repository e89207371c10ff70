"""The schema of what sites answer: every field of every kind of answer, its type and its range.

A site is trusted with its own numbers and with nothing else.  What it says of other clients, in another form, out of
range or not finite is refused before anything reads it.  An answer has the fields of its schema and no others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias

from idiolect.core import OBJECTIVES
from idiolect.deploy.configuration import SiteEntry
from idiolect.deploy.private_store import JOIN, MOST_COUNT
from idiolect.deploy.secure_sums import KEY_BYTES, SHARE_BYTES
from idiolect.errors import UserError
from idiolect.evaluation.calibration import BINS
from idiolect.evaluation.metrics import Metric
from idiolect.experiments.rounds.round import FollowUpTasks
from idiolect.experiments.setting import Setting
from idiolect.federation.splits import part_size

__all__ = [
    "MOST_ROWS",
    "OWN_NUMBERS",
    "Check",
    "Unfit",
    "answer",
    "follow_up_answer",
    "greeting_answer",
    "join_answer",
    "rows_at_most",
    "share_answer",
    "training_answer",
    "unmask_answer",
]

MOST_ROWS = 10**9  # of one site's data, where the server was not told how many it has
MOST_STEPS = 10**12  # of an optimiser, for one request
MOST_VALUE = 1e30  # of a loss, a score or a remark, so that sums and means of them stay finite
MOST_FLOPS = 1e30  # for one request
SEAL_BYTES = 16  # that sealing adds to shares
OWN_NUMBERS: tuple[str, ...] = ("examined", "remarks")  # of an answer to a follow-up, about one client
SAMPLES_OF_BIN, SAMPLES_OF_CELL = 2, 3  # columns of the two tables of counts
NOTHING: Mapping[str, Any] = {}
NO_NAMES: list[tuple[str, ...]] = [()]
ALWAYS_DEFINED = ("accuracy", "loss")  # metrics that are means over rows; others may be undefined at a site
ROUNDING = 1e-6  # by which a metric may be beyond its bounds, and a sum of shares beyond its number


class Unfit(UserError):
    """An answer against the schema; the sentence says which field, what it holds and what is expected."""


Check: TypeAlias = Callable[[Any, str], None]  # (value, name of the field) -> None, or raises Unfit


def greeting_answer() -> Check:
    """Returns the schema of the answer to a greeting: the newest private state, and the last request accepted."""
    serial = rows_of(whole(0, MOST_COUNT), whole(0, MOST_COUNT))
    return answer({"position": either(nothing(), _position(MOST_COUNT)), "seen": either(nothing(), serial)})


def training_answer(setting: Setting, observe: bool, sums: bool = False) -> Check:
    """Returns the schema of a client's answer to a round of training.

    Args:
        sums: what it says of itself is added up before the server sees it, but for scores that it shares.
    """
    names = [forms.reported for forms in setting.forms]
    if setting.numbers_stay_at_sites:
        parts = (part.guarantee for part in setting.method.parts if part.guarantee)
        spent = rows_of(*(number(0) for one in parts if one.noise))
        noisy = {**_origin(setting), "digest": DIGEST, "spent": spent}
        return answer(noisy | ({"keys": KEYS} if sums else {"scores": fields({})}), {"scores": fields({})})
    scores: dict[str, Check] = {}
    if observe:
        before = [moment for found in names for moment in (found.untrained, found.merged)]
        scores = {"before": _scores(setting, before), "after": _scores(setting, [f.trained for f in names])}
    origin = {**_origin(setting), "digest": DIGEST}
    if sums:
        return answer({**origin, "keys": KEYS}, {"scores": fields(scores)})
    return answer({**origin, "loss": number(), "scores": fields(scores), "work": WORK})


def follow_up_answer(setting: Setting, site: SiteEntry, tasks: FollowUpTasks, sums: bool = False) -> Check:
    """Returns the schema of a site's answer to the tasks after a merge, or at the end of a run.

    Args:
        sums: what it says of itself is added up before the server sees it, but for scores that it shares.
    """
    wanted: dict[str, Check] = {}
    names = [forms.reported for forms in setting.forms]
    if tasks.settle:
        wanted |= {"digest": DIGEST} if setting.numbers_stay_at_sites else {"digest": DIGEST, "work": WORK}
    if tasks.score:
        moments = [found.end if tasks.settle == "end" else found.merged for found in names]
        validates = (setting.validates and bool(setting.method.choices)) or setting.experiment.score_valid
        valid = moments if validates else NO_NAMES
        wanted |= {"examined": _client_scores(setting, site, moments, valid, tasks.tally)}
    if tasks.remark:
        wanted |= {
            "remarks": either(*(fields(dict.fromkeys(f.remarks, number(undefined=True))) for f in names))
        }
    if not sums:
        return answer({**_origin(setting), **wanted})
    told: dict[str, Check] = {name: wanted.pop(name) for name in OWN_NUMBERS if name in wanted}
    wanted.pop("work", None)
    is_summed = (tasks.settle or tasks.score) and not setting.numbers_stay_at_sites
    keys = {"keys": KEYS} if is_summed else {}
    return answer({**_origin(setting), **wanted, **keys}, told)


def join_answer(setting: Setting, site: SiteEntry, sums: bool = False) -> Check:
    """Returns the schema of a newcomer's answer.

    Args:
        sums: it tells its scores only if it shares them.
    """
    if setting.numbers_stay_at_sites:
        return answer({"digest": DIGEST})
    names = [forms.reported for forms in setting.forms]
    joined = [(*found.trained, *found.merged, *found.end) for found in names]
    chooses = setting.validates and bool(setting.method.choices)
    valid = [found.trained for found in names] if chooses else NO_NAMES
    arrival = rows_of(
        _scores(setting, [found.untrained for found in names]),
        _client_scores(setting, site, joined, valid, tallied=True),
        WORK,
    )
    if sums:
        return answer({"digest": DIGEST}, {"arrival": arrival})
    return answer({"arrival": arrival, "digest": DIGEST})


def share_answer(others: Iterable[str]) -> Check:
    """Returns the schema of a site's shares of its secrets for the others, sealed, and of the digest of one secret."""
    sealed = _hexadecimal(2 * SHARE_BYTES + SEAL_BYTES)
    return answer({"shares": fields(dict.fromkeys(others, sealed)), "commitment": DIGEST})


def unmask_answer(present: Iterable[str], gone: Iterable[str]) -> Check:
    """Returns the schema of the shares that a site reveals: one of each site in the sum, one of each that is gone."""
    share = _hexadecimal(SHARE_BYTES)
    return answer({"own": fields(dict.fromkeys(present, share)), "pairs": fields(dict.fromkeys(gone, share))})


def _origin(setting: Setting) -> dict[str, Check]:
    """Returns the fields that say from which private state a client worked."""
    return {"base": either(nothing(), _position(setting.experiment.rounds)), "base_digest": DIGEST}


def _position(rounds: int) -> Check:
    return rows_of(whole(0, rounds), whole(0, JOIN))


def _scores(setting: Setting, moments: Iterable[tuple[str, ...]]) -> Check:
    """Returns the schema of one client's scores, with the predictors of one of the moments."""
    metrics = {name: rows_of(_value(name, metric)) for name, metric in setting.metrics.items()}
    return either(*(fields(dict.fromkeys(names, fields(metrics))) for names in _distinct(moments)))


def _client_scores(
    setting: Setting,
    site: SiteEntry,
    moments: list[tuple[str, ...]],
    valid: list[tuple[str, ...]],
    tallied: bool,
) -> Check:
    """Returns the schema of ``plain_scores`` of this site's client alone."""
    counts, own = fields({}), whole(site.client, site.client)
    if tallied and OBJECTIVES[setting.inputs.task].has_classes:
        most = part_size(rows_at_most(site), setting.experiment.test)
        classes, rows = whole(0, setting.inputs.n_classes - 1), whole(0, most)
        bins = together(
            rows_of(own, whole(0, BINS - 1), rows, number(0, MOST_ROWS), rows),
            lambda row: max(row[3], row[4]) <= row[2] * (1 + ROUNDING),
            "no more confidence and no more right than samples",
        )
        cells = rows_of(own, classes, classes, rows)
        tables = rows_of(every(bins, lambda row: row[1]), every(cells, lambda row: (row[1], row[2])))
        forms = either(*(fields(dict.fromkeys(names, tables)) for names in _distinct(moments)))
        counts = together(
            forms,
            lambda found: len(totals := _samples_counted(found)) <= 1 and max(totals, default=0) <= most,
            f"counts of the same samples, at most {most} of them,",
        )
    return rows_of(rows_of(own), _scores(setting, moments), _scores(setting, valid), counts)


def rows_at_most(site: SiteEntry) -> int:
    """Returns the most rows that a site can have."""
    return MOST_ROWS if site.rows is None else site.rows


def _samples_counted(counts: dict[str, Any]) -> set[int]:
    """Returns how many samples the tables count; one number where all count the same samples, as they should."""
    return {
        sum(int(row[column]) for row in table)
        for tables in counts.values()
        for column, table in zip((SAMPLES_OF_BIN, SAMPLES_OF_CELL), tables, strict=True)
    }


def _value(name: str, metric: Metric) -> Check:
    low = -MOST_VALUE if metric.low is None else metric.low - ROUNDING
    high = MOST_VALUE if metric.high is None else metric.high + ROUNDING
    return number(low, high, undefined=name not in ALWAYS_DEFINED)


def _distinct(moments: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(names) for names in dict.fromkeys(frozenset(names) for names in moments)]


def answer(wanted: Mapping[str, Check], optional: Mapping[str, Check] = NOTHING) -> Check:
    """Accepts an object with these fields, beside those that say whose answer it is and to what."""
    return fields({**wanted, **dict.fromkeys(("experiment", "site", "serial"), anything)}, optional)


def anything(value: Any, name: str) -> None:
    """Accepts every value; whoever reads the field compares it."""


def nothing() -> Check:
    def check(value: Any, name: str) -> None:
        _refuse_unless(value is None, value, name, "null")

    return check


def number(low: float = -MOST_VALUE, high: float = MOST_VALUE, *, undefined: bool = False) -> Check:
    """Accepts a finite number in a range, and NaN where a value may be ``undefined``."""

    def check(value: Any, name: str) -> None:
        is_number = isinstance(value, float) or (_is_whole(value) and abs(value) <= MOST_FLOPS)
        is_fit = is_number and math.isfinite(value) and low <= value <= high
        is_undefined = undefined and isinstance(value, float) and math.isnan(value)
        _refuse_unless(is_fit or is_undefined, value, name, f"a finite number from {low:.4g} to {high:.4g}")

    return check


def whole(low: int, high: int) -> Check:
    """Accepts a whole number in a range, also one that is written as a float."""

    def check(value: Any, name: str) -> None:
        is_whole = _is_whole(value) or (isinstance(value, float) and value.is_integer())
        expected = f"{low}" if low == high else f"a whole number from {low} to {high}"
        _refuse_unless(is_whole and low <= value <= high, value, name, expected)

    return check


def text(pattern: str, expected: str) -> Check:
    def check(value: Any, name: str) -> None:
        is_fit = isinstance(value, str) and re.fullmatch(pattern, value) is not None
        _refuse_unless(is_fit, value, name, expected)

    return check


def fields(wanted: Mapping[str, Check], optional: Mapping[str, Check] = NOTHING) -> Check:
    """Accepts an object with exactly these fields, and with any of those that are optional."""

    def check(value: Any, name: str) -> None:
        _refuse_unless(isinstance(value, dict), value, name, "an object")
        for field in wanted:
            if field not in value:
                raise Unfit(f"{_below(name, field)} is missing")
        for field in value:
            if field not in wanted and field not in optional:
                raise Unfit(f"{_below(name, _shown(field))} is not expected")
        for field, check_field in {**wanted, **optional}.items():
            if field in value:
                check_field(value[field], _below(name, field))

    return check


def rows_of(*columns: Check) -> Check:
    """Accepts a list with exactly these members."""

    def check(value: Any, name: str) -> None:
        expected = f"a list of {len(columns)}"
        _refuse_unless(isinstance(value, list) and len(value) == len(columns), value, name, expected)
        for place, (column, one) in enumerate(zip(columns, value, strict=True)):
            column(one, f"{name}[{place}]")

    return check


def every(member: Check, about: Callable[[Any], Hashable]) -> Check:
    """Accepts a list of members of one kind, no two of which are ``about`` the same."""

    def check(value: Any, name: str) -> None:
        _refuse_unless(isinstance(value, list), value, name, "a list")
        seen: set[Hashable] = set()
        for place, one in enumerate(value):
            member(one, f"{name}[{place}]")
            if about(one) in seen:
                raise Unfit(f"{name}[{place}] says again what was said before")
            seen.add(about(one))

    return check


def either(*checks: Check) -> Check:
    """Accepts what one of the checks accepts; the refusal is that of the last."""

    def check(value: Any, name: str) -> None:
        for one in checks[:-1]:
            try:
                return one(value, name)
            except Unfit:
                continue
        return checks[-1](value, name)

    return check


def together(member: Check, holds: Callable[[Any], bool], expected: str) -> Check:
    """Accepts what ``member`` accepts and what also ``holds`` as a whole."""

    def check(value: Any, name: str) -> None:
        member(value, name)
        _refuse_unless(holds(value), value, name, expected)

    return check


def _hexadecimal(size: int) -> Check:
    return text(f"[0-9a-f]{{{2 * size}}}", f"{size} bytes as hexadecimal digits")


DIGEST = text("[0-9a-f]{64}", "64 hexadecimal digits")
KEYS = fields(
    {
        "cipher": _hexadecimal(KEY_BYTES),
        "mask": _hexadecimal(KEY_BYTES),
        "signature": text("([0-9a-f]{2}){8,80}", "a signature as hexadecimal digits"),
    }
)
WORK = rows_of(whole(0, MOST_STEPS), number(0, MOST_FLOPS, undefined=True))


def _refuse_unless(is_fit: bool, value: Any, name: str, expected: str) -> None:
    if not is_fit:
        raise Unfit(f"{name or 'the answer'} is {_shown(value)} where {expected} is expected")


def _below(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Returns a value as a few harmless characters, whatever a site has sent."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if _is_whole(value) and abs(value) > MOST_FLOPS:
        return "a huge number"
    shown = ascii(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
