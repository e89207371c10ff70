"""A residual block: two ways from input to output whose values are added.

    y = after(body(x) + shortcut(x))

He et al., CVPR 2016 (https://arxiv.org/abs/1512.03385), eq. (1) and (2).  The block is one unit: FedPer's
split never cuts it, so the sum always belongs to one owner.
"""

from __future__ import annotations

from torch import Tensor, nn

from idiolect.models.unit import Unit

__all__ = ["Residual"]


class Residual(nn.Module):
    """One unit of a net, made of three.

    Args:
        body: the long way.
        shortcut: the short way; `Unit()`, which has no layers, is the identity.
        after: what follows the sum.
    """

    def __init__(self, body: Unit, shortcut: Unit, after: Unit) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.after = after

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        both = self.body(x, mask, train, key) + self.shortcut(x, mask, train, key)
        y: Tensor = self.after(both, mask, train, key)
        return y
