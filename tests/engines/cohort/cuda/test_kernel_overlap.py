"""Kernels that are launched ahead of time wait before they touch memory; what a GPU makes of it is tried on one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import idiolect

KERNELS = Path(idiolect.__file__).parent / "engines" / "cohort" / "cuda" / "kernels"


@pytest.mark.parametrize("file", ["convolution.py", "batch_copy.py"])
def test_kernels_that_overlap_wait_first(file: str) -> None:
    functions = [
        node for node in ast.parse((KERNELS / file).read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    kernels = [function for function in functions if "OVERLAPS" in {each.arg for each in function.args.args}]
    assert kernels
    for kernel in kernels:
        first = kernel.body[1 if ast.get_docstring(kernel) else 0]
        assert ast.unparse(first) == "follow(OVERLAPS)", kernel.name
