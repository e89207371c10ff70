"""What one client's work depends on, and where it stands in the middle of a stage."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from idiolect.core.part import Facts
from idiolect.core.stage import Result
from idiolect.core.trees import Tree

__all__ = ["UPLOAD", "Context", "State"]

UPLOAD = "upload"  # the result at the upload mark, beside the results under the stages' own names


class Context(NamedTuple):
    """Everything one client's work depends on, as one tree."""

    server: Tree  # {"params", "buffers", "slots"} as broadcast
    private: Tree  # {"buffers", "slots"}
    facts: Facts
    results: dict[str, Result]
    uploads: Tree = {}  # on the server: by part, every client's own upload


class State(NamedTuple):
    """One client in the middle of a stage."""

    params: Tree
    buffers: Tree
    memory: Tree  # of the optimiser
    carry: Tree
    loss: Tensor  # summed over steps
    steps: Tensor
    measured: Tree
