"""Little work is done on one thread, and the number of threads is as before afterwards."""

from __future__ import annotations

import pytest
import torch

from idiolect.engines.cpu_tuning import LITTLE, threads_for


@pytest.mark.parametrize(("n_scalars", "threads"), [(LITTLE - 1, 1), (LITTLE, 2)])
def test_threads_follow_the_work(n_scalars: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(n_scalars):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
