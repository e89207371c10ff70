"""A decorator for a method that takes all options of another one: it extends the signature by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from idiolect.core import Method

__all__ = ["with_options_of"]

Make = Callable[..., Method]


def with_options_of(other: Make) -> Callable[[Make], Make]:
    """Puts the options of ``other`` into a factory's signature, before its own.

    The signature is what a method is configured by.  The factory gets all options as keywords.

    >>> from idiolect.core import chain
    >>> def one(weight: float = 0.1) -> Method: return chain(name=f"one {weight}")
    >>> @with_options_of(one)
    ... def two(*, count: int = 3, **options) -> Method: return chain(name=f"two {count} {options}")
    >>> [str(option) for option in signature(two).parameters.values()]
    ["weight: 'float' = 0.1", "count: 'int' = 3"]
    >>> two(0.5).name
    "two 3 {'weight': 0.5}"
    """

    def extended(make: Make) -> Make:
        own = [p for p in signature(make).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        whole = signature(make).replace(parameters=[*signature(other).parameters.values(), *own])

        @wraps(make)
        def made(*values: Any, **options: Any) -> Method:
            return make(**whole.bind(*values, **options).arguments)

        made.__signature__ = whole  # type: ignore[attr-defined]
        return made

    return extended
