"""The LSTM written out is torch's, in value, gradient and first numbers; the net of characters reads tokens."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from idiolect.errors import UserError
from idiolect.models import LSTM, SCHEMES, BatchContext, Unit, build


def copy_into_native(layers, native):
    """Our layers' tensors under torch's names; both are in one order."""
    with torch.no_grad():
        for number, layer in enumerate(layers):
            for name, tensor in layer.named_parameters():
                getattr(native, f"{name}_l{number}").copy_(tensor)


@pytest.mark.parametrize(("batch", "steps"), [(3, 7), (1, 1)])
def test_lstm_equals_torchs(batch, steps):
    torch.manual_seed(0)
    layers = [LSTM(4, 6).double(), LSTM(6, 6).double()]
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
    native = nn.LSTM(4, 6, num_layers=2, batch_first=True).double()
    copy_into_native(layers, native)
    x = torch.randn(batch, steps, 4, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    found, expected = layers[1](layers[0](x)), native(y)[0]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-12)
    for number, layer in enumerate(layers):
        for name, tensor in layer.named_parameters():
            other = getattr(native, f"{name}_l{number}").grad
            torch.testing.assert_close(tensor.grad, other, rtol=1e-10, atol=1e-12, msg=name)


def test_char_lstm_equals_torchs_layers():
    net = build("char_lstm", (1, 1, 80), 81, seed=4).double()
    embedding, linear = net.units[0].embedding, net.units[3].linear
    native = nn.LSTM(8, 256, num_layers=2, batch_first=True).double()
    copy_into_native([net.units[1].lstm, net.units[2].lstm], native)
    tokens = torch.randint(81, (2, 80), generator=torch.Generator().manual_seed(0))
    features, logits, _ = net(tokens, BatchContext.plain(2, 4))
    last = native(embedding(tokens))[0][:, -1]
    torch.testing.assert_close(features, last, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(logits, linear(last), rtol=1e-10, atol=1e-12)


def test_default_start_draws_what_the_framework_would_draw():
    torch.manual_seed(11)
    native = [nn.Embedding(81, 8), nn.LSTM(8, 256, num_layers=2), nn.Linear(256, 81)]
    expected = [parameter for layer in native for parameter in layer.parameters()]
    found = list(build("char_lstm", (1, 1, 80), 81, seed=11).parameters())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_embedding_and_lstm_start_alike_under_every_scheme(scheme):
    net = build("char_lstm", (1, 1, 80), 81, initialisation=scheme, seed=1)
    assert net.units[0].embedding.weight.std().item() == pytest.approx(1, rel=0.1)
    for unit in (1, 2):
        for name, tensor in net.units[unit].lstm.named_parameters():
            assert tensor.std().item() == pytest.approx(1 / 16 / 3**0.5, rel=0.1), name
            assert tensor.abs().max() <= 1 / 16, name
    assert bool(net.units[3].linear.bias.any()) == (scheme == "default")


def test_embeddings_of_clients_under_vmap_get_their_own_gradients():
    """A token that stands twice in a row counts twice; one that no row holds gets nothing."""
    unit = Unit(embedding=nn.Embedding(5, 3)).double()
    weights = torch.randn(2, 5, 3, dtype=torch.float64)
    tokens = torch.tensor([[[0, 0, 1]], [[4, 4, 4]]])

    def total(weight, tokens):
        given = {"embedding.weight": weight}
        return functional_call(unit, given, (tokens, torch.ones(1), True, torch.zeros(1))).sum()

    found = vmap(grad(total))(weights, tokens)[:, :, 0]
    assert found.tolist() == [[2, 1, 0, 0, 0], [0, 0, 0, 0, 3]]


def test_net_of_characters_says_what_it_reads():
    net = build("char_lstm(vocabulary=30)", (1, 1, 12), 30)
    assert net.takes_tokens and net.vocabulary == 30
    assert build("lenet5", (1, 28, 28), 10).vocabulary is None
    with pytest.raises(UserError, match="char_lstm cannot take images of 28x28: it reads rows of tokens"):
        build("char_lstm", (1, 28, 28), 10)
    with pytest.raises(UserError, match="it reads rows of tokens"):
        build("char_lstm", (3, 1, 80), 10)
