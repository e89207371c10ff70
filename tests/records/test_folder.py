"""Names and hashes of runs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.records import run_name, spec_hash


def test_spec_hash_ignores_order_and_notices_values() -> None:
    spec = {"a": 1, "b": {"c": [1, 2], "d": 0.1}}
    assert spec_hash(spec) == spec_hash({"b": {"d": 0.1, "c": [1, 2]}, "a": 1})
    assert spec_hash(spec) != spec_hash({"a": 1, "b": {"c": [2, 1], "d": 0.1}})


def test_spec_hash_is_pinned() -> None:
    assert spec_hash({"rounds": 5})[:8] == "1b9b81fd"


def test_spec_hash_refuses_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        spec_hash({"rate": float("nan")})


def test_run_name_joins_its_words() -> None:
    assert (
        run_name("FedAvg", "digits", "dirichlet(0.5)", "a" * 64, 7)
        == "fedavg-digits-dirichlet-0.5-aaaaaaaa-s7"
    )


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300), st.integers(0, 2**31))
def test_run_name_is_safe_as_a_file_name(method: str, dataset: str, partition: str, seed: int) -> None:
    name = run_name(method, dataset, partition, "0123456789", seed)
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*-s\d+", name)
    assert len(name) <= 220
