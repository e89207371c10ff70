"""Parts whose hooks are watched: what they write into, draw from torch's random state, and return when asked twice.

A hook that returns a function (``loss``, ``forward``, ``gradient`` and others) is watched through that function.  A
call that no other watched call is part of is made twice; what differs is blamed on the innermost function that gave
two answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import debug_unwrap

from idiolect.core import Measure, Method, Part, Plan, Stage, View
from idiolect.core.trees import tree_map
from idiolect.testing.sameness import FLOAT64, differences

__all__ = ["HOOKS", "Breach", "Watch", "global_random_state_kept", "named_hooks", "watched"]

HOOKS = (
    "init_server",
    "init_client",
    "start",
    "forward",
    "criterion",
    "loss",
    "carry",
    "gradient",
    "reduce",
    "upload",
    "finish",
    "score",
    "personalise",
    "origin",
    "release",
    "gather",
    "merge",
    "serve",
    "serve_slot",
    "init_kept",
    "keep",
    "personal_download",
    "shared_model",
    "predictors",
    "remarks",
)
Leaves = dict[tuple[str, ...], Tensor]


class Breach(NamedTuple):
    """What a hook does that it must not do.

    Args:
        rule: ``writes``, ``impure`` or ``form``.
        where: the part and the hook.
        what: the rest of the sentence.
    """

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"the {self.where} {self.what}"


@dataclass
class Watch:
    """Collects what watched hooks do that they must not do, and the error that ended the watch, if any."""

    breaches: list[Breach] = field(default_factory=list)
    error: Exception | None = None
    _answers: list[tuple[str, Leaves]] | None = None  # of watched calls inside the one that is made now

    def of(self, rule: str) -> list[Breach]:
        return [breach for breach in self.breaches if breach.rule == rule]

    def add(self, rule: str, where: str, what: str) -> None:
        if not any((breach.rule, breach.where) == (rule, where) for breach in self.breaches):
            self.breaches.append(Breach(rule, where, what))

    def function(self, where: str, function: Callable[..., Any], seen: tuple[Any, ...]) -> Callable[..., Any]:
        """Returns ``function`` watched.

        Args:
            seen: what the function can read besides its arguments.
        """

        def watched(*arguments: Any, **named: Any) -> Any:
            given = (seen, arguments, named)
            if self._answers is not None:
                return self._once(where, function, given)
            first = self._traced(where, function, given)
            self._compare(first[1], self._traced(where, function, given)[1])
            return first[0]

        return watched

    def _traced(self, where: str, function: Callable[..., Any], given: Any) -> tuple[Any, Any]:
        self._answers = []
        try:
            return self._once(where, function, given), self._answers
        finally:
            self._answers = None

    def _compare(self, first: list[tuple[str, Leaves]], second: list[tuple[str, Leaves]]) -> None:
        for (where, one), (_, other) in zip(first, second, strict=False):
            if found := next(differences(one, other, FLOAT64), None):
                self.add("impure", where, f"returns two answers to the same inputs: {found}")
                return

    def _once(self, where: str, function: Callable[..., Any], given: Any) -> Any:
        """Calls a function once, and looks at its inputs, its answer and the random state."""
        before = {path: leaf.detach().clone() for path, leaf in tensors(given).items()}
        state, known = _random_state(), len(self.of("impure"))
        _, arguments, named = given
        try:
            answer = function(*arguments, **named)
        except Exception as error:
            if "in-place" in str(error) or "inplace" in str(error):
                self.add("writes", where, f"writes into a tensor in place: {str(error).splitlines()[0]}")
            error.add_note(f"in the {where}")
            raise
        if changed := _changed(before, tensors(given)):
            self.add("writes", where, f"writes into its input {changed}")
        if len(self.of("impure")) == known and not _same_state(state, _random_state()):
            self.add("impure", where, "draws from a global random state; use Part.draws or Initial.draw")
        if self._answers is not None:
            self._answers.append((where, {path: leaf.detach() for path, leaf in tensors(answer).items()}))
        return _wrapped(answer, lambda inside: self.function(where, inside, given))


def watched(method: Method, watch: Watch) -> Method:
    """Returns the method with every hook watched, those of its stages included."""
    return _with_hooks(method, watch.function, watch)


def named_hooks(method: Method) -> Method:
    """Returns the method with functions that name their part and hook when they fail, and do nothing else."""

    def noting(where: str, function: Callable[..., Any], seen: tuple[Any, ...]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            try:
                answer = function(*arguments, **named)
            except Exception as error:
                note = f"in the {where}"
                if not hasattr(error, "__notes__"):
                    error.add_note(note)
                raise
            return _wrapped(answer, lambda inside: noting(where, inside, ()))

        return noted

    return _with_hooks(method, noting, None)


def _with_hooks(method: Method, wrap: Callable[..., Callable[..., Any]], watch: Watch | None) -> Method:
    def hooked(part: Part) -> Part:
        new: dict[str, Any] = {}
        for hook in HOOKS:
            if (function := getattr(part, hook)) is not None:
                where = f"hook {hook!r} of the part {part.name!r}"
                made = wrap(where, function, ())
                new[hook] = made if watch is None else _keeping_form(watch, hook, where, made, part)
        if part.stages is not None:
            new["stages"] = _hooked_stages(part.stages, part.name, wrap)
        return part._replace(**new)

    return replace(method, parts=tuple(hooked(part) for part in method.parts))


def _hooked_stages(stages: Callable[..., Plan], owner: str, wrap: Callable[..., Any]) -> Callable[..., Plan]:
    """Returns the hook ``stages`` whose new stages have watched functions."""

    def stage_with(stage: Stage) -> Stage:
        where = f"stage {stage.name!r} of the part {owner!r}"
        new: dict[str, Any] = {
            name: wrap(f"function {name!r} of the {where}", getattr(stage, name), ())
            for name in ("start", "objective")
            if getattr(stage, name) is not None
        }
        if stage.measure is not None:
            new["measure"] = Measure(
                *(wrap(f"measure of the {where}", function, ()) for function in stage.measure)
            )
        return replace(stage, **new)

    def edited(plan: Plan, *given: Any) -> Plan:
        known = {id(stage) for phase in plan for stage in phase}
        new = stages(plan, *given)
        return Plan(*(tuple(s if id(s) in known else stage_with(s) for s in phase) for phase in new))

    return edited


def _keeping_form(
    watch: Watch, hook: str, where: str, function: Callable[..., Any], part: Part
) -> Callable[..., Any]:
    """Returns a hook that also compares the slot that it returns with the slot that it was given."""

    def compared(*arguments: Any) -> Any:
        answer = function(*arguments)
        pairs: list[tuple[str, Any, Any]] = []
        if hook == "finish":
            pairs = [("the private slot", answer, arguments[-1].private)]
        elif hook == "merge":
            pairs = [("the shared parameters", answer[0], arguments[0])]
            pairs += [("the server slot", answer[1], arguments[1])] if part.init_server else []
        elif hook == "keep":
            uploaded, view = arguments
            kept = view.kept.rows(uploaded.clients)
            pairs = [("what is kept", answer[0], kept)] if part.init_kept else []
            pairs += [("the server slot", answer[1], view.slot)] if part.init_server else []
        elif hook == "serve_slot":
            pairs = [("the server slot", answer, arguments[-1].server)]
        for name, new, old in pairs:
            if changed := _changed_form(new, old):
                watch.add("form", where, f"returns {name} in another form: {changed}")
        return answer

    return compared


def _changed_form(new: Any, old: Any) -> str:
    ours, theirs = tensors(new), tensors(old)
    for path in sorted(theirs.keys() - ours.keys()):
        return f"{'/'.join(path)} is missing"
    for path in sorted(ours.keys() - theirs.keys()):
        return f"{'/'.join(path)} is new"
    for path, leaf in ours.items():
        if (leaf.shape, leaf.dtype) != (theirs[path].shape, theirs[path].dtype):
            was = f"{tuple(theirs[path].shape)} of {theirs[path].dtype}"
            return f"{'/'.join(path)} is {tuple(leaf.shape)} of {leaf.dtype} and was {was}"
    return ""


def tensors(tree: Any, path: tuple[str, ...] = ()) -> Leaves:
    """Returns the tensors in nested containers and dataclasses, without functions and plain values.

    Where ``vmap`` shows a hook one row, as gradients of single examples do, a tensor has all rows.
    """
    if isinstance(tree, Tensor):
        return {path: debug_unwrap(tree, recurse=True)}
    if isinstance(tree, View):
        names = ("origin", "received", "current", "server", "private", "download", "facts", "uploads")
        tree = {f"view.{name}": getattr(tree, name) for name in names}
    elif is_dataclass(tree) and not isinstance(tree, type):
        tree = vars(tree)
    elif isinstance(tree, list | tuple):
        tree = dict(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    if not isinstance(tree, dict):
        return {}
    return {
        place: leaf
        for key, below in tree.items()
        for place, leaf in tensors(below, (*path, str(key))).items()
    }


def _changed(before: Leaves, after: Leaves) -> str:
    """Names the first tensor that is not what it was."""
    for path in [*(before.keys() ^ after.keys()), *(path for path in before if path in after)]:
        if path not in before or path not in after or not _identical(before[path], after[path].detach()):
            return "/".join(key for key in path if not key.isdigit()) or "itself"
    return ""


def _identical(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _wrapped(answer: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """Returns the answer of a hook with every function inside it wrapped."""
    return tree_map(lambda leaf: wrap(leaf) if callable(leaf) else leaf, answer)


def _random_state() -> tuple[Tensor, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _same_state(one: tuple[Tensor, Any, Any], other: tuple[Tensor, Any, Any]) -> bool:
    same_numpy = all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    return bool(torch.equal(one[0], other[0])) and same_numpy and one[2] == other[2]


@contextmanager
def global_random_state_kept() -> Iterator[None]:
    """Leaves the random states of torch, numpy and Python as they were, whatever is drawn inside."""
    kept = _random_state()
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])
