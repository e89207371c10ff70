"""A network of the zoo as plain torch modules."""

import pytest
import torch
from torch import nn

from idiolect.bench.native_network import fill, native, values
from idiolect.models import BatchContext, MaskedBatchNorm, Net, Unit, build


class Branch(Unit):
    """x + normalised convolution of x."""

    def forward(self, x, mask, train, key):
        return x + super().forward(x, mask, train, key)


def branching():
    convolution = Branch(convolution=nn.Conv2d(1, 1, 3, padding=1), normalisation=MaskedBatchNorm(1))
    return Net([convolution, Unit(linear=nn.Linear(16, 3))])


def filled(net):
    made = native(net)
    fill(made, [*net.parameters(), *net.buffers()])
    return made


@pytest.mark.parametrize("model", ["persfl_dnn", "lenet_map", "lenet_bn", "persfl_cnn"])
def test_sequential_gives_the_zoos_logits(model):
    net = build(model, (1, 28, 28), 10, seed=1)
    made, x = filled(net), torch.randn(4, 1, 28, 28)
    assert isinstance(made, nn.Sequential)
    assert not any(isinstance(layer, MaskedBatchNorm | Unit) for layer in made.modules())
    for train in (True, False):
        made.train(train)
        expected = net(x, BatchContext.plain(4, net.n_units, train=train))[1]
        torch.testing.assert_close(made(x), expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(values(made), [*net.parameters(), *net.buffers()], strict=True):
        torch.testing.assert_close(one, other)


def test_branching_net_keeps_its_branches_and_runs_torchs_normalisation():
    torch.manual_seed(0)
    ours, theirs = branching(), branching()
    theirs.load_state_dict(ours.state_dict())
    made, x = native(theirs), torch.randn(4, 1, 4, 4)
    fill(made, [*ours.parameters(), *ours.buffers()])
    for train in (True, False):
        made.train(train)
        torch.testing.assert_close(
            made(x), ours(x, BatchContext.plain(4, 2, train=train))[1], rtol=1e-5, atol=1e-6
        )
    for one, other in zip(values(made), [*ours.parameters(), *ours.buffers()], strict=True):
        torch.testing.assert_close(one, other)


def test_fill_refuses_another_number_of_tensors():
    with pytest.raises(ValueError, match="zip"):
        fill(nn.Linear(2, 2), [torch.ones(2, 2)])
