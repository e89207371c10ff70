"""Trees as named tensors, and back: a tree is rebuilt to a form that is known beforehand, or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from idiolect.core.trees import Tree, with_leaves
from idiolect.errors import UserError

__all__ = ["Misfit", "digest", "named", "rebuilt"]


class Misfit(UserError):
    """Tensors that are not those that were expected; the sentence names the first."""


def named(tree: Tree, prefix: str = "") -> dict[str, Tensor]:
    """The leaves by their path.

    >>> named({"params": {"a/b": torch.zeros(1)}, "pair": (torch.ones(1),)}).keys()
    dict_keys(['/params/a~1b', '/pair/0'])
    """
    if isinstance(tree, Tensor):
        return {prefix: tree}
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    found: dict[str, Tensor] = {}
    for key, below in items:
        found |= named(below, f"{prefix}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return found


def rebuilt(tensors: Mapping[str, Tensor], forms: Sequence[Tree], what: str) -> Tree:
    """The tree of the first of ``forms`` that the tensors fit by name, kind and shape.

    Tensors are copied: rounding depends on how memory is aligned.

    Raises:
        Misfit: they fit none; the sentence says where they differ from the first.
    """
    problems = [_misfit(tensors, named(form)) for form in forms]
    for form, problem in zip(forms, problems, strict=True):
        if not problem:
            return with_leaves(form, [tensors[name].clone() for name in named(form)])
    raise Misfit(f"{what} is not what this experiment sends: {problems[0]}")


def digest(tree: Tree) -> str:
    """SHA-256 over names, kinds, shapes and bytes of all leaves."""
    whole = hashlib.sha256()
    for name, tensor in sorted(named(tree).items()):
        plain = tensor.detach().cpu().contiguous()
        whole.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        whole.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def _misfit(tensors: Mapping[str, Tensor], form: Mapping[str, Tensor]) -> str:
    for name in (*form, *tensors):
        if name not in tensors:
            return f"{name} is missing"
        if name not in form:
            return f"{name} is not expected"
        found, wanted = tensors[name], form[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return f"{name} is {_kind(found)} where {_kind(wanted)} is expected"
    return ""


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
