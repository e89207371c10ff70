"""Stages of a cohort on a CPU, as traced steps of blocks of clients.

Under vmap each step costs milliseconds of Python.  Tracing pays in a run of many rounds of a network without
convolutions; other stages, and steps that cannot be traced, run under vmap.  To trace few shapes, clients of about
equal size who make equally many steps are one block, and others are blocks of few sizes with batches of one width.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from idiolect.core import Batch, Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.client_packing import BATCHED, Feed, Packing
from idiolect.engines.cohort.batches import (
    ClientBlock,
    CohortBatches,
    blocks_of,
    few_sizes,
    one_size,
    run_blocks,
    stack_batches,
)
from idiolect.engines.cohort.cpu.graph_rewrites import (
    call_plainly,
    own_memory,
    row_major,
    simplify,
    write_over,
)
from idiolect.engines.cohort.tracing import (
    ProgramKeys,
    RoundInputs,
    TracedHooks,
    fingerprint,
    stage_step,
    trace,
    traced_or_none,
)
from idiolect.engines.device_data import Workload

__all__ = ["MANY_ROUNDS", "TracedStages", "reads_keys", "trace_step", "tracing_pays"]

MANY_ROUNDS = 20  # rounds of a run from which tracing pays
READY_BYTES = 32 << 20  # bytes of inputs after which no more batches are prefetched


def tracing_pays(program: Program, many: float = MANY_ROUNDS) -> bool:
    """Returns whether a run is long enough, and its network such, that steps should be traced."""
    return program.clock.rounds >= many and not program.task.structure.convolutional


class StageFeed(NamedTuple):
    """The batches of a stage, and how its clients are divided into blocks.

    Args:
        step_key: the key of what the steps compute; None where they run under vmap.
        sizes: returns the sizes of the blocks into which a number of clients is divided.
        width: rows of every batch; None for as many as it needs.
        ready: first batches of the first block, prefetched.
    """

    step_key: Hashable
    batches: CohortBatches
    sizes: Callable[[int], list[int]]
    width: int | None
    ready: tuple[tuple[Batch, ...], ...] = ()

    def blocks(self) -> Iterator[ClientBlock]:
        return blocks_of(self.batches.steps, self.sizes)

    def steps(self, block: ClientBlock) -> Feed:
        """Yields what the steps of a block read."""
        ready = self.ready if block.rows.start == block.start == 0 else ()
        yield from ((batches, None) for batches in ready)
        yield from self.batches.between(block.rows, block.start + len(ready), block.stop, self.width)

    def prefetched(self) -> StageFeed:
        """Returns the feed with the first batches gathered, up to a limit of memory."""
        block = next(self.blocks(), None)
        found: list[tuple[Batch, ...]] = []
        n_bytes = 0
        for batches, _ in self.steps(block) if block else ():
            found.append(batches)
            n_bytes += sum(batch.x.nbytes for batch in batches)
            if n_bytes > READY_BYTES:
                break
        return self._replace(ready=tuple(found))


@dataclass
class TracedStages:
    """The stages of one run, with the steps that were traced for them.

    Args:
        many: rounds of a run from which its steps are traced.
    """

    many: float = MANY_ROUNDS
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, dict[Hashable, fx.GraphModule | None]] = field(default_factory=dict)
    _reads_keys: dict[Hashable, bool] = field(default_factory=dict)
    _ahead: dict[Hashable, StageFeed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hooks = TracedHooks(self._keys)

    @property
    def packing(self) -> Packing:
        return BATCHED._replace(fold=self.fold, call=self.call, feed=self.feed)

    def look_ahead(self, work: Workload, program: Program, clients: list[int]) -> None:
        """Prefetches the first stage of a coming round; what was prefetched and not asked for is dropped."""
        stage = program.method.plan(program.scene, program.clock).before[0]
        program = replace(program, differentiate=BATCHED.differentiate)
        feed = self._make_feed(work, program, stage, clients).prefetched()
        self._ahead = {self._feed_key(program, stage, clients): feed}

    def feed(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StageFeed:
        ahead = self._ahead.pop(self._feed_key(program, stage, clients), None)
        return ahead or self._make_feed(work, program, stage, clients)

    def _feed_key(self, program: Program, stage: Stage, clients: list[int]) -> Hashable:
        return (
            self._keys(program),
            program.clock,
            stage.name,
            stage.owner,
            stage.split,
            stage.stream,
            *clients,
        )

    def _make_feed(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StageFeed:
        """Makes the feed of a stage; batches hold the keys of examples unless a traced step is known to read none."""
        if not self._pays(program):
            return StageFeed(None, stack_batches(work, program, stage, clients), one_size, None)
        parts = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        step_key = (self._keys(program), fingerprint(parts))
        batches = stack_batches(work, program, stage, clients, self._reads_keys.get(step_key, True))
        if work.is_even and batches.steps[0] == batches.steps[-1]:
            return StageFeed(step_key, batches, one_size, None)
        return StageFeed(step_key, batches, few_sizes, work.width(program, stage))

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        hooks = self._hooks if self._pays(program) else BATCHED
        return hooks.call(program, name, stage, context, *trees)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, feed: StageFeed) -> State:
        """Returns the state of every client after all steps of the stage."""

        def run(block: ClientBlock, context: Context, state: State) -> State:
            if feed.step_key is None:
                return BATCHED.fold(program, stage, context, state, feed.steps(block))
            return self._run_traced(program, stage, context, state, feed.step_key, feed.steps(block))

        return run_blocks(feed.blocks(), feed.batches.order, context, state, run)

    def _run_traced(
        self,
        program: Program,
        stage: Stage,
        context: Context,
        state: State,
        step_key: Hashable,
        feed: Feed,
    ) -> State:
        inputs = RoundInputs.of(program.clock, stage.lr_scale, context.facts.samples.dtype)
        held, form = flatten(state)
        fixed, around = flatten(context)
        steps = self._steps.setdefault((step_key, form, around, _kinds((*held, *fixed))), {})
        for batches, _ in feed:
            read, beside = flatten(batches)
            leaves = [*held, *fixed, *read, *inputs]
            key = (beside, _kinds(read), tuple(leaf.stride() for leaf in held))
            if key not in steps:
                given = (unflatten(held, form), context, batches, inputs)
                steps[key] = trace_step(program, stage, *given)
                self._note_keys(step_key, reads_keys(steps[key], leaves, batches))
            step = steps[key]
            if step is None:
                rest = chain([(batches, None)], feed)
                return BATCHED.fold(program, stage, context, unflatten(held, form), rest)
            with torch.no_grad():
                held = step.forward(*leaves)  # the module's own call would look for PyTorch's hooks
        after: State = unflatten(held, form)
        return after

    def _note_keys(self, step_key: Hashable, reads: bool) -> None:
        """Remembers whether a step reads keys of examples; batches without keys may be on their way already."""
        known = self._reads_keys.setdefault(step_key, reads)
        if reads and not known:
            raise RuntimeError("a step reads keys of examples that it did not read before")

    def _pays(self, program: Program) -> bool:
        return tracing_pays(program, self.many)


def trace_step(
    program: Program,
    stage: Stage,
    state: State,
    context: Context,
    batches: tuple[Batch, ...],
    inputs: RoundInputs,
) -> fx.GraphModule | None:
    """Traces a step, from leaves of (state, context, batches, inputs) to leaves of the state; None where it fails.

    The graph may write over the leaves of the state that it is given.
    """
    step = stage_step(stage, BATCHED.lift)
    leaves, takes = flatten((state, context, batches, inputs))

    def from_state(
        program: Program, state: State, context: Context, batches: Tree, inputs: RoundInputs
    ) -> State:
        return step(program, context, state, batches, (), inputs)

    def make() -> fx.GraphModule:
        module, gives = trace(program, from_state, [torch.empty_like(leaf) for leaf in leaves], takes)
        graph = module.graph
        if gives != flatten(state)[1] or _shapes(_new_state(graph)) != _shapes(_old_state(graph)):
            raise TypeError("the step changes the form of the state")
        return module

    module = traced_or_none(make)
    return None if module is None else _rewritten(module)


def _rewritten(module: fx.GraphModule) -> fx.GraphModule:
    simplify(module)
    module = row_major(module)
    simplify(module)
    own_memory(module.graph, _old_state(module.graph))
    write_over(module.graph, _old_state(module.graph))
    call_plainly(module.graph)
    module.recompile()
    return module


def reads_keys(step: fx.GraphModule | None, leaves: list[Tensor], batches: tuple[Batch, ...]) -> bool:
    """Returns whether a step depends on the keys of examples; a step that is not traced may."""
    if step is None:
        return True
    keys = {id(batch.key) for batch in batches}
    inputs = step.graph.find_nodes(op="placeholder")
    return any(node.users for node, leaf in zip(inputs, leaves, strict=True) if id(leaf) in keys)


def _new_state(graph: fx.Graph) -> list[fx.Node]:
    given: Any = graph.output_node().args[0]
    return list(given)


def _old_state(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="placeholder")[: len(_new_state(graph))]


def _shapes(nodes: Sequence[fx.Node]) -> list[Any]:
    return [(node.meta["val"].shape, node.meta["val"].dtype) for node in nodes]


def _kinds(leaves: Sequence[Tensor]) -> Hashable:
    return tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves)
