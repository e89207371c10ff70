"""Memory of the clients on lanes: all leaves of one lane group, or of one client, lie in one row.

A client that has a lane group to itself is one row, so that moving it takes one copy for each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = ["Kind", "LaneMemory", "copy_all", "on_lanes"]

ALIGNED = 64  # numbers; a leaf begins at a multiple, where kernels read several at once
KERNEL = (
    4  # dimensions of a convolution's kernel, whose channels lie last, as batched layers read and make it
)

Kind = tuple[torch.Size, torch.dtype]  # of one lane's part of a leaf


class LaneMemory:
    """Args:
    width: lanes of a row; where it is not 1 there is one row.
    memory: by type, the numbers of all rows [N, P].

    Attributes:
        leaves: of all lanes [L, ...].
    """

    def __init__(self, kinds: Sequence[Kind], width: int, memory: Mapping[torch.dtype, Tensor]) -> None:
        self._kinds, self._width, self._memory = kinds, width, memory
        self._places, _ = _layout(kinds, width)
        self.leaves = [self._leaf(n, slice(None)) for n in range(len(kinds))]

    @classmethod
    def zeros(cls, kinds: Sequence[Kind], n_rows: int, width: int, device: torch.device) -> LaneMemory:
        _, sizes = _layout(kinds, width)
        memory = {
            dtype: torch.zeros(n_rows, size, dtype=dtype, device=device) for dtype, size in sizes.items()
        }
        return cls(kinds, width, memory)

    def row(self, number: int) -> list[Tensor]:
        """Returns the leaves of the lanes of one row."""
        return [self._leaf(n, slice(number, number + 1)) for n in range(len(self._kinds))]

    def _leaf(self, n: int, which: slice) -> Tensor:
        size, dtype = self._kinds[n]
        rows = self._memory[dtype][which]
        numbers = rows[:, self._places[n] :][:, : self._width * size.numel()]
        return on_lanes(numbers.view(len(rows) * self._width, size.numel()), size)

    def fill(self, leaves: Mapping[int, Tensor]) -> None:
        """Copies leaves of all lanes into the memory, by their number."""
        copy_all([self.leaves[n] for n in leaves], list(leaves.values()))

    def copy_rows(self, others: LaneMemory, lane_of: Tensor) -> None:
        """Copies every row of ``others`` to the lane that ``lane_of`` names; a lane must be a row of both.

        It takes one copy for each type: one for each leaf would keep the host busy and the device waiting.
        """
        for dtype, numbers in self._memory.items():
            numbers.index_copy_(0, lane_of, others._memory[dtype])

    def copied(self, n: int, lane_of: Tensor | None) -> Tensor:
        """Returns a contiguous copy of one leaf.

        Args:
            lane_of: the lane of each of its rows; None for the lanes in their order.
        """
        if lane_of is None:
            return self.leaves[n].clone(memory_format=torch.contiguous_format)
        return self.leaves[n].index_select(0, lane_of)

    def clone(self) -> LaneMemory:
        memory = {dtype: numbers.clone() for dtype, numbers in self._memory.items()}
        return LaneMemory(self._kinds, self._width, memory)

    def lanes(self, by_leaf: bool) -> list[Sequence[Tensor]]:
        """Returns the parts of all lanes: by type, the rows of lanes, or ``by_leaf`` the lanes' parts of each leaf."""
        parts = self.leaves if by_leaf else self._memory.values()
        return [part.unbind() for part in parts]


def on_lanes(numbers: Tensor, size: torch.Size) -> Tensor:
    """Views [L, numbers] as a leaf [L, *size]; the channels of a convolution's kernel lie last."""
    if len(size) < KERNEL:
        return torch.unflatten(numbers, 1, size) if size else numbers.squeeze(1)
    return torch.unflatten(numbers, 1, (*size[:-3], *size[-2:], size[-3])).movedim(-1, -3)


def _layout(kinds: Sequence[Kind], width: int) -> tuple[list[int], dict[torch.dtype, int]]:
    """Returns where each leaf begins in a row of its type, and how long rows are."""
    places: list[int] = []
    sizes: dict[torch.dtype, int] = {}
    for size, dtype in kinds:
        places.append(sizes.get(dtype, 0))
        sizes[dtype] = places[-1] + -(-width * size.numel() // ALIGNED) * ALIGNED
    return places, sizes


def copy_all(into: Sequence[Tensor], out_of: Sequence[Tensor]) -> None:
    """Copies tensors grouped by dtype, because a mixed batch falls back to one copy per tensor."""
    for dtype in {tensor.dtype for tensor in into}:
        torch._foreach_copy_(
            [tensor for tensor in into if tensor.dtype == dtype],
            [tensor for tensor in out_of if tensor.dtype == dtype],
        )
