"""Flattens a tree to tensors with names, and rebuilds a tree of an expected form from them."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from idiolect.core.trees import Tree, with_leaves
from idiolect.errors import UserError

__all__ = ["OWN", "UnexpectedTensors", "flatten", "tree_digest", "unflatten"]


OWN = "/own"  # before the path of a tensor that the server made for one site alone


class UnexpectedTensors(UserError):
    """Tensors that differ from those expected by name, type or shape; the sentence names the first."""


def flatten(tree: Tree, prefix: str = "") -> dict[str, Tensor]:
    """Returns the leaves of a tree by their path, in the tree's order.

    >>> flatten({"params": {"a/b": torch.zeros(1)}, "pair": (torch.ones(1),)}).keys()
    dict_keys(['/params/a~1b', '/pair/0'])
    """
    if isinstance(tree, Tensor):
        return {prefix: tree}
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    found: dict[str, Tensor] = {}
    for key, below in items:
        found |= flatten(below, f"{prefix}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return found


def unflatten(tensors: Mapping[str, Tensor], forms: Sequence[Tree], what: str) -> Tree:
    """Returns the tree of the first of ``forms`` that the tensors fit by name, type and shape.

    Tensors are copied, because rounding depends on how memory is aligned.

    Args:
        what: names the tensors in the error.

    Raises:
        UnexpectedTensors: they fit no form; the sentence says where they differ from the first.
    """
    problems = [_difference(tensors, flatten(form)) for form in forms]
    for form, problem in zip(forms, problems, strict=True):
        if not problem:
            return with_leaves(form, [tensors[name].clone() for name in flatten(form)])
    raise UnexpectedTensors(f"{what} is not what this experiment sends: {problems[0]}")


def tree_digest(tree: Tree, secret: bytes) -> str:
    """Returns the keyed hash (HMAC-SHA-256) of the names, types, shapes and bytes of all leaves.

    Without the secret nobody can tell from it whether a tree that he guesses is this one.
    """
    whole = hmac.new(secret, digestmod="sha256")
    for name, tensor in sorted(flatten(tree).items()):
        plain = tensor.detach().cpu().contiguous()
        whole.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        whole.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def _difference(tensors: Mapping[str, Tensor], form: Mapping[str, Tensor]) -> str:
    """Returns the first difference in words, or an empty text where there is none."""
    for name in (*form, *tensors):
        if name not in tensors:
            return f"{name} is missing"
        if name not in form:
            return f"{name} is not expected"
        found, wanted = tensors[name], form[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return f"{name} is {_type(found)} where {_type(wanted)} is expected"
    return ""


def _type(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
