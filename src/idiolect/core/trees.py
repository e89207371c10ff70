"""Trees, which are nested dictionaries, tuples and lists of tensors: their types, and arithmetic on them.

A *flat* tree maps tensor names to tensors (the parameters or the buffers of one model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias, TypeVar, overload

import torch
from torch import Tensor
from torch.utils._pytree import tree_structure

__all__ = [
    "Flat",
    "Flats",
    "Form",
    "Rows",
    "Slot",
    "Tree",
    "all_finite",
    "any_nan",
    "count_scalars",
    "flatten",
    "inner_product",
    "interpolate",
    "pick",
    "squared_distance",
    "stack",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "unflatten",
    "unstack",
    "where",
    "with_leaves",
    "zeros_like",
]

# A tensor, or a mapping or a sequence of trees.  The trees inside are Any, because a typed dictionary is a Mapping of
# objects to a type checker, and so would be no tree otherwise.
Tree: TypeAlias = Tensor | Mapping[str, Any] | Sequence[Any]
Flat: TypeAlias = dict[str, Tensor]  # tensors by name: the parameters or the buffers of one model
Flats: TypeAlias = dict[str, Flat]  # flat trees by name: "model", and what parts add beside it
Slot: TypeAlias = dict[str, Any]  # trees by names that their owner alone knows, such as a part's own state
Form: TypeAlias = "tuple[type, tuple[str, ...], tuple[Form, ...]] | None"  # of a tree; None is a leaf
T = TypeVar("T")


def tree_map(function: Callable[..., Any], tree: T, *others: Any) -> T:
    """Applies ``function`` to every leaf of ``tree``, together with the leaves at the same place in ``others``.

    >>> tree_map(lambda a, b: a + b, {"x": 1, "y": (2, [3])}, {"x": 10, "y": (20, [30])})
    {'x': 11, 'y': (22, [33])}
    """
    mapped: Any
    if isinstance(tree, dict):
        if any(other.keys() != tree.keys() for other in others):
            raise ValueError(
                f"trees with different names: {list(tree)} and {[list(other) for other in others]}"
            )
        mapped = {k: tree_map(function, v, *(other[k] for other in others)) for k, v in tree.items()}
    elif isinstance(tree, tuple | list):
        mapped = _like(tree, [tree_map(function, *items) for items in zip(tree, *others, strict=True)])
    else:
        mapped = function(tree, *others)
    return mapped  # type: ignore[no-any-return]  # it has the form of ``tree``


def tree_leaves(tree: Tree) -> list[Any]:
    """Returns all leaves, in order.

    >>> tree_leaves({"x": 1, "y": (2, [3])})
    [1, 2, 3]
    """
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    if isinstance(tree, tuple | list):
        return [leaf for item in tree for leaf in tree_leaves(item)]
    return [tree]


def with_leaves(tree: T, leaves: Iterable[Any]) -> T:
    """Returns a tree of the same form with these leaves, in the order of ``tree_leaves``.

    >>> with_leaves({"x": 1, "y": (2, [3])}, "abc")
    {'x': 'a', 'y': ('b', ['c'])}
    """
    each = iter(leaves)
    return tree_map(lambda _: next(each), tree)


def flatten(tree: Tree) -> tuple[list[Any], Form]:
    """Returns all leaves, in order, and the form of the tree, which compares equal for trees of the same form.

    >>> flatten({"x": 1, "y": (2, [3])})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _form(tree, leaves)


def _form(tree: Tree, leaves: list[Any]) -> Form:
    if isinstance(tree, dict):
        return dict, tuple(tree), tuple([_form(value, leaves) for value in tree.values()])
    if isinstance(tree, tuple | list):
        return type(tree), (), tuple([_form(item, leaves) for item in tree])
    leaves.append(tree)
    return None


def unflatten(leaves: Iterable[Any], form: Form) -> Any:
    """Returns the tree that ``flatten`` split into ``leaves`` and ``form``.

    >>> unflatten("abc", flatten({"x": 1, "y": (2, [3])})[1])
    {'x': 'a', 'y': ('b', ['c'])}
    """
    return _filled(form, iter(leaves))


def _filled(form: Form, leaves: Iterator[Any]) -> Any:
    if form is None:
        return next(leaves)
    kind, names, below = form
    items = [_filled(each, leaves) for each in below]
    if kind is dict:
        return dict(zip(names, items, strict=True))
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def zeros_like(tree: T) -> T:
    return tree_map(torch.zeros_like, tree)


def where(condition: Tensor, yes: T, no: T) -> T:
    """Returns ``yes`` where the scalar ``condition`` holds, else ``no``; a leaf that both share is not copied."""
    return tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)


def interpolate(a: Flat, b: Flat, weight: float | Tensor) -> Flat:
    """``(1 - weight) * a + weight * b``; tensors that are not floating point stay those of ``a``."""
    return {k: (1 - weight) * a[k] + weight * b[k] if a[k].is_floating_point() else a[k] for k in a}


def inner_product(a: Flat, b: Flat) -> Tensor:
    return torch.stack([(a[k] * b[k]).sum() for k in a]).sum() if a else torch.zeros(())


def squared_distance(a: Flat, b: Flat) -> Tensor:
    """``||a - b||^2`` over the names of ``b``; 0 when ``b`` is empty."""
    if not b:
        return torch.zeros(())
    return torch.stack([((a[k] - b[k]) ** 2).sum() for k in b]).sum()


def pick(tree: Mapping[str, Tensor], keep: Callable[[str], bool]) -> Flat:
    return {k: v for k, v in tree.items() if keep(k)}


class Rows(Sequence[T]):
    """A sequence of trees of one form that stay stacked: tree i is row i of every leaf of ``stacked``.

    >>> rows = Rows({"x": torch.tensor([1, 2, 3])}, 3)
    >>> len(rows), rows[1]["x"].item(), [row["x"].item() for row in rows[1:]]
    (3, 2, [2, 3])
    """

    def __init__(self, stacked: T, count: int) -> None:
        self.stacked, self._count = stacked, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, which: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, which: slice) -> Rows[T]: ...
    def __getitem__(self, which: Any) -> T | Rows[T]:
        found = tree_map(lambda leaf: leaf[which], self.stacked)
        return Rows(found, len(range(self._count)[which])) if isinstance(which, slice) else found

    def __iter__(self) -> Iterator[T]:
        return iter(unstack(self.stacked, self._count))

    def at(self, places: Sequence[int]) -> Rows[T]:
        """Returns copies of the trees at ``places``, in this order.

        >>> [row["x"].item() for row in Rows({"x": torch.tensor([1, 2, 3])}, 3).at([2, 0])]
        [3, 1]
        """
        which = torch.tensor(places)
        return Rows(
            tree_map(lambda leaf: leaf.index_select(0, which.to(leaf.device)), self.stacked), len(places)
        )


def stack(trees: Sequence[T]) -> T:
    """Returns one tree whose leaves have a new leading axis, one row per tree."""
    stacked: T = tree_map(Tensor.contiguous, trees.stacked) if isinstance(trees, Rows) else _stacked(trees)
    return stacked


def _stacked(trees: Sequence[Any]) -> Any:
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(list(trees))
    if isinstance(first, dict):
        return {key: _stacked([tree[key] for tree in trees]) for key in first}
    return _like(first, [_stacked(column) for column in zip(*trees, strict=True)])


def unstack(tree: T, count: int) -> list[T]:
    """Returns the ``count`` trees that are stacked in ``tree``; their leaves are views of its rows."""
    rows: list[T] = _unstacked(tree, count)
    return rows


def _unstacked(tree: Any, count: int) -> list[Any]:
    if isinstance(tree, Tensor):
        return list(tree.unbind())
    if isinstance(tree, dict):
        columns = {key: _unstacked(below, count) for key, below in tree.items()}
        return [{key: column[row] for key, column in columns.items()} for row in range(count)]
    parts = [_unstacked(below, count) for below in tree]
    return [_like(tree, [part[row] for part in parts]) for row in range(count)]


def _like(sequence: Any, items: list[Any]) -> Any:
    """Returns ``items`` as a tuple, list or named tuple like ``sequence``."""
    return type(sequence)(*items) if hasattr(sequence, "_fields") else type(sequence)(items)


def all_finite(tree: Tree) -> Tensor:
    """Returns, for each row of the leading axis, whether all its numbers are finite."""
    rows = [leaf.reshape(len(leaf), -1) for leaf in tree_leaves(tree) if leaf.numel()]
    extremes = [
        extreme for each in rows for extreme in (each.amin(1), each.amax(1))
    ]  # NaN if a number is NaN
    return torch.stack(extremes).isfinite().all(0)


def any_nan(trees: Sequence[Tree]) -> Tensor:
    """Returns, for each of several trees of one form, whether it holds a NaN."""
    if isinstance(trees, Rows):
        stacked = [leaf for leaf in tree_leaves(trees.stacked) if leaf.is_floating_point()]
        found = [leaf.reshape(len(leaf), -1).isnan().any(1) for leaf in stacked]
        return torch.stack(found).any(0) if found else torch.zeros(len(trees), dtype=torch.bool)
    leaves = [leaf for tree in trees for leaf in tree_leaves(tree) if leaf.is_floating_point()]
    norms = torch.stack(torch._foreach_norm(leaves, 1)) if leaves else torch.zeros(len(trees), 0)
    return norms.reshape(len(trees), -1).isnan().any(1)


def count_scalars(tree: Tree) -> int:
    return sum(leaf.numel() for leaf in tree_leaves(tree))
