"""A private tree as one row of bytes.

All clients' trees have the same shape, or one of a few where the end of a run adds to them, so that rows have one
size and are found by their number.  Every leaf starts at a multiple of 64 bytes, as torch's own memory does:
rounding depends on how memory is aligned, and a tree that was put away must compute as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import Rows, Tree, flatten, stack, tree_leaves, unflatten

__all__ = ["Packed", "RowFormat", "RowLayout"]

ALIGNMENT = 64


class Leaf(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class RowLayout:
    """Where the leaves of one shape of tree lie in a row."""

    structure: Any
    leaves: tuple[Leaf, ...]
    n_bytes: int

    @classmethod
    def of(cls, leaves: Sequence[Tensor], structure: Any) -> RowLayout:
        places, end = [], 0
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise TypeError(f"private state holds tensors, not {type(leaf).__name__}")
            start, end = end, end + leaf.numel() * leaf.element_size()
            places.append(Leaf(leaf.dtype, tuple(leaf.shape), start, end))
            end += -end % ALIGNMENT
        return cls(structure, tuple(places), end)

    def fits(self, leaves: Sequence[Tensor], structure: Any) -> bool:
        return structure == self.structure and all(
            leaf.dtype == place.dtype and leaf.shape == place.shape
            for leaf, place in zip(leaves, self.leaves, strict=True)
        )

    def put(self, trees: Rows, rows: Tensor) -> None:
        """Writes n trees into rows [n, n_bytes or more]."""
        for place, column in zip(self.leaves, tree_leaves(trees.stacked), strict=True):
            if place.end > place.start:
                values = column.detach().reshape(len(rows), -1).contiguous()
                rows[:, place.start : place.end] = values.view(torch.uint8)

    def take(self, rows: Tensor) -> Rows:
        """The trees in rows [n, n_bytes or more], whose memory they share."""
        columns = [self._column(place, rows) for place in self.leaves]
        return Rows(unflatten(columns, self.structure), len(rows))

    def _column(self, place: Leaf, rows: Tensor) -> Tensor:
        if place.end == place.start:
            return torch.empty(len(rows), *place.shape, dtype=place.dtype, device=rows.device)
        values = rows[:, place.start : place.end].view(place.dtype)
        return values.view(len(rows), *place.shape)


class Packed(NamedTuple):
    """Rows [n, row_bytes] of uint8, and the number of the layout of each."""

    rows: Tensor
    kinds: list[int]


class RowFormat:
    """The layouts that rows of one run can have.

    Args:
        examples: a tree of every shape that a client may come to hold; the meta device will do.
    """

    def __init__(self, examples: Iterable[Tree]) -> None:
        self.layouts = list(dict.fromkeys(RowLayout.of(*flatten(tree)) for tree in examples))
        self.row_bytes = max(layout.n_bytes for layout in self.layouts)

    def size(self, kind: int) -> int:
        """Bytes that a row of this layout fills."""
        return self.layouts[kind].n_bytes

    def pack(self, trees: Sequence[Tree], device: torch.device) -> Packed:
        """Copies trees into fresh rows on ``device``; what a row's layout does not fill is zero."""
        kinds = (
            [self._kind(trees[0])] * len(trees) if isinstance(trees, Rows) else list(map(self._kind, trees))
        )
        home = next((leaf.device for leaf in tree_leaves(trees[0])), device)
        rows = torch.zeros(len(trees), self.row_bytes, dtype=torch.uint8, device=home)
        if len(set(kinds)) == 1:
            together = trees if isinstance(trees, Rows) else Rows(stack(trees), len(trees))
            self.layouts[kinds[0]].put(together, rows)
        else:
            for i, kind in enumerate(kinds):
                self.layouts[kind].put(Rows(stack([trees[i]]), 1), rows[i : i + 1])
        return Packed(rows.to(device), kinds)

    def unpack(self, packed: Packed, device: torch.device) -> Sequence[Tree]:
        """The trees in rows that nobody else holds: the rows' memory becomes theirs."""
        rows, kinds = packed.rows.to(device), packed.kinds
        if len(set(kinds)) == 1:
            return self.layouts[kinds[0]].take(rows)
        return [self.layouts[kind].take(rows[i : i + 1])[0] for i, kind in enumerate(kinds)]

    def _kind(self, tree: Tree) -> int:
        leaves, structure = flatten(tree)
        for kind, layout in enumerate(self.layouts):
            if layout.fits(leaves, structure):
                return kind
        found = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        raise TypeError(f"private state of a shape that no part declared: {found or 'nothing'}")
