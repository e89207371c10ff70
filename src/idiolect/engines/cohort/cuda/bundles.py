"""Programs on CUDA: bundles of steps as graphs of kernels, each program on a stream of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from idiolect.engines.cohort.cuda.stage_plan import ProgramPlan
from idiolect.engines.cohort.cuda.turns import BUNDLES

__all__ = ["TRIALS", "captured", "side_by_side", "stream_of"]

ROOM, SPARE = 1.25, 64 << 20  # of what a trial run took, and bytes on top, that a capture may take
TRIALS = BUNDLES[0] + 1 + sum(BUNDLES)  # steps before there are tickets: two trials, and each graph once

# Of the device's queues: with fewer, programs wait for each other.  It is read when CUDA is first used.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


@contextmanager
def side_by_side(programs: Sequence[ProgramPlan], device: torch.device) -> Iterator[Callable[[int], None]]:
    """Gives what goes to the stream of a program.

    All begin after what was asked for before, and what follows begins after them; one program stays where it is.
    """
    if device.type != "cuda" or len(programs) == 1:
        yield lambda number: None
        return
    streams = {program.number: stream_of(program.number, device) for program in programs}
    here = torch.cuda.current_stream(device)
    before = here.record_event()
    for stream in streams.values():
        stream.wait_event(before)
    try:
        yield lambda number: torch.cuda.set_stream(streams[number])
    finally:
        torch.cuda.set_stream(here)
        for stream in streams.values():
            here.wait_stream(stream)


@cache
def stream_of(number: int, device: torch.device) -> torch.cuda.Stream:
    """The longest clients are on the first programs, which go before the others.

    A graph's kernels keep the priority of the stream that they were captured on.
    """
    _, highest = torch.cuda.Stream.priority_range()
    return torch.cuda.Stream(device, priority=min(0, highest + number))


def captured(steps: Callable[[int], Any], stream: torch.cuda.Stream) -> dict[int, Callable[[], Any]]:
    """``steps`` of each bundle as a CUDA graph; trial runs before and after leave their traces in memory.

    A graph's first run is slow.  A capture that runs out of memory cannot be undone, so that the room it needs is asked
    for before.  It is captured on a stream of its own: there alone is memory that matrix products use to work in.
    """
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            steps(BUNDLES[0])  # so that no kernel is loaded while a graph is captured
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            steps(1)
    finally:  # what it has begun uses memory of the current stream
        torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    room = int(ROOM * (torch.cuda.max_memory_allocated() - held)) + SPARE
    torch.empty(room, dtype=torch.uint8, device="cuda")
    graphs, pool = {}, torch.cuda.graph_pool_handle()
    for count in BUNDLES:
        graphs[count] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[count], stream=stream, pool=pool):
            steps(count)
        graphs[count].replay()
    return {count: graph.replay for count, graph in graphs.items()}
