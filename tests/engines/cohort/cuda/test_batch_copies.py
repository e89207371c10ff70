"""A kernel that cannot be compiled here is done without; whatever else is wrong with it comes up."""

from __future__ import annotations

from subprocess import CalledProcessError

import pytest
import torch

from idiolect.engines.cohort.cuda.cuda_graphs import BatchCopier


class Broken(BatchCopier):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def _copy_by_kernel(self, ahead: int) -> None:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("no C compiler"), CalledProcessError(1, "cc")])
def test_without_a_compiler_there_is_no_kernel(error):
    assert not Broken(error)._has_kernel()


@pytest.mark.parametrize("error", [TypeError("a mistake of ours"), torch.OutOfMemoryError("no memory")])
def test_other_errors_come_up(error):
    with pytest.raises(type(error)):
        Broken(error)._has_kernel()
