"""The layout of a private tree in one row of bytes.

All clients' trees have the same structure, or one of a few where the end of a run adds leaves, so that rows have one
size and are found by their number.  Every leaf starts at a multiple of 64 bytes, as in torch's own memory: rounding
depends on how memory is aligned, and a tree that was stored must compute as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import Rows, Tree, flatten, stack, tree_leaves, unflatten

__all__ = ["PackedRows", "RowFormat", "RowLayout"]

ALIGNMENT = 64


class LeafPlace(NamedTuple):
    """The bytes from ``start`` to ``end`` of a row, which hold one leaf."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class RowLayout:
    """The places of all leaves of one structure of tree."""

    structure: Any
    leaves: tuple[LeafPlace, ...]
    n_bytes: int

    @classmethod
    def of(cls, leaves: Sequence[Tensor], structure: Any) -> RowLayout:
        places, end = [], 0
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise TypeError(f"private state holds tensors, not {type(leaf).__name__}")
            start, end = end, end + leaf.numel() * leaf.element_size()
            places.append(LeafPlace(leaf.dtype, tuple(leaf.shape), start, end))
            end += -end % ALIGNMENT
        return cls(structure, tuple(places), end)

    def fits(self, leaves: Sequence[Tensor], structure: Any) -> bool:
        return bool(structure == self.structure) and all(
            leaf.dtype == place.dtype and leaf.shape == place.shape
            for leaf, place in zip(leaves, self.leaves, strict=True)
        )

    def put(self, trees: Rows[Tree], rows: Tensor) -> None:
        """Writes n trees into rows [n, n_bytes or more]."""
        for place, column in zip(self.leaves, tree_leaves(trees.stacked), strict=True):
            if place.end > place.start:
                self._column(place, rows).copy_(column.detach())

    def take(self, rows: Tensor) -> Rows[Tree]:
        """Returns the trees in rows [n, n_bytes or more], which share the rows' memory."""
        columns = [self._column(place, rows) for place in self.leaves]
        return Rows(unflatten(columns, self.structure), len(rows))

    def _column(self, place: LeafPlace, rows: Tensor) -> Tensor:
        if place.end == place.start:
            return torch.empty(len(rows), *place.shape, dtype=place.dtype, device=rows.device)
        values = rows[:, place.start : place.end].view(place.dtype)
        return values.view(len(rows), *place.shape)


class PackedRows(NamedTuple):
    """Rows [n, row_bytes] of uint8, and the number of each row's layout."""

    rows: Tensor
    layouts: list[int]


class RowFormat:
    """Packs trees into rows and back, for the layouts that one run can have.

    Args:
        examples: a tree of every structure that a client may hold; tensors on the meta device are enough.
    """

    def __init__(self, examples: Iterable[Tree]) -> None:
        self.layouts = list(dict.fromkeys(RowLayout.of(*flatten(tree)) for tree in examples))
        self.row_bytes = max(layout.n_bytes for layout in self.layouts)

    def size(self, layout: int) -> int:
        """Returns the number of bytes that a row of this layout fills."""
        return self.layouts[layout].n_bytes

    def pack(self, trees: Sequence[Tree], device: torch.device) -> PackedRows:
        """Copies trees into fresh rows on ``device``; bytes that a row's layout does not fill are zero."""
        if isinstance(trees, Rows):
            layouts = [self._layout(trees[0])] * len(trees)
        else:
            layouts = [self._layout(tree) for tree in trees]
        home = next((leaf.device for leaf in tree_leaves(trees[0])), device)
        rows = torch.zeros(len(trees), self.row_bytes, dtype=torch.uint8, device=home)
        if len(set(layouts)) == 1:
            together = trees if isinstance(trees, Rows) else Rows(stack(trees), len(trees))
            self.layouts[layouts[0]].put(together, rows)
        else:
            for i, layout in enumerate(layouts):
                self.layouts[layout].put(Rows(stack([trees[i]]), 1), rows[i : i + 1])
        return PackedRows(rows.to(device), layouts)

    def unpack(self, packed: PackedRows, device: torch.device) -> Sequence[Tree]:
        """Returns the trees in rows that nobody else holds; the trees take over the rows' memory."""
        rows, layouts = packed.rows.to(device), packed.layouts
        if len(set(layouts)) == 1:
            return self.layouts[layouts[0]].take(rows)
        return [self.layouts[layout].take(rows[i : i + 1])[0] for i, layout in enumerate(layouts)]

    def _layout(self, tree: Tree) -> int:
        leaves, structure = flatten(tree)
        for i, layout in enumerate(self.layouts):
            if layout.fits(leaves, structure):
                return i
        found = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        raise TypeError(f"private state of a shape that no part declared: {found or 'nothing'}")
