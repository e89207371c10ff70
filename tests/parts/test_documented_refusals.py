"""The document on robustness names the methods that robust parts refuse; all methods are tried with each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.methods.catalogue import METHODS

DOCS = Path(__file__).parents[2] / "docs"
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_bound")


def named_before(document: str, words: str) -> set[str]:
    """Returns the methods of the list that ends in front of ``words``, after a full stop or a colon."""
    text = " ".join((DOCS / document).read_text("utf-8").split())
    listed = re.split(r"[.:] ", text.partition(f" {words}")[0])[-1]
    return set(re.split(r", | and ", listed))


def refused_with(part: str) -> dict[str, str]:
    """Returns the label of every method that refuses a part, and its sentence."""
    found = {}
    for name, entry in METHODS.items():
        try:
            method(f"{name} + {part}")
        except UserError as refused:
            found[entry.label] = str(refused)
    return found


@pytest.mark.parametrize("part", ROBUST)
def test_robust_parts_refuse_the_methods_that_the_document_names(part: str) -> None:
    found = refused_with(part)
    assert found.keys() == named_before(
        "robustness.md", "are therefore refused with every robust part, by name"
    )
    assert all(f"so that {part} would protect nothing" in sentence for sentence in found.values())
