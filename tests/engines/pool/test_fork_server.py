"""Interrupts, early ends and failing starts leave no wrong answer, no process and no memory behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
import torch

from idiolect.core import Part, broadcast
from idiolect.engines import EngineChoice, PoolEngine
from idiolect.engines.pool.fork_server import ForkServer, fork_server
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.experiments.setting import Setting, prepare

from ...child_process import is_running

SCENE = Experiment(
    dataset="synthetic",
    partition="iid",
    clients=4,
    model="mlpnet(hidden=8)",
    rounds=1,
    participation_rate=1.0,
)


@pytest.fixture
def setting() -> Setting:
    return prepare(SCENE, EngineChoice("pool", "cpu", "as asked"))


def _round(engine: PoolEngine, setting: Setting) -> list[Any]:
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in range(4)}
    return list(engine.round(setting.program(0), sent, first, False))


def _open_files() -> list[str]:
    """What the memory files, pipes and sockets of this process are, one entry each."""
    gc.collect()
    found = []
    for file in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(file).partition("[")[0])
        except FileNotFoundError:  # the folder itself, while it was listed
            continue
    return sorted(name for name in found if name.startswith(("/memfd:idiolect", "pipe:", "socket:")))


@contextmanager
def _interrupt_before_the_answer_is_read(server: ForkServer) -> Iterator[None]:
    """Holds the server until the request in the block has been sent, and lets no one read its answer."""

    def interrupt(*_: Any) -> None:
        os.kill(server._process.pid, signal.SIGCONT)
        assert wait([server._line], timeout=20)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(server._process.pid, signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_an_interrupted_request_ends_the_server_and_the_pool_goes_on_with_another(setting: Setting) -> None:
    said: list[str] = []
    engine = PoolEngine(setting.work, 2, said.append)
    try:
        expected = _round(engine, setting)
        server, workers = engine._running[0].home, [worker.process for worker in engine._running]
        with _interrupt_before_the_answer_is_read(server):
            server.wait(0)  # nobody's number
        assert server.wait(workers[0]) is None, "the answer to the request before"
        assert fork_server() is not server
        found = _round(engine, setting)
        deadline = time.monotonic() + 20
        while any(map(is_running, workers)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        engine.close()
    assert len(said) == 2 and all("died; another trains its clients" in sentence for sentence in said)
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got.loss, wanted.loss)


def test_a_server_without_workers_is_ended_before_it_has_imported_torch() -> None:
    server = ForkServer()
    server.close()
    assert server._process.returncode == -signal.SIGKILL
    assert not server.is_alive


def test_what_cannot_be_sent_is_named_in_a_sentence_and_leaves_no_memory(setting: Setting) -> None:
    lock = threading.Lock()

    def finish(results: Any, view: Any) -> Any:
        with lock:
            return view.private

    method = replace(setting.method, parts=(*setting.method.parts, Part("locked", finish=finish)))
    program = replace(setting.program(0), method=method)
    sent = broadcast(setting.method, setting.first_server())
    engine, before = PoolEngine(setting.work, 2), _open_files()
    with pytest.raises(UserError) as raised:
        engine.round(program, sent, {0: setting.first_private(0)}, False)
    assert str(raised.value) == (
        "a part, the model or the loss of method fedavg holds something that cannot be sent to another process "
        "(cannot pickle '_thread.lock' object); use --engine loop"
    )
    assert _open_files() == before


def test_a_finished_pool_leaves_no_memory(setting: Setting) -> None:
    fork_server()
    before = _open_files()
    engine = PoolEngine(setting.work, 2)
    _round(engine, setting)
    assert len(_open_files()) > len(before)
    engine.close()
    assert _open_files() == before


def test_a_worker_that_cannot_be_started_leaves_no_memory(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(server: ForkServer, files: Any) -> int:
        raise UserError("no worker today")

    fork_server()
    monkeypatch.setattr(ForkServer, "start", start)
    before = _open_files()
    with pytest.raises(UserError, match="no worker today"):
        _round(PoolEngine(setting.work, 2), setting)
    assert _open_files() == before
