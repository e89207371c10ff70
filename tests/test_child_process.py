"""Processes that tests start hear signals, and none is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from .child_process import child_process, is_running

A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""
FAMILY = [sys.executable, "-c", A_CHILD]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_child_hears_what_the_tests_ignore(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with child_process(["sleep", "60"]) as child:
            child.send_signal(number)
            assert child.wait(10) == -number
    finally:
        signal.signal(number, before)


def test_a_failing_test_leaves_no_process_and_no_pipe() -> None:
    with suppress(ZeroDivisionError), child_process(FAMILY, stdout=subprocess.PIPE) as child:
        grandchild = int(child.stdout.readline())
        raise ZeroDivisionError
    assert child.returncode == -signal.SIGKILL and child.stdout.closed
    deadline = time.monotonic() + 10
    while is_running(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.02)
