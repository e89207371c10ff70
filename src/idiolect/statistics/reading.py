"""Which evaluation of a run its final value is read from: the last, a mean of the last few, or a validated one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from idiolect.errors import UserError, refuse_outside

__all__ = ["LAST", "RULES", "Reading", "as_reading"]

RULES = ("last", "mean", "validated")
FORM = re.compile(r"(last|validated)|mean(?:\((\d+)\))?")


@dataclass(frozen=True)
class Reading:
    """A rule that turns the evaluations of a run into its final values, the same for every method of a table.

    Values that a method measures at the end of the run, such as PersFL's companion, count as they are under every rule:
    they belong to a model that no earlier round had.

    Args:
        rule: ``last`` takes the last evaluation; ``mean`` the mean of each client's last evaluations; ``validated``
            the round in which the headline is best on the clients' validation data, by the metric that judges the
            run.
        evaluations: how many evaluations ``mean`` takes, or all where there are fewer.

    >>> str(Reading()), str(Reading("mean")), Reading("mean", 3).words
    ('last', 'mean(5)', 'mean of the last 3 evaluations')
    """

    rule: str = "last"
    evaluations: int = 5

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UserError(f"a reading is last, mean(5) or validated; got {self.rule!r}")
        refuse_outside("the number of evaluations of a reading", self.evaluations, 1)

    def __str__(self) -> str:
        return f"mean({self.evaluations})" if self.rule == "mean" else self.rule

    @property
    def words(self) -> str:
        """What a heading says about it."""
        return {
            "last": "last evaluation",
            "mean": f"mean of the last {self.evaluations} evaluations",
            "validated": "round that is best on validation data",
        }[self.rule]


LAST = Reading()


def as_reading(text: str | Reading) -> Reading:
    """Returns the reading that a text such as ``mean(5)`` names.

    >>> as_reading("mean(3)"), as_reading("validated").rule
    (Reading(rule='mean', evaluations=3), 'validated')

    Raises:
        UserError: the text names none.
    """
    if isinstance(text, Reading):
        return text
    found = FORM.fullmatch(text.replace(" ", ""))
    if not found:
        raise UserError(f"a reading is last, mean(5) or validated; got {text!r}")
    if found[1]:
        return Reading(found[1])
    return Reading("mean", int(found[2])) if found[2] else Reading("mean")
