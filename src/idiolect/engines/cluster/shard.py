"""A worker of the cluster: a part of the clients, the rows that they keep, and ``loop`` or ``cohort`` to run them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError

from idiolect.core import PrivateState, Program
from idiolect.core.trees import T, any_nan, tree_leaves, tree_map
from idiolect.engines.arrays import to_arrays, to_tensors
from idiolect.engines.call import answer, answer_or_error, worker_engine
from idiolect.engines.cluster.errand import Answer, Errand, Given, Held, Lost, Moved, Receipt, Source, Step
from idiolect.engines.cohort import Cohort
from idiolect.engines.loop import Loop
from idiolect.engines.one_core import settle_on_one_core
from idiolect.engines.workload import Workload
from idiolect.version import __version__

__all__ = ["Shard", "versions"]


def versions() -> dict[str, str]:
    """What must be the same wherever a part of a run is computed."""
    return {"idiolect": __version__, "torch": torch.__version__, "Python": platform.python_version()}


class Shard:
    """Rows are kept on the host, with memory of their own: nothing in the object store outlives a call."""

    def __init__(self) -> None:
        self._rows: dict[int, Any] = {}  # by edition
        self._work: Workload | None = None
        self._running: tuple[Any, Program, Loop | Cohort] | None = None

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

    def _found(self, client: int, source: Source) -> Any:
        if isinstance(source, Given):
            return to_tensors(source.row)
        if source.edition not in self._rows:
            self._rows[source.edition] = _own(self._brought(client, source))
        return self._rows[source.edition]

    def _brought(self, client: int, source: Source) -> Any:
        assert not isinstance(source, Given | Held)
        if isinstance(source, Moved):
            return to_tensors(ray.get(source.row))
        row = to_tensors(source.base)
        for step in source.steps:
            (made,) = self._answers(step, ray.get(step.server), {client: self._on_device(row)})
            row = _own(_private(made))
        return row

    def _answers(self, step: Step, server: Any, privates: Mapping[int, PrivateState]) -> list[Any]:
        program, engine = self._engine(step.program)
        return answer(engine, program, step.call, self._on_device(to_tensors(server)), dict(privates))

    def _engine(self, program: Any) -> tuple[Program, Loop | Cohort]:
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

    def _on_device(self, tree: T) -> T:
        assert self._work is not None
        device = self._work.y.device
        return tree if device.type == "cpu" else tree_map(lambda leaf: leaf.to(device), tree)


def _private(found: Any) -> Any:
    """The row in the answer to a round, or to a later phase."""
    return found.private if hasattr(found, "private") else found


def _own(tree: T) -> T:
    """On the host, in memory that nothing else is part of, laid out as a store gives rows back."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).contiguous(), tree)
