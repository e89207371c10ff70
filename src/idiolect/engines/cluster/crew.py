"""The workers of a run on the cluster: started, given the data once, asked, replaced when they die."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from idiolect.engines.arrays import to_arrays
from idiolect.engines.cluster.errand import Answer, Errand, Lost
from idiolect.engines.cluster.shard import Shard, versions
from idiolect.engines.cluster.share_out import measured
from idiolect.engines.workload import Workload
from idiolect.errors import UserError

__all__ = ["Crew", "Member"]

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
