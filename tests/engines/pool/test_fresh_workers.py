"""Workers of the pool are fresh processes: what they are given, what they inherit, and when they end."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from idiolect.core import broadcast
from idiolect.engines import EngineChoice, LoopEngine, PoolEngine, place
from idiolect.engines.pool.fork_server import ForkServer
from idiolect.engines.pool.shared_memory import file_behind, mapped, shared_copy, shared_empty
from idiolect.engines.pool.worker import WorkerData
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.experiments.setting import Setting, prepare

from ...child_process import child_process, children_of, is_running

SCENE = Experiment(
    dataset="fashion-mnist-12k", partition="iid", clients=40, model="mlpnet(hidden=8)", rounds=1
)
# A user's own method, part, network and tree, none of which can be imported, in a script without a guard.
SCRIPT = """
from typing import NamedTuple

from torch import nn

import idiolect
from idiolect.core import Part
from idiolect.parts import average

print("the script runs")


class Counts(NamedTuple):
    steps: object


def counting(step=1):
    return Part(
        "counting",
        init_client=lambda initial: Counts(next(iter(initial.params.values())).new_zeros(())),
        finish=lambda results, view: Counts(view.private.steps + step),
    )


def build(*, in_channels, image_size, n_classes):
    class Bend(nn.Module):
        def forward(self, x):
            return x.tanh()

    inputs = in_channels * image_size[0] * image_size[1]
    return idiolect.from_module(nn.Sequential(nn.Flatten(), nn.Linear(inputs, 4), Bend()), nn.Linear(4, n_classes))


idiolect.register("mine", lambda: idiolect.chain(average(), counting()))
idiolect.register_model("bent", build)
losses = [
    idiolect.run("mine", model="bent", dataset="synthetic", clients=4, rounds=2, engine=engine,
                 precision="float64", evaluate_every=2, out=engine).rounds.train_loss.tolist()
    for engine in ("pool", "loop")
]
assert max(abs(a - b) / b for a, b in zip(*losses)) < 1e-9, losses
print("equal")
"""


def _setting(**settings: Any) -> Setting:
    return prepare(replace(SCENE, **settings), EngineChoice("pool", "cpu", "as asked"))


def _round(engine: Any, setting: Setting) -> list[Any]:
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in range(4)}
    return list(engine.round(setting.program(0), sent, first, False))


@pytest.mark.parametrize(
    "form",
    [
        "file",
        pytest.param("option -c", marks=pytest.mark.slow),
        pytest.param("standard input", marks=pytest.mark.slow),
    ],
)
def test_what_a_script_defines_reaches_the_workers(form: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = {"file": ["script.py"], "option -c": ["-c", SCRIPT], "standard input": ["-"]}[form]
    with child_process(
        [sys.executable, *words],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        out, err = run.communicate(SCRIPT, timeout=200)
    assert run.returncode == 0, err
    assert out.split("\n") == ["the script runs", "equal", ""]


def test_a_module_that_nothing_can_import_travels_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nowhere_to_be_found.py"
    path.write_text(
        "def doubled(forward):\n    return lambda *given: twice(forward, given)\n\n\n"
        "def twice(forward, given):\n    forward(*given)\n    return forward(*given)\n"
    )
    spec = importlib.util.spec_from_file_location("nowhere_to_be_found", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nowhere_to_be_found", module)
    spec.loader.exec_module(module)
    setting = _setting(dataset="synthetic", clients=4)
    forward = module.doubled(setting.task.forward)
    setting = replace(setting, task=setting.task._replace(forward=forward))
    engine = PoolEngine(setting.work, 1)
    try:
        assert len(_round(engine, setting)) == 4
    finally:
        engine.close()


def test_a_worker_that_cannot_unpack_says_why() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            return importlib.import_module, ("no_module_of_this_name",)

    setting = _setting(dataset="synthetic", clients=4)
    forward, broken = setting.task.forward, Broken()
    task = setting.task._replace(forward=lambda *given: (broken, forward(*given))[1])
    setting = replace(setting, task=task)
    engine = PoolEngine(setting.work, 2)
    with pytest.raises(RuntimeError, match="No module named 'no_module_of_this_name'"):
        _round(engine, setting)


def test_inputs_lie_in_memory_once() -> None:
    """They are put where workers map them, and not copied for the pool, nor by a worker."""
    setting = _setting()
    data = WorkerData(setting.work, setting.program(0))
    assert data.files[0] == file_behind(setting.federation.x)
    assert sum(size for _, size in data.setup.parcel.places) < setting.federation.x.nbytes / 4
    there = mapped(data.files[0], data.setup.shape, data.setup.dtype)
    before, there[0, 0, 0, 0] = float(there[0, 0, 0, 0]), 7.0
    assert float(setting.work.x[0, 0, 0, 0]) == 7.0
    there[0, 0, 0, 0] = before
    data.close()


def test_a_part_of_shared_memory_is_copied_and_the_whole_is_not() -> None:
    whole = shared_empty((4, 3000), np.float32)
    whole[:] = 1.0
    assert shared_copy(whole) is whole
    assert file_behind(whole[:2]) is None and file_behind(np.ones(3)) is None
    assert np.array_equal(shared_copy(whole[1:3]), whole[1:3])


def test_a_worker_sees_no_gpu_and_none_of_its_parents_threads() -> None:
    setting = _setting(dataset="synthetic", clients=4)
    forward = setting.task.forward

    def looking(*given: Any) -> Any:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and os.getppid() != parent
        assert len(os.listdir("/proc/self/task")) == 1
        return forward(*given)

    parent = os.getpid()
    setting = replace(setting, task=setting.task._replace(forward=looking))
    engine = PoolEngine(setting.work, 1)
    try:
        assert len(_round(engine, setting)) == 4
    finally:
        engine.close()


@pytest.mark.parametrize("asked", [("pool", "auto"), ("pool", "cpu"), ("auto", "cpu")])
def test_pool_runs_beside_a_gpu(asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert place(*asked)[:2] == ("pool", "cpu")
    assert place("auto", "auto")[:2] == ("cohort", "cuda")
    with pytest.raises(UserError, match="pool computes on cores; use --engine cohort"):
        place("pool", "cuda")


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    words = ["-m", "idiolect", "run", "--method", "fedavg", "--rounds", "100000", "--engine", "pool"]
    words += ["--out", str(tmp_path), "--set", "evaluate_every=100000"]
    nowhere = subprocess.DEVNULL
    with child_process([sys.executable, *words], stdout=nowhere, stderr=nowhere) as run:
        server = _wait_for(lambda: [child for child in children_of(run.pid) if children_of(child)], run)[0]
        family = [server, *children_of(server)]
        os.kill(run.pid, signal.SIGKILL)
        _wait_for(lambda: not any(is_running(process) for process in family), None)


def test_a_fork_server_that_was_killed_is_followed_by_another() -> None:
    setting = _setting(dataset="synthetic", clients=4)
    expected = _round(LoopEngine(setting.work), setting)
    for _ in range(2):
        engine = PoolEngine(setting.work, 2)
        found = _round(engine, setting)
        server: ForkServer = engine._running[0].home
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
        engine.close()
        for got, wanted in zip(found, expected, strict=True):
            assert torch.allclose(got.loss, wanted.loss)


def _wait_for(found: Callable[[], Any], run: subprocess.Popen[bytes] | None) -> Any:
    deadline = time.monotonic() + 100
    while not (result := found()):
        assert time.monotonic() < deadline and (run is None or run.poll() is None)
        time.sleep(0.05)
    return result
