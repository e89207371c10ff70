"""A network of the user's own reaches another process as it was."""

from __future__ import annotations

import pickle

import torch
from torch import nn
from torch.nn.utils import parametrizations

from idiolect.engines.process_pickling import dumped


def test_layer_with_computed_weights_is_pickled():
    layer = parametrizations.weight_norm(nn.Linear(5, 4))
    found, x = pickle.loads(dumped(nn.Sequential(layer))), torch.ones(2, 5)
    assert (
        torch.equal(found(x), layer(x))
        and found.state_dict().keys() == nn.Sequential(layer).state_dict().keys()
    )
    found[0].parametrizations.weight.original0.data.zero_()
    assert torch.equal(found(x), layer.bias.expand(2, 4)) and bool(layer(x).ne(layer.bias).any())
