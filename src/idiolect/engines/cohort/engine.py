"""The engine ``cohort``: all clients of a round are one batched computation, with stacked parameters.

On a GPU the step of a stage is traced once, compiled, and replayed as CUDA graphs.  On a CPU it runs under vmap, or is
traced and runs without vmap.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import inf
from typing import TypeVar

import torch

from idiolect.core import Program, ServerState, Tree
from idiolect.engines.client_packing import BATCHED_LAYERS, Packing
from idiolect.engines.cohort.cpu.traced_stages import MANY_ROUNDS, TracedStages
from idiolect.engines.cohort.cuda.compiled_stages import BACKENDS, CompiledStages, warn_slower
from idiolect.engines.contract import Logits, Outcome, StagesDone, nobody
from idiolect.engines.device_data import Workload
from idiolect.engines.evaluation import evaluate_group
from idiolect.engines.loop import LoopEngine
from idiolect.engines.stages import round_of_group, settle_group
from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.federation import Store

__all__ = ["CohortEngine"]

Row = TypeVar("Row")
AHEAD = 8  # most rounds that are planned ahead
TRACED_FROM = {"none": inf, "flat": 0, "auto": MANY_ROUNDS}  # rounds of a run from which a CPU traces steps


@dataclass
class CohortEngine:
    """Runs all clients of a round at once.

    Args:
        chunk: the most clients that are computed at once.  The number bounds memory and changes no result; it is
            halved whenever the device runs out of memory.
        compile: ``auto`` compiles on a GPU and traces on a CPU in a run of many rounds; ``inductor`` compiles,
            ``trace`` replays without compiling, ``flat`` traces for a CPU, ``none`` runs under vmap.
    """

    work: Workload
    chunk: int = 128
    compile: str = "auto"
    _alone: LoopEngine | None = None
    _packing: Packing = field(init=False)
    _compiled: CompiledStages | None = None
    _traced: TracedStages | None = None

    def __post_init__(self) -> None:
        on_gpu = self.work.y.is_cuda
        refuse_unknown_choice(
            "compile", self.compile, ["auto", "none", *BACKENDS, *([] if on_gpu else ["flat"])]
        )
        if self.compile in TRACED_FROM and not on_gpu:
            self._traced = TracedStages(TRACED_FROM[self.compile])
            self._packing = self._traced.packing
        elif self.compile == "none":
            self._packing = BATCHED_LAYERS
        else:
            self._compiled = CompiledStages(self.work, "inductor" if self.compile == "auto" else self.compile)
            self._packing = self._compiled.packing

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Does nothing: rounds are planned by ``plan_ahead``."""

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> Sequence[Outcome]:
        return self._in_chunks(
            privates,
            lambda part: round_of_group(program, self.work, self._packing, server, part, observe),
            lambda loop: loop.round(program, server, privates, observe),
        )

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Plans coming rounds for as long as a GPU is busy with this one; on a CPU it does nothing."""
        if self.work.y.is_cuda:
            self._plan_while_busy(upcoming)

    def _plan_while_busy(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        done = torch.cuda.current_stream().record_event()
        rounds = islice(upcoming, AHEAD)
        while not done.query() and (coming := next(rounds, None)) is not None:
            self.look_ahead(*coming, done.query)

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> Sequence[Tree]:
        return self._in_chunks(
            privates,
            lambda part: settle_group(program, self.work, self._packing, phase, server, part, progress),
            lambda loop: loop.settle(program, phase, server, privates, progress),
        )

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        return self._in_chunks(
            privates,
            lambda part: evaluate_group(program, self.work, self._packing, server, part, split),
            lambda loop: loop.evaluate(program, server, privates, split),
        )

    def look_ahead(
        self, program: Program, clients: list[int], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Prepares what a coming round needs of the host, while the host has nothing else to do; changes no number.

        Args:
            stop: returns whether the host has something else to do now; asked where steps are compiled or replayed.
        """
        if self._alone is not None or len(clients) > self.chunk:
            return
        if self._compiled:
            self._compiled.look_ahead(program, clients, stop)
        elif self._traced:
            self._traced.look_ahead(self.work, program, clients)

    def residence(self, store: Store) -> Store:
        """Returns the store itself: this engine keeps no rows."""
        return store

    def close(self) -> None:
        """Frees the device's memory."""
        if self._compiled:
            self._compiled.forget()

    def _in_chunks(
        self,
        privates: Mapping[int, Tree],
        compute: Callable[[Mapping[int, Tree]], Sequence[Row]],
        alone: Callable[[LoopEngine], Sequence[Row]],
    ) -> Sequence[Row]:
        """Runs ``compute`` on as many clients at once as fit; what cannot be batched runs client by client."""
        while self._alone is None:
            try:
                with self.work.precision.allowed():
                    parts = [compute(part) for part in self._chunks(privates)]
                    return parts[0] if len(parts) == 1 else [row for part in parts for row in part]
            except UserError:
                raise
            except torch.OutOfMemoryError:
                pass  # what the attempt holds is freed when this block ends
            except Exception as error:
                loop = LoopEngine(self.work)
                found = alone(
                    loop
                )  # an error of the method itself is raised here again, with the client's number
                self._alone = loop
                warn_slower("the cohort runs client by client, it cannot be batched", error)
                return found
            self._make_room(len(privates))
        return alone(self._alone)

    def _make_room(self, n_clients: int) -> None:
        """Halves the number of clients at once, and frees what earlier rounds left in memory."""
        if min(self.chunk, n_clients) == 1:
            raise UserError(
                "one client alone does not fit into the GPU's memory; use a smaller batch_size, another model "
                "or --device cpu"
            )
        self.chunk = min(self.chunk, n_clients) // 2
        self.close()
        gc.collect()
        if self.work.y.is_cuda:
            torch.cuda.empty_cache()

    def _chunks(self, privates: Mapping[int, Tree]) -> list[Mapping[int, Tree]]:
        """Divides the clients into chunks of about equal size."""
        if len(privates) <= self.chunk:
            return [privates] if privates else []
        items = list(privates.items())
        n_chunks = -(-len(items) // self.chunk)
        edges = [len(items) * i // n_chunks for i in range(n_chunks + 1)]
        return [dict(items[a:b]) for a, b in pairwise(edges)]
