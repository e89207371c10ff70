"""Memory of a GPU that runs side by side share: what is known of a run, and who waits; without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.experiments import Execution, Silent
from idiolect.experiments.jobs import side_by_side
from idiolect.experiments.jobs.gpu_memory import GPU_FLOOR, PROCESS, GpuMemory
from idiolect.experiments.jobs.job_process import Done, Refused, Shown
from idiolect.records.manifest import write_manifest

GIB = 1 << 30


def test_need_is_that_of_the_same_run_else_of_the_same_network_else_the_floor(tiny):
    known = GpuMemory()
    assert known.need(tiny) == GPU_FLOOR
    known.measured(tiny, 10 * GIB)
    known.measured(replace(tiny, seed=3), 8 * GIB)  # the largest counts
    assert known.need(replace(tiny, seed=5, rounds=9)) == int(1.1 * 10 * GIB) + PROCESS
    assert known.need(replace(tiny, method="map")) == int(1.1 * 1.5 * 10 * GIB) + PROCESS
    assert known.need(replace(tiny, model="lenet5")) == GPU_FLOOR
    known.measured(replace(tiny, model="lenet5"), 0)  # a CPU measures nothing
    assert known.need(replace(tiny, model="lenet5")) == GPU_FLOOR
    assert known.free_before(tiny, [replace(tiny, model="lenet5")]) == known.need(tiny) + GPU_FLOOR


class FakeGpu:
    """Job processes that are none: each asks one GPU for its memory as a job does, and answers what the test says."""

    def __init__(self, free):
        self.free, self.asked = free, []

    def start(self, setup, box, watcher):
        return side_by_side._Job(FakeProcess(), FakePipe(self), watcher)


class FakeProcess:
    def kill(self):
        pass

    def wait(self, timeout=None):
        return 0


class FakePipe:
    def __init__(self, gpu):
        self.gpu, self.answers = gpu, []

    def send(self, message):
        if isinstance(message, side_by_side.StartRun):
            self.gpu.asked.append((message.experiment.method, message.memory))
            if self.gpu.free < message.memory:
                self.answers.append(Refused("too little memory is free", waits=True))

    def recv(self):
        return self.answers.pop(0)

    def close(self):
        pass


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    gpu = FakeGpu(free=20 * GIB)
    monkeypatch.setattr(side_by_side, "_start_job", gpu.start)
    made = side_by_side.open_jobs(Execution(device="cpu", jobs=3, out=tmp_path, watcher=Silent()), runs=9)
    monkeypatch.setattr(side_by_side, "wait", lambda pipes: [pipe for pipe in pipes if pipe.answers])
    with made:
        yield made, gpu


def finished(folder, peak):
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"name": "run", "method": "fedavg", "seed": 0, "status": "finished"}
    write_manifest(folder, facts | {"resources": {"peak_gpu_bytes": peak}})
    return Done(str(folder))


def test_run_waits_until_what_it_needs_is_free_beside_those_that_are_starting(jobs, tiny, tmp_path):
    made, gpu = jobs
    tasks = [side_by_side.RunTask(seed, replace(tiny, seed=seed)) for seed in range(5)]
    made.start(tasks[0])
    made.start(tasks[1])
    assert [memory for _, memory in gpu.asked] == [
        0,
        2 * GPU_FLOOR,
    ]  # neither is known
    first, second = (job.pipe for job in made._jobs[:2])
    first.answers += [Shown("advance", (1, {})), finished(tmp_path / "a", 10 * GIB)]
    assert made.next().key == 0
    need = int(1.1 * 10 * GIB) + PROCESS
    made.start(tasks[2])
    assert gpu.asked[-1][1] == 2 * need  # the second run has not finished a round
    (waiting,) = [job.pipe for job in made._jobs if job.pipe.answers]
    made._hear(next(job for job in made._jobs if job.pipe is waiting))
    assert made._held and not made.is_free
    second.answers += [Shown("advance", (1, {}))]
    made._hear(made._jobs[1])
    assert made._held  # until a run ends
    second.answers += [finished(tmp_path / "b", 9 * GIB)]
    assert made.next().key == 1
    made._assign()
    assert gpu.asked[-1][1] == 0  # alone, it starts in any case
    made.start(tasks[3])
    assert gpu.asked[-1][1] == 2 * need
