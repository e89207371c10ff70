"""Long short-term memory in plain tensor operations, so that it can be batched over clients.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh        in four equal parts, in this order
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t),          h_0 = c_0 = 0

Hochreiter and Schmidhuber, Neural Computation 9(8), 1997, with the forget gate of Gers et al., 2000: one layer
of torch.nn.LSTM, with its parameters, their order and their two biases; torch's own cannot be vmapped.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["LSTM", "LastStep"]


class LSTM(nn.Module):
    """[B, T, F] -> [B, T, H]: all hidden states of one layer, from zero states.

    Args:
        n_inputs: F.
        n_hidden: H.
    """

    def __init__(self, n_inputs: int, n_hidden: int) -> None:
        super().__init__()
        self.n_hidden = n_hidden
        self.weight_ih = nn.Parameter(torch.zeros(4 * n_hidden, n_inputs))
        self.weight_hh = nn.Parameter(torch.zeros(4 * n_hidden, n_hidden))
        self.bias_ih = nn.Parameter(torch.zeros(4 * n_hidden))
        self.bias_hh = nn.Parameter(torch.zeros(4 * n_hidden))

    def forward(self, x: Tensor) -> Tensor:
        entering = x @ self.weight_ih.T + (self.bias_ih + self.bias_hh)  # [B, T, 4H]
        hidden = cell = x.new_zeros(x.shape[0], self.n_hidden)
        found = []
        for step in entering.unbind(1):
            i, f, g, o = (step + hidden @ self.weight_hh.T).chunk(4, dim=-1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            found.append(hidden)
        return torch.stack(found, 1)

    def extra_repr(self) -> str:
        return f"{self.weight_ih.shape[-1]}, {self.n_hidden}"


class LastStep(nn.Module):
    """[B, T, H] -> [B, H]: the state after the last token."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]
