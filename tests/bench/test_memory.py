"""Memory of a process and its children, seen from outside."""

import mmap
import multiprocessing
import os
import time

import numpy as np
import pytest

from idiolect.bench.memory import PeakMemory, resident

pytestmark = pytest.mark.skipif(resident(os.getpid()) is None, reason="the kernel does not tell")
BLOCK = 100 * 2**20


def test_peak_is_remembered_after_the_block_is_gone():
    before = resident(os.getpid())
    with PeakMemory(os.getpid()) as memory:
        block = mmap.mmap(-1, BLOCK)  # goes back to the system at once, whatever the allocator keeps
        np.frombuffer(block, np.uint8)[::4096] = 1
        time.sleep(0.2)
        block.close()
    assert memory.peak - before > 0.8 * BLOCK
    assert resident(os.getpid()) - before < 0.5 * BLOCK


def hold(pipe):
    block = np.ones(BLOCK, np.uint8)
    pipe.send(int(block[0]))
    pipe.recv()


def test_children_count_and_shared_pages_count_once():
    block = np.ones(BLOCK, np.uint8)
    ours, theirs = multiprocessing.Pipe()
    before = resident(os.getpid())
    child = multiprocessing.get_context("fork").Process(target=hold, args=(theirs,), daemon=True)
    child.start()
    try:
        ours.recv()
        grown = resident(os.getpid()) - before
    finally:
        child.kill()
        child.join()
    assert block[0] and 0.8 * BLOCK < grown < 1.6 * BLOCK


def test_process_that_is_gone_has_no_memory():
    assert resident(2**22 + 1) is None
