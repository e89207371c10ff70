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

from idiolect.core.trees import Tree, flatten, unflatten

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

    def put(self, trees: Sequence[Sequence[Tensor]], rows: Tensor) -> None:
        """Writes the leaves of n trees into rows [n, n_bytes or more]."""
        for place, column in zip(self.leaves, zip(*trees, strict=True), strict=True):
            if place.end > place.start:
                values = torch.stack([leaf.detach() for leaf in column]).reshape(len(rows), -1)
                rows[:, place.start : place.end] = values.view(torch.uint8)

    def take(self, rows: Tensor) -> list[Tree]:
        """The trees in rows [n, n_bytes or more], whose memory they share."""
        columns = [self._column(place, rows) for place in self.leaves]
        return [unflatten([column[i] for column in columns], self.structure) for i in range(len(rows))]

    def _column(self, place: Leaf, rows: Tensor) -> Sequence[Tensor]:
        if place.end == place.start:
            return [torch.empty(place.shape, dtype=place.dtype, device=rows.device) for _ in rows]
        values = rows[:, place.start : place.end].view(place.dtype)
        return values.view(len(rows), *place.shape).unbind()


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
        flat = [flatten(tree) for tree in trees]
        kinds = [self._kind(*leaves_and_structure) for leaves_and_structure in flat]
        home = next((leaf.device for leaves, _ in flat for leaf in leaves), device)
        rows = torch.zeros(len(trees), self.row_bytes, dtype=torch.uint8, device=home)
        for kind in set(kinds):
            which = [i for i, other in enumerate(kinds) if other == kind]
            if len(which) == len(kinds):
                self.layouts[kind].put([leaves for leaves, _ in flat], rows)
            else:
                for i in which:
                    self.layouts[kind].put([flat[i][0]], rows[i : i + 1])
        return Packed(rows.to(device), kinds)

    def unpack(self, packed: Packed, device: torch.device) -> list[Tree]:
        """The trees in rows that nobody else holds: the rows' memory becomes theirs."""
        rows, kinds = packed.rows.to(device), packed.kinds
        trees: list[Tree] = [None] * len(kinds)
        for kind in set(kinds):
            which = [i for i, other in enumerate(kinds) if other == kind]
            mine = rows if len(which) == len(kinds) else rows[which]
            for i, tree in zip(which, self.layouts[kind].take(mine), strict=True):
                trees[i] = tree
        return trees

    def _kind(self, leaves: Sequence[Tensor], structure: Any) -> int:
        for kind, layout in enumerate(self.layouts):
            if layout.fits(leaves, structure):
                return kind
        found = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        raise TypeError(f"private state of a shape that no part declared: {found or 'nothing'}")
