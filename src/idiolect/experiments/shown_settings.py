"""Signatures that name every setting, so that a notebook, an editor and ``help`` can show and complete them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from idiolect.experiments.execution import Execution
from idiolect.experiments.own_data import DATA_KEYWORDS
from idiolect.experiments.spec import Experiment

__all__ = ["shows_settings"]

F = TypeVar("F", bound=Callable[..., Any])
INSTEAD = {"methods": "method", "seeds": "seed"}  # an argument -> the field that it takes the place of


def shows_settings(function: F) -> F:
    """Gives a function with ``**settings`` a signature in which these stand by name with their defaults.

    >>> from idiolect.experiments.run import run
    >>> inspect.signature(run).parameters["rounds"].default
    40
    """
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    taken = {each.name for each in own}
    taken |= {INSTEAD[name] for name in taken & INSTEAD.keys()}
    fields = [*dataclasses.fields(Experiment), *dataclasses.fields(Execution)]
    known = {
        each.name: (each.default, each.type) for each in fields if each.default is not dataclasses.MISSING
    }
    known |= dict.fromkeys(DATA_KEYWORDS, (None, "Any")) | {"quiet": (False, "bool")}
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in known.items()
        if name not in taken
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *named])
    return function
