"""The workers of ``ray``: ``RayWorkers`` starts, asks and replaces them; ``RayActor`` is what runs in each of them."""

from __future__ import annotations

import os
import pickle
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, RayError

from idiolect.core import Program, Tree
from idiolect.core.trees import any_nan, tree_leaves, tree_map
from idiolect.engines.balance import measured_speed
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.cpu_tuning import tune_for_one_core
from idiolect.engines.device_data import Workload
from idiolect.engines.loop import LoopEngine
from idiolect.engines.numpy_trees import to_arrays, to_tensors
from idiolect.engines.ray.connection import connect
from idiolect.engines.ray.messages import (
    KeptRow,
    LostRows,
    MovedRow,
    Reference,
    RemoteCall,
    RowReceipt,
    RowSource,
    SentRow,
    WorkerAnswer,
    WorkerRequest,
    private_of,
)
from idiolect.engines.worker_calls import answer, answer_or_error, worker_engine
from idiolect.errors import UserError
from idiolect.version import __version__

__all__ = ["RayActor", "RayWorker", "RayWorkers", "room_of_cluster"]

PATIENCE = 120  # seconds in which a worker must be ready
LOW_MEMORY = "running low on memory"  # in Ray's report, whatever error it comes with
MEMORY_IN_USE = re.compile(r"was (\d[\d.]* ?GB / \d[\d.]* ?GB)")
LONGEST_REASON = 300  # characters


@dataclass
class RayWorker:
    """A worker as the driver sees it.

    Args:
        handle: the handle of its actor.
        about: its process, its node and the versions that it runs.
        drop: editions that it will be told to forget.
        speed: its speed relative to the other workers.
    """

    handle: Any
    about: dict[str, Any]
    drop: list[int] = field(default_factory=list)
    speed: float = 1.0

    def __str__(self) -> str:
        return f"worker process {self.about['process']} on node {self.about['node']}"


class RayWorkers:
    """The workers of a run, each of which gets the data once.

    Args:
        workers: how many; None takes one for every core, or for every GPU, of the cluster.
        gpus: GPUs of each worker; 0 computes on a core.
        say: is told of workers for which the cluster has no room.

    Attributes:
        members: the workers by number.
    """

    def __init__(self, work: Workload, workers: int | None, gpus: float, say: Callable[[str], None]) -> None:
        self.members: dict[int, RayWorker] = {}
        self._gpus = gpus
        self._started = 0
        self._data = ray.put(_without_data(work)), ray.put(to_arrays(work.x))
        wanted = _count(workers, gpus)
        missing = wanted - len(self.add(wanted))
        if missing:
            self._refuse_none()
            say(f"the cluster has no room for {missing} of {wanted} workers; the run goes on without them")

    def add(self, count: int) -> list[int]:
        """Starts workers, as far as the cluster has room; returns those that are ready in time."""
        count = min(count, _room(self._gpus) - len(self.members))
        made = cast(Any, ray.remote(RayActor)).options(
            num_cpus=1, num_gpus=self._gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        handles = [made.remote() for _ in range(count)]
        replies = {handle.about.remote(): handle for handle in handles}
        ready, late = ray.wait(list(replies), num_returns=count, timeout=PATIENCE)
        for reply in late:
            ray.kill(replies[reply])
        for reply in ready:
            self.members[self._started] = RayWorker(replies[reply], _checked(reply))
            self._started += 1
        added = list(self.members)[len(self.members) - len(ready) :]
        placed = [self.members[w].handle.place.remote(*self._data, self._gpus > 0) for w in added]
        try:
            ray.get(placed)
        except RayError as error:
            raise _not_started(error) from error
        return added

    def send(self, worker: int, request: WorkerRequest, server: Reference) -> Reference:
        """Sends a request to a worker; returns a reference to its answer."""
        answer: Reference = self.members[worker].handle.work.remote(request, server)
        return answer

    def give(self, worker: int, edition: int) -> Reference:
        """Returns a reference to a row that the worker keeps."""
        row: Reference = self.members[worker].handle.row.remote(edition)
        return row

    def answer(self, reference: Reference) -> WorkerAnswer | LostRows | None:
        """Returns a worker's answer, or None if the worker died.

        Raises:
            UserError, RuntimeError: as the worker did.
        """
        try:
            answer: WorkerAnswer | LostRows | Exception = ray.get(reference)
        except RayError:
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self, worker: int) -> bool:
        """Starts another worker in place of one that died; returns whether there was room for it."""
        ray.kill(self.members.pop(worker).handle)
        came = bool(self.add(1))
        self._refuse_none()
        return came

    def measure(self, times: Mapping[int, tuple[float, float]]) -> None:
        """Updates the workers' speeds.

        Args:
            times: by worker, how much work it did and the seconds that it took.
        """
        times = {worker: time for worker, time in times.items() if worker in self.members and min(time) > 0}
        pace = [seconds * self.members[w].speed / amount for w, (amount, seconds) in times.items()]
        for worker, (amount, seconds) in times.items():
            member = self.members[worker]
            expected = sum(pace) / len(pace) * amount / member.speed
            member.speed = measured_speed(member.speed, expected, seconds)

    def take_drops(self, worker: int) -> list[int]:
        """Returns the editions that a worker is to forget with its next request, and clears the list."""
        member = self.members[worker]
        drops, member.drop = member.drop, []
        return drops

    def drop(self, editions: Iterable[tuple[int | None, int]]) -> None:
        """Has owners forget rows that nobody will ask for again.

        Args:
            editions: pairs of owner and edition.
        """
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
    """Returns how many workers to start; more than the cluster can ever hold are refused."""
    room = _room(gpus)
    if room < (workers or 1):
        each = f"{gpus:g} GPU" if gpus else "1 CPU"
        raise UserError(
            f"{workers or 1} workers with {each} each do not fit the cluster, which has {_resources()}"
        )
    return workers or room


def room_of_cluster(address: str | None, gpus: float) -> int:
    """Returns how many workers a cluster has room for; the connection to it is closed again.

    Args:
        gpus: GPUs of each worker.
    """
    disconnect = connect(address, None)
    try:
        return _room(gpus)
    finally:
        disconnect()


def _room(gpus: float) -> int:
    """Returns how many workers fit the nodes that are alive."""
    found = _found_resources()
    on_gpus = int(found.get("GPU", 0) / gpus + 1e-9) if gpus else sys.maxsize
    return min(int(found.get("CPU", 0)), on_gpus)


def _resources() -> str:
    found = _found_resources()
    return f"{found.get('CPU', 0):g} CPUs and {found.get('GPU', 0):g} GPUs"


def _found_resources() -> dict[str, float]:
    found: dict[str, float] = ray.cluster_resources()
    return found


def _checked(reply: Reference) -> dict[str, Any]:
    """Returns what a worker says of itself; one that runs other versions than the driver is refused."""
    try:
        about: dict[str, Any] = ray.get(reply, timeout=PATIENCE)
    except (RayError, GetTimeoutError) as error:
        raise _not_started(error) from error
    for name, ours in versions().items():
        if about["versions"][name] != ours:
            raise UserError(
                f"node {about['node']} runs {name} {about['versions'][name]} and this machine {ours}; install the "
                "same on every node"
            )
    return about


def _not_started(error: Exception) -> UserError:
    """Returns the sentence for a worker that did not start; of Ray's report, which can fill a page, what matters."""
    report = str(error).strip() or type(error).__name__
    if LOW_MEMORY in report:
        used = MEMORY_IN_USE.search(report)
        return UserError(
            f"Ray ended a worker that was starting, because the memory of its node is nearly full"
            f"{f' ({used[1]} in use)' if used else ''}; end other programs there, or ask for fewer workers with "
            "--workers"
        )
    reason = report.splitlines()[-1].strip()[:LONGEST_REASON]
    return UserError(
        f"a worker of the cluster could not start: {reason}; idiolect {versions()['idiolect']} must be installed on "
        "every node"
    )


def _without_data(work: Workload) -> Workload:
    """Returns the workload without its inputs, which travel by themselves."""
    return replace(work.for_workers(), x=work.x[:0].clone())


def versions() -> dict[str, str]:
    """Returns the versions that must be the same wherever a part of a run is computed."""
    return {"idiolect": __version__, "torch": torch.__version__, "Python": platform.python_version()}


class RayActor:
    """Runs clients in a worker of the cluster, with ``loop`` or ``cohort``, and keeps their rows.

    Rows lie on the host in memory of their own, so that nothing in the object store outlives a call.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Tree] = {}  # by edition
        self._work: Workload | None = None
        self._running: tuple[Reference, Program, LoopEngine | CohortEngine] | None = None

    def about(self) -> dict[str, Any]:
        """Returns where this worker is, and what it runs."""
        node = ray.util.get_node_ip_address()
        return {"process": os.getpid(), "node": node, "versions": versions()}

    def place(self, work: Workload, x: NDArray[Any], on_gpu: bool) -> None:
        """Takes the data, once; on a CPU they stay in the object store, which all workers of a node share."""
        device = "cuda" if on_gpu else "cpu"
        if not on_gpu:
            tune_for_one_core()
        y, like = work.y.to(device), work.like.to(device)
        self._work = replace(work, x=to_tensors(x).to(device), y=y, like=like)

    def work(self, request: WorkerRequest, server: Any) -> WorkerAnswer | LostRows | Exception:
        """Answers a request; an error is returned, because Ray would wrap a raised one."""
        for edition in request.drop:
            self._rows.pop(edition, None)
        return answer_or_error(self._do, request, server)

    def row(self, edition: int) -> Any:
        """Returns a row for another worker; it is kept here until it is dropped."""
        return to_arrays(self._rows[edition])

    def _do(self, request: WorkerRequest, server: Any) -> WorkerAnswer | LostRows:
        privates, lost = {}, []
        for client, source in request.sources.items():
            try:
                privates[client] = self._on_device(self._found(client, source))
            except RayError:
                assert not isinstance(source, SentRow)
                lost.append(source.edition)
        if lost:
            return LostRows(lost)
        if request.call.call.name == "fetch":
            return WorkerAnswer(to_arrays(list(privates.values())), 0.0)
        began = time.perf_counter()
        found = self._answers(request.call, server, privates)
        if request.editions:
            found = [
                self._kept(found, edition)
                for found, edition in zip(found, request.editions.values(), strict=True)
            ]
        return WorkerAnswer(to_arrays(found), time.perf_counter() - began)

    def _found(self, client: int, source: RowSource) -> Tree:
        """Returns a client's row from wherever it is; a row that comes from elsewhere is kept from now on."""
        if isinstance(source, SentRow):
            row: Tree = to_tensors(source.row)
            return row
        if source.edition not in self._rows:
            self._rows[source.edition] = _own(self._brought(client, source))
        return self._rows[source.edition]

    def _brought(self, client: int, source: RowSource) -> Tree:
        """Returns a row that another worker keeps, or computes a lost one again."""
        assert not isinstance(source, SentRow | KeptRow)
        if isinstance(source, MovedRow):
            moved: Tree = to_tensors(ray.get(source.row))
            return moved
        row: Tree = to_tensors(source.base)
        for call in source.calls:
            (made,) = self._answers(call, ray.get(call.server), {client: self._on_device(row)})
            row = _own(private_of(made))
        return row

    def _answers(self, call: RemoteCall, server: Any, privates: Mapping[int, Tree]) -> Sequence[Any]:
        program, engine = self._engine(call.program)
        return answer(engine, program, call.call, self._on_device(to_tensors(server)), dict(privates))

    def _engine(self, reference: Reference) -> tuple[Program, LoopEngine | CohortEngine]:
        """Returns the program behind a reference and its engine; the last pair is cached."""
        if self._running is None or self._running[0] != reference:
            assert self._work is not None
            loaded: Program = pickle.loads(ray.get(reference))
            self._running = reference, loaded, worker_engine(self._work, loaded)
        return self._running[1:]

    def _kept(self, found: Any, edition: int) -> Any:
        """Keeps the row in an answer; returns the answer with a receipt in its place, unless the row is empty."""
        row = private_of(found)
        if not tree_leaves(row):
            return found
        self._rows[edition] = _own(row)
        nan = torch.zeros(()).masked_fill(any_nan([self._rows[edition]])[0], torch.nan)
        receipt = RowReceipt(torch.tensor(edition), nan)
        return found._replace(private=receipt) if hasattr(found, "private") else receipt

    def _on_device(self, tree: Any) -> Any:
        assert self._work is not None
        device = self._work.device
        return tree if device.type == "cpu" else tree_map(lambda leaf: leaf.to(device), tree)


def _own(tree: Tree) -> Tree:
    """Returns a copy on the host, laid out as a store gives rows back."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).contiguous(), tree)
