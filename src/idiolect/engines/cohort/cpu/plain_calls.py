"""A traced step with its operations called as functions of PyTorch, which are quicker to call than ``torch.ops``."""

from __future__ import annotations

import torch
from torch import Tensor, fx

__all__ = ["call_plainly"]

aten = torch.ops.aten
PLAIN = {
    aten._log_softmax.default: torch._log_softmax,
    aten._log_softmax_backward_data.default: torch._log_softmax_backward_data,
    aten.add.Tensor: torch.add,
    aten.add_.Tensor: Tensor.add_,
    aten.addcmul_.default: Tensor.addcmul_,
    aten.baddbmm_.default: Tensor.baddbmm_,
    aten.bmm.default: torch.bmm,
    aten.clamp.default: torch.clamp,
    aten.clone.default: torch.clone,
    aten.div.Tensor: torch.div,
    aten.expand.default: Tensor.expand,
    aten.gather.default: torch.gather,
    aten.gt.Scalar: torch.gt,
    aten.mul.Tensor: torch.mul,
    aten.neg.default: torch.neg,
    aten.relu.default: torch.relu,
    aten.scatter_add.default: torch.scatter_add,
    aten.select.int: torch.select,
    aten.squeeze.dims: torch.squeeze,
    aten.sub.Tensor: torch.sub,
    aten.sum.dim_IntList: torch.sum,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.view.default: Tensor.view,
    aten.where.self: torch.where,
}  # what steps of dense networks are made of


def call_plainly(graph: fx.Graph) -> None:
    """The last of the rewrites: others know operations by their old names."""
    for node in graph.nodes:
        node.target = PLAIN.get(node.target, node.target)
