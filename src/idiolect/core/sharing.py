"""Which tensors leave a client and which stay, by the method's private layers and the scene's policy for buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from idiolect.core.method import Method
from idiolect.core.part import Structure
from idiolect.core.trees import tree_leaves

__all__ = ["Sharing"]


@dataclass(frozen=True)
class Sharing:
    """Which tensors of one network travel under one method.

    Args:
        buffers: the scene's policy, ``average``, ``private`` or ``frozen``.
    """

    method: Method
    structure: Structure
    buffers: str

    def shares(self, name: str) -> bool:
        return not self.method.is_private(name, self.structure)

    def shares_buffer(self, name: str) -> bool:
        """Whether the server averages the clients' values of a buffer."""
        some_shared = any(self.shares(n) for n in self.structure.params)
        return self.buffers == "average" and self.shares(name) and some_shared

    def keeps_buffer(self, name: str) -> bool:
        """Whether every client keeps its own value of a buffer from round to round."""
        return self.buffers == "private" or not self.shares(name)

    def public(self, value: Any) -> Any:
        """Returns a message without the tensors that never leave the client."""
        if isinstance(value, list | tuple):
            return [self.public(item) for item in value]
        if not isinstance(value, dict):
            return value
        kept = {k: self.public(v) for k, v in value.items() if self.shares(k)}
        return {k: v for k, v in kept.items() if not (isinstance(v, dict | list) and not tree_leaves(v))}
