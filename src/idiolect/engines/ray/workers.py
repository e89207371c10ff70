"""The workers of a Ray cluster."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import GetTimeoutError, RayError

from idiolect.core import Program, Tree
from idiolect.core.trees import any_nan, tree_leaves, tree_map
from idiolect.engines.balance import measured
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.cpu_tuning import settle_on_one_core
from idiolect.engines.loop import LoopEngine
from idiolect.engines.numpy_trees import to_arrays, to_tensors
from idiolect.engines.ray.messages import Answer, Errand, Given, Held, Lost, Moved, Receipt, Source, Step
from idiolect.engines.worker_calls import answer, answer_or_error, worker_engine
from idiolect.engines.workload import Workload
from idiolect.errors import UserError
from idiolect.version import __version__

__all__ = ["Crew", "Member", "Shard"]

PATIENCE = 120  # seconds in which a worker must be ready


@dataclass
class Member:
    """Args:
    drop: editions that it will be told to forget.
    speed: relative to the others.
    """

    handle: Any
    about: dict[str, Any]
    drop: list[int] = field(default_factory=list)
    speed: float = 1.0

    def __str__(self) -> str:
        return f"worker process {self.about['process']} on node {self.about['node']}"


class Crew:
    """Args:
    workers: how many; None takes one for every core, or for every GPU, of the cluster.
    gpus: of each worker; 0 computes on its core.
    say: hears of workers that do not come.
    """

    def __init__(self, work: Workload, workers: int | None, gpus: float, say: Callable[[str], None]) -> None:
        self.members: dict[int, Member] = {}
        self._gpus = gpus
        self._started = 0
        self._data = ray.put(_without_data(work)), ray.put(to_arrays(work.x))
        wanted = _count(workers, gpus)
        missing = wanted - len(self.add(wanted))
        if missing:
            self._refuse_none()
            say(f"the cluster has no room for {missing} of {wanted} workers; the run goes on without them")

    def add(self, count: int) -> list[int]:
        """Starts workers, as far as the cluster has room; those that are ready in time."""
        count = min(count, _room(self._gpus) - len(self.members))
        made = ray.remote(Shard).options(
            num_cpus=1, num_gpus=self._gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        handles = [made.remote() for _ in range(count)]
        replies = {handle.about.remote(): handle for handle in handles}
        ready, late = ray.wait(list(replies), num_returns=count, timeout=PATIENCE)
        for reply in late:
            ray.kill(replies[reply])
        for reply in ready:
            self.members[self._started] = Member(replies[reply], _checked(reply))
            self._started += 1
        added = list(self.members)[len(self.members) - len(ready) :]
        ray.get([self.members[w].handle.place.remote(*self._data, self._gpus > 0) for w in added])
        return added

    def send(self, worker: int, errand: Errand, server: Any) -> Any:
        """A reference to the answer."""
        return self.members[worker].handle.work.remote(errand, server)

    def give(self, worker: int, edition: int) -> Any:
        """A reference to a row that the worker keeps."""
        return self.members[worker].handle.row.remote(edition)

    def answer(self, reference: Any) -> Answer | Lost | None:
        """None when the worker died.

        Raises:
            UserError, RuntimeError: as the worker did.
        """
        try:
            answer = ray.get(reference)
        except RayError:
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self, worker: int) -> bool:
        """Starts another worker in place of one that died; whether there was room for it."""
        ray.kill(self.members.pop(worker).handle)
        came = bool(self.add(1))
        self._refuse_none()
        return came

    def measure(self, times: Mapping[int, tuple[float, float]]) -> None:
        """Learns how fast workers are from the amounts of work they did and the seconds it took."""
        times = {worker: time for worker, time in times.items() if worker in self.members and min(time) > 0}
        pace = [seconds * self.members[w].speed / amount for w, (amount, seconds) in times.items()]
        for worker, (amount, seconds) in times.items():
            member = self.members[worker]
            expected = sum(pace) / len(pace) * amount / member.speed
            member.speed = measured(member.speed, expected, seconds)

    def take_drops(self, worker: int) -> list[int]:
        """What a worker is to forget with its next errand."""
        member = self.members[worker]
        drops, member.drop = member.drop, []
        return drops

    def drop(self, editions: Iterable[tuple[int | None, int]]) -> None:
        """Rows, with their owners, that nobody will ask for again."""
        for owner, edition in editions:
            if owner in self.members:
                self.members[owner].drop.append(edition)

    def close(self) -> None:
        for member in self.members.values():
            ray.kill(member.handle)
        self.members.clear()

    def _refuse_none(self) -> None:
        if not self.members:
            raise UserError(
                f"the cluster made no room for a worker within {PATIENCE} s; it has {_resources()}, and others may "
                "be using them"
            )


def _count(workers: int | None, gpus: float) -> int:
    """How many workers to start; more than the cluster can ever hold are refused."""
    room = _room(gpus)
    if room < (workers or 1):
        each = f"{gpus:g} GPU" if gpus else "1 CPU"
        raise UserError(
            f"{workers or 1} workers with {each} each do not fit the cluster, which has {_resources()}"
        )
    return workers or room


def _room(gpus: float) -> int:
    """Workers that the nodes which are alive can hold."""
    found = ray.cluster_resources()
    on_gpus = int(found.get("GPU", 0) / gpus + 1e-9) if gpus else sys.maxsize
    return min(int(found.get("CPU", 0)), on_gpus)


def _resources() -> str:
    found = ray.cluster_resources()
    return f"{found.get('CPU', 0):g} CPUs and {found.get('GPU', 0):g} GPUs"


def _checked(reply: Any) -> dict[str, Any]:
    """What a worker says of itself; one that runs other code than the driver would give other numbers."""
    try:
        about: dict[str, Any] = ray.get(reply, timeout=PATIENCE)
    except (RayError, GetTimeoutError) as error:
        raise UserError(
            f"a worker of the cluster could not start: {_last_line(error)}; idiolect {versions()['idiolect']} must be "
            "installed on every node"
        ) from error
    for name, ours in versions().items():
        if about["versions"][name] != ours:
            raise UserError(
                f"node {about['node']} runs {name} {about['versions'][name]} and this machine {ours}; install the "
                "same on every node"
            )
    return about


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def _without_data(work: Workload) -> Workload:
    """The workload without its inputs, which travel by themselves."""
    return replace(work.for_workers(), x=work.x[:0].clone())


def versions() -> dict[str, str]:
    """What must be the same wherever a part of a run is computed."""
    return {"idiolect": __version__, "torch": torch.__version__, "Python": platform.python_version()}


class Shard:
    """Rows are kept on the host, with memory of their own: nothing in the object store outlives a call."""

    def __init__(self) -> None:
        self._rows: dict[int, Tree] = {}  # by edition
        self._work: Workload | None = None
        self._running: tuple[Any, Program, LoopEngine | CohortEngine] | None = None

    def about(self) -> dict[str, Any]:
        """Where this worker is, and what it runs."""
        node = ray.util.get_node_ip_address()
        return {"process": os.getpid(), "node": node, "versions": versions()}

    def place(self, work: Workload, x: np.ndarray, on_gpu: bool) -> None:
        """Takes the data, once; on the host they stay where the object store has them for the whole node."""
        device = "cuda" if on_gpu else "cpu"
        if not on_gpu:
            settle_on_one_core()
        y, like = work.y.to(device), work.like.to(device)
        self._work = replace(work, x=to_tensors(x).to(device), y=y, like=like)

    def work(self, errand: Errand, server: Any) -> Answer | Lost | Exception:
        for edition in errand.drop:
            self._rows.pop(edition, None)
        return answer_or_error(self._do, errand, server)

    def row(self, edition: int) -> Any:
        """A row for another worker; it is kept here until it is dropped."""
        return to_arrays(self._rows[edition])

    def _do(self, errand: Errand, server: Any) -> Answer | Lost:
        privates, lost = {}, []
        for client, source in errand.sources.items():
            try:
                privates[client] = self._on_device(self._found(client, source))
            except RayError:
                lost.append(source.edition)
        if lost:
            return Lost(lost)
        if errand.step.call.name == "fetch":
            return Answer(to_arrays(list(privates.values())), 0.0)
        began = time.perf_counter()
        found = self._answers(errand.step, server, privates)
        if errand.editions:
            found = [
                self._kept(found, edition)
                for found, edition in zip(found, errand.editions.values(), strict=True)
            ]
        return Answer(to_arrays(found), time.perf_counter() - began)

    def _found(self, client: int, source: Source) -> Tree:
        if isinstance(source, Given):
            return to_tensors(source.row)
        if source.edition not in self._rows:
            self._rows[source.edition] = _own(self._brought(client, source))
        return self._rows[source.edition]

    def _brought(self, client: int, source: Source) -> Tree:
        assert not isinstance(source, Given | Held)
        if isinstance(source, Moved):
            return to_tensors(ray.get(source.row))
        row = to_tensors(source.base)
        for step in source.steps:
            (made,) = self._answers(step, ray.get(step.server), {client: self._on_device(row)})
            row = _own(_private(made))
        return row

    def _answers(self, step: Step, server: Any, privates: Mapping[int, Tree]) -> list[Any]:
        program, engine = self._engine(step.program)
        return answer(engine, program, step.call, self._on_device(to_tensors(server)), dict(privates))

    def _engine(self, program: Any) -> tuple[Program, LoopEngine | CohortEngine]:
        """The program behind a reference and its engine; the last one stays at hand."""
        if self._running is None or self._running[0] != program:
            assert self._work is not None
            loaded: Program = ray.get(program)
            self._running = program, loaded, worker_engine(self._work, loaded)
        return self._running[1:]

    def _kept(self, found: Any, edition: int) -> Any:
        """What the driver gets: a receipt in place of the row, unless the row is empty."""
        row = _private(found)
        if not tree_leaves(row):
            return found
        self._rows[edition] = _own(row)
        nan = torch.zeros(()).masked_fill(any_nan([self._rows[edition]])[0], torch.nan)
        receipt = Receipt(torch.tensor(edition), nan)
        return found._replace(private=receipt) if hasattr(found, "private") else receipt

    def _on_device(self, tree: Tree) -> Tree:
        assert self._work is not None
        device = self._work.y.device
        return tree if device.type == "cpu" else tree_map(lambda leaf: leaf.to(device), tree)


def _private(found: Any) -> Tree:
    """The row in the answer to a round, or to a later phase."""
    return found.private if hasattr(found, "private") else found


def _own(tree: Tree) -> Tree:
    """On the host, in memory that nothing else is part of, laid out as a store gives rows back."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).contiguous(), tree)
