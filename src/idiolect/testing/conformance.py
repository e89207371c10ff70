"""``check_method``: the conformance suite that every method passes, for methods and parts of anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from idiolect.core import Method, Part
from idiolect.data import Dataset
from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.testing.contracts import CONTRACTS, NAMED, Contract, NotTried
from idiolect.testing.tiny_federation import TARGETS, as_method, tiny_dataset, tiny_setting
from idiolect.testing.trial import Trial
from idiolect.testing.watched_hooks import global_random_state_kept

__all__ = ["MODELS", "Conformance", "ConformanceError", "Finding", "check_method"]

MODELS = ("mlpnet(hidden=8)", "lenet_bn")
OF_HOOKS = ("inputs unmutated", "purity", "slots keep their form")
BASIC = (
    *OF_HOOKS,
    "dry round",
    "whole run",
)  # where one is broken, those after it would only tell consequences


class Finding(NamedTuple):
    """Whether one contract holds.

    Args:
        passed: None if it could not be tried.
        detail: what fails, where, and what to look at.
    """

    contract: str
    passed: bool | None
    detail: str = ""

    def __str__(self) -> str:
        mark = {True: "passed", False: "FAILED", None: "not tried"}[self.passed]
        return f"{mark:<9}  {self.contract}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class Conformance:
    """What ``check_method`` found, one finding for each contract; printed, it is a list."""

    method: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the contracts that fail."""
        return tuple(finding.contract for finding in self.findings if finding.passed is False)

    def __str__(self) -> str:
        return "\n".join([self.method, *(f"  {finding}" for finding in self.findings)])


class ConformanceError(AssertionError):
    """A method breaks a contract; ``report`` holds all findings."""

    def __init__(self, report: Conformance) -> None:
        unproven = [f for f in report.findings if not f.passed]
        told = [f for f in unproven if f.passed is False] or unproven
        lines = [f"{report.method} does not conform", *map(str, told)]
        super().__init__("\n  ".join(lines))
        self.report = report


def check_method(
    method: str | Method | Part,
    *,
    models: Sequence[str] = MODELS,
    task: str = "classification",
    raise_on_failure: bool = True,
) -> Conformance:
    """Checks that a method, or a part of a method, keeps the contracts that engines and records rely on.

    The method is run on six tiny clients of unequal size in float64, for each network: with watched hooks, on tensors
    without values, one client at a time, as a vmapped cohort, padded, in another order, and from a checkpoint.

    Args:
        method: a method, its name or composition, or a part, which is put above an average unless it updates the
            server itself.
        models: the networks to try; one that the method refuses (``Part.check``) is left out.
        task: what the clients learn: ``classification``, ``multilabel`` or ``regression``.
        raise_on_failure: raises if a contract is broken; otherwise the report says so.

    Raises:
        ConformanceError: a contract is broken; the message names it, the part and hook or client, and what to look at.
        UserError: the method refuses every one of the networks.

    >>> from idiolect.core import Part
    >>> print(check_method(Part("adds_nothing"), models=["mlpnet(hidden=4)"]))
    average + adds_nothing
      passed     inputs unmutated
      passed     purity
      passed     slots keep their form
      passed     dry round
      passed     whole run
      passed     nothing private leaves
      passed     client order changes nothing
      passed     padding changes nothing
      passed     cohort equals single clients
      passed     resume equals uninterrupted
      passed     a copy in another process
      passed     a client that is never selected
      passed     predictors evaluate
    """
    refuse_unknown_choice("the task of check_method", task, TARGETS)
    chosen = as_method(method)
    trials = _trials(chosen, models, _dataset_for(task))
    with global_random_state_kept():
        by_model = {model: _findings(trial) for model, trial in trials.items()}
    report = Conformance(chosen.name, tuple(_joined(by_model, row) for row in range(len(CONTRACTS))))
    if raise_on_failure and not report.passed:
        raise ConformanceError(report)
    return report


@lru_cache
def _dataset_for(task: str) -> Dataset:
    """Returns one dataset for all checks of a task, so that they share what is prepared of it."""
    return tiny_dataset(task=task)


def _trials(method: Method, models: Sequence[str], dataset: Dataset) -> dict[str, Trial]:
    """Returns the networks that the method takes; where noise is added, running statistics stay with the clients."""
    trials, refusal = {}, UserError("check_method needs a network; give models at least one name")
    has_noise = any(part.guarantee and part.guarantee.noise for part in method.parts)
    settings = {"newcomers": 1, "buffers": "private" if has_noise else "average"}
    for model in models:
        try:
            trials[model] = Trial.of(tiny_setting(method, dataset, model=model, **settings))
        except UserError as error:
            refusal = error
    if not trials:
        raise refusal
    return trials


def _findings(trial: Trial) -> list[Finding]:
    findings: list[Finding] = []
    for contract in CONTRACTS:
        broken = next((f.contract for f in findings if f.contract in BASIC and f.passed is False), None)
        if broken is not None and contract.name not in OF_HOOKS:
            findings.append(Finding(contract.name, None, f"because of {broken!r}"))
        else:
            findings.append(_tried(contract, trial))
    return findings


def _tried(contract: Contract, trial: Trial) -> Finding:
    try:
        contract.check(trial)
    except NotTried as problem:
        return Finding(contract.name, None, f"because {problem}")
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        kind = "" if isinstance(error, AssertionError | UserError) else f"{type(error).__name__} "
        where = f" ({', '.join(dict.fromkeys(notes))})" if notes else ""
        reason = (str(error).strip().splitlines() or [""])[0]
        names_a_hook = "in the hook" in f"{reason}{where}"
        advice = contract.advice if contract.advises_on(error) else NAMED if names_a_hook else ""
        look = f"; look at: {advice}" if advice else ""
        return Finding(contract.name, False, f"{kind}{reason}{where}{look}")
    return Finding(contract.name, True)


def _joined(by_model: dict[str, list[Finding]], row: int) -> Finding:
    """Returns the finding of one contract over all networks: the worst of them."""
    found = {model: findings[row] for model, findings in by_model.items()}
    for verdict in (False, None):
        for model, finding in found.items():
            if finding.passed is verdict:
                return finding._replace(detail=f"on {model}, {finding.detail}")
    return next(iter(found.values()))
