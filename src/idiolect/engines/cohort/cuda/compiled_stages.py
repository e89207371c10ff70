"""Compiled stages: steps of a cohort traced and compiled once, then replayed on lanes of clients.

The cohort engine runs so on a GPU; with the backend ``trace`` the same steps run uncompiled on any device.  Where
something cannot be compiled, the engine goes on more slowly and warns in one line.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from idiolect.core import Context, Program, Stage, State
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.client_packing import BATCHED_LAYERS, Packing
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.cohort.cuda.cuda_graphs import Replay
from idiolect.engines.cohort.cuda.lane_assignment import copy_all
from idiolect.engines.cohort.cuda.lane_batch_plans import Planner, StagePlan
from idiolect.engines.cohort.cuda.traced_step import TracedStep, trace_step_on_lanes
from idiolect.engines.cohort.tracing import ProgramKeys, TracedHooks, fingerprint, traced_or_none
from idiolect.engines.device_data import Workload

__all__ = [
    "BACKENDS",
    "COMPILED",
    "CompiledStages",
    "compiling_quietly",
    "reason_of",
    "warm_up",
    "warn_slower",
]

Options = dict[str, str | int | bool | Callable[..., Any]]

# Each concatenation gets a kernel of its own: inductor's single kernel for 25 slices computes wrong numbers (torch
# 2.11, Triton 3.6), and test_compiled_cohort_equals_loop_on_a_gpu[map] fails.
INDUCTOR: Options = {"force_pointwise_cat": True}
# Steps of lanes apart are short, so that they get fewer kernels, and partial sums are added up one by one.
FEWER_KERNELS: Options = {"combo_kernels": True, "unroll_reductions_threshold": 33}
# A backend takes a step's graph, and whether its lanes are apart.
BACKENDS: dict[str, Callable[[torch.fx.GraphModule, bool], Callable[..., Any]]] = {
    "inductor": lambda graph, apart: torch.compile(
        graph, fullgraph=True, dynamic=False, options=INDUCTOR | (FEWER_KERNELS if apart else {})
    ),
    "trace": lambda graph, apart: graph,
}
# Compiled steps by backend, text of the graph and whether lanes are apart; they are kept over runs.
COMPILED: dict[Hashable, Callable[..., Any]] = {}
THREADS = 8
SEVERAL = 24  # up to this length of the first axis, a compiled kernel depends on the length
APART = (
    64  # clients' weights on lanes lie a multiple of so many numbers apart, which compiled kernels rely on
)
FEW = 16  # rows that stand for more than ``SEVERAL``, since they compile to the same kernel
COMPILER = ("torch._dynamo", "torch._inductor")
TRACEBACK = "Traceback (most recent call last)"


@dataclass
class CompiledStages:
    """The stages of one run.  A stage that cannot be traced runs under vmap, with one warning.

    Args:
        backend: ``inductor`` compiles the traced step; ``trace`` runs its operations one by one.
    """

    work: Workload
    backend: str
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, TracedStep | None] = field(default_factory=dict)
    _replays: dict[Hashable, Replay] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._planner = Planner(self.work)

    @property
    def packing(self) -> Packing:
        hooks = TracedHooks(self._keys)
        return BATCHED_LAYERS._replace(feed=self._planner.plan, fold=self.fold, call=hooks.call)

    def forget(self) -> None:
        """Frees the memory that replays and plans hold; garbage collection covers all objects again."""
        self._replays.clear()
        self._planner.forget()
        gc.unfreeze()

    def look_ahead(self, program: Program, clients: list[int], stop: Callable[[], bool]) -> None:
        """Plans a coming round while the device is busy; where memory is short, that round makes its plans itself."""
        try:
            self._planner.look_ahead(program, clients, stop)
        except torch.OutOfMemoryError:
            self._planner.forget()

    def fold(self, program: Program, stage: Stage, context: Context, state: State, plan: StagePlan) -> State:
        """Returns the state of every client after its steps."""
        if not plan.lane_groups:
            return state
        leaves, form = flatten((context, state))
        kinds = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        step = self._step(program, stage, context, state, plan, (kinds, form))
        if step is None:
            feed = padded_feed(self.work, program, stage, plan.clients)
            return BATCHED_LAYERS.fold(program, stage, context, state, feed)
        self._planner.reads_keys[stage.name] = step.reads_keys
        if step.reads_keys and not plan.with_keys:  # the plan was made for a step that read none
            plan = self._planner.make(program, stage, plan.clients)
        replay = self._replay(step, plan)
        clock = program.clock
        numbers = (clock.round, clock.learning_rate, stage.lr_scale)
        clients, shared = {}, {}
        for n, (kind, place) in enumerate(step.roles):
            if kind == "client":
                clients[n] = leaves[place]
            elif kind == "shared":
                shared[n] = leaves[place]
            elif kind == "round":
                replay.buffers[n].fill_(numbers[place])
        copy_all([replay.buffers[n] for n in shared], list(shared.values()))
        copy_all(replay.constants, step.graph.constants)
        for n, leaf in replay.run(plan, clients).items():
            leaves[step.roles[n].place] = leaf
        after: State = unflatten(leaves[step.state :], step.gives)
        return after

    def _step(
        self,
        program: Program,
        stage: Stage,
        context: Context,
        state: State,
        plan: StagePlan,
        form: Hashable,
    ) -> TracedStep | None:
        """Returns the traced step, or None where it cannot be traced.

        Args:
            form: the form of context and state, with shapes and types of their leaves.
        """
        part = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        key = (self._keys(program), fingerprint(part), plan.shape, form)
        if key not in self._steps:

            def warn(error: Exception) -> None:
                if isinstance(error, torch.OutOfMemoryError):
                    raise error
                warn_slower(f"stage {stage.name} of {program.method.name} runs uncompiled", error)

            self._steps[key] = traced_or_none(
                lambda: trace_step_on_lanes(program, stage, context, state, plan, self.work), warn
            )
        return self._steps[key]

    def _replay(self, step: TracedStep, plan: StagePlan) -> Replay:
        """Returns what runs the step; steps whose graphs have the same text share it, whatever numbers they hold."""
        text = step.graph.text
        same = (text, tuple(role if role.kind == "batch" else role.kind for role in step.roles), plan.layout)
        if same not in self._replays:
            key = (self.backend, text, plan.layout.apart)
            if key not in COMPILED:
                warm_up(step.graph.module)
                COMPILED[key] = BACKENDS[self.backend](step.graph.module, plan.layout.apart)
            try:
                with compiling_quietly():
                    replay = Replay(COMPILED[key], step, self.work, plan)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                warn_slower(f"a step runs without {self.backend}", error)
                COMPILED[key] = step.graph.module
                replay = Replay(COMPILED[key], step, self.work, plan)
            self._replays[same] = replay
            _freeze_garbage()
        return self._replays[same]


def _freeze_garbage() -> None:
    """Exempts what compiling has made from garbage collection, because searching it takes as long as ten rounds."""
    gc.collect()
    gc.freeze()


def warm_up(graph: fx.GraphModule) -> None:
    """Runs every operator of ours on CUDA in ``graph`` once, on uninitialised memory.

    Its Triton kernels are so compiled ahead of the first step, several at a time.
    """
    ours = [node for node in graph.graph.nodes if getattr(node.target, "namespace", "") == "idiolect"]
    on_gpu = [node for node in ours if node.meta["val"][0].is_cuda]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_run, on_gpu))


def _run(node: fx.Node) -> None:
    """Runs one operator; where memory is short, its kernel is compiled later, when it first runs."""
    with suppress(torch.OutOfMemoryError):
        arguments: list[Any] = [
            _uninitialised(a.meta["val"]) if isinstance(a, fx.Node) else a for a in node.args
        ]
        run: Any = node.target
        with torch.cuda.device(arguments[0].device):
            run(*arguments)


def _uninitialised(like: Any) -> Tensor:
    size = (len(like) if len(like) <= SEVERAL else FEW, *like.shape[1:])
    strides = (-(-like.stride(0) // APART) * APART, *like.stride()[1:])
    return torch.empty_strided(size, strides, dtype=like.dtype, device=like.device)


def warn_slower(sentence: str, error: BaseException) -> None:
    """Warns of what is slower and why, without the line of source code that Python would add."""
    warnings.warn_explicit(f"{sentence}: {reason_of(error)}", UserWarning, "idiolect", 1)


def reason_of(error: BaseException) -> str:
    """Returns what the innermost error says, in one line: compilers wrap it in others and add pages to it.

    >>> error = RuntimeError("backend='inductor' raised:")
    >>> error.inner_exception = ValueError("Scalar 5000000000 is out of range for type int32\\n\\nat 3:1")
    >>> reason_of(error)
    'Scalar 5000000000 is out of range for type int32'
    """
    while inner := getattr(error, "inner_exception", None) or error.__cause__:
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if TRACEBACK in str(error) else lines[0]  # an error of another process is its traceback


@contextmanager
def compiling_quietly() -> Iterator[None]:
    """Silences a compiler's warnings and its logs of a kernel that fails, unless ``TORCH_LOGS`` asks for them."""
    loggers = [] if "TORCH_LOGS" in os.environ else [logging.getLogger(name) for name in COMPILER]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
