"""Trees as flat dicts, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.records.checkpoints import flatten, unflatten

KEYS = st.text(max_size=4) | st.sampled_from(["a/b", "~1", "~", "", "__metadata__"])
TREES = st.dictionaries(
    KEYS, st.recursive(st.integers(), lambda below: st.dictionaries(KEYS, below, max_size=3))
)


@given(TREES)
def test_layout_builds_the_same_tree_again(tree: dict[str, Any]) -> None:
    layout, leaves = flatten(tree)
    assert unflatten(layout, leaves) == tree


def test_layout_refuses_two_keys_that_read_alike() -> None:
    with pytest.raises(ValueError, match="'1'"):
        flatten({"private": {1: 0, "1": 0}})
