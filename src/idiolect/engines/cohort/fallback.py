"""Warnings of a fallback: what the engine says, in one line, when it goes on more slowly than it could."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["compiling_quietly", "reason_of", "warn_slower"]

COMPILER = ("torch._dynamo", "torch._inductor")
TRACEBACK = "Traceback (most recent call last)"


def warn_slower(sentence: str, error: BaseException) -> None:
    """Warns of what is slower and why, without a place in the source, which would be a second line."""
    warnings.warn_explicit(f"{sentence}: {reason_of(error)}", UserWarning, "idiolect", 1)


def reason_of(error: BaseException) -> str:
    """Returns what the innermost error says, in one line: compilers wrap it in others and add pages to it.

    >>> error = RuntimeError("backend='inductor' raised:")
    >>> error.inner_exception = ValueError("Scalar 5000000000 is out of range for type int32\\n\\nat 3:1")
    >>> reason_of(error)
    'Scalar 5000000000 is out of range for type int32'
    """
    while inner := getattr(error, "inner_exception", None) or error.__cause__:
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if TRACEBACK in str(error) else lines[0]  # an error of another process is its traceback


@contextmanager
def compiling_quietly() -> Iterator[None]:
    """Silences a compiler's warnings and its logs of a kernel that fails, unless ``TORCH_LOGS`` asks for them."""
    loggers = [] if "TORCH_LOGS" in os.environ else [logging.getLogger(name) for name in COMPILER]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
