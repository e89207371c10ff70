"""Planned dropout: noise is a function of key, layer and position alone, and is close to uniform."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.errors import UserError
from idiolect.models import PlannedDropout, crop_and_flip, planned_uniform
from idiolect.models.dropout import _GOLDEN, _mix

KEYS = torch.tensor([0, 1, 2**62, -1, -(2**63)])
IMAGES = torch.ones(5, 2, 9, 9)


def python_splitmix(key, layer, position):
    """The same hash in Python's unbounded integers."""
    word, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
        return z ^ (z >> 31)

    stream = mix((mix(key & word) + golden * (layer + 1)) & word)
    return (mix((stream + golden * (position + 1)) & word) >> 40) / 2**24


@settings(max_examples=50, deadline=None)
@example(key=-(2**63), layer=2**31, position=2)  # the stream of `crop_and_flip`
@given(key=st.integers(-(2**63), 2**63 - 1), layer=st.integers(0, 1000), position=st.integers(0, 200))
def test_planned_uniform_equals_the_hash_in_exact_integers(key, layer, position):
    ours = planned_uniform(torch.tensor([key]), layer, position + 1)[0, position]
    assert ours.item() == python_splitmix(key, layer, position)


class Positions(fx.Interpreter):
    """Runs a graph and keeps what was computed from no input: from the positions of elements alone."""

    def run_node(self, node):
        value = super().run_node(node)
        self.of_data = getattr(self, "of_data", set())
        self.found = getattr(self, "found", [])
        if node.op == "placeholder" or self.of_data.intersection(node.all_input_nodes):
            self.of_data.add(node)
        elif isinstance(value, torch.Tensor):
            self.found.append(value)
        return value


@pytest.mark.parametrize(
    "function", [lambda key: planned_uniform(key, 3, 300), lambda key: crop_and_flip(IMAGES, key)]
)
def test_positions_are_numbers_of_32_bits_until_they_meet_the_key(function):
    """Inductor computes with them in the 32 bits of an index, whatever their type."""
    positions = Positions(make_fx(function)(KEYS))
    positions.run(KEYS)
    whole = [value for value in positions.found if not value.is_floating_point()]
    assert whole and all(value.abs().max() < 2**31 for value in whole)


def test_splitmix_reproduces_its_published_stream():
    # First output of SplitMix64 from state 1234567 is 6457827717110365317: here mix(state + golden).
    assert _mix(torch.tensor([1234567]) + _GOLDEN).item() == 6457827717110365317


@pytest.mark.parametrize("layer", [0, 1, 7])
def test_planned_uniform_is_uniform_over_positions_and_over_keys(layer):
    for sample in (
        planned_uniform(torch.tensor([12345]), layer, 200_000).flatten(),
        planned_uniform(torch.arange(200_000), layer, 1).flatten(),
    ):
        assert sample.min() >= 0 and sample.max() < 1
        counts = torch.histc(sample, bins=100, min=0.0, max=1.0)
        chi2 = ((counts - 2000).square() / 2000).sum().item()
        assert 50 < chi2 < 160  # 99 degrees of freedom: mean 99, standard deviation 14


def test_planned_uniform_is_uncorrelated_between_neighbours():
    u = planned_uniform(torch.arange(400), 0, 400) - 0.5
    other_layer = planned_uniform(torch.arange(400), 1, 400) - 0.5
    for left, right in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u, other_layer)):
        assert abs((left * right).mean().item() * 12) < 5 / 400  # five standard deviations


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_dropout_respects_its_rate_and_keeps_the_mean(rate):
    out = PlannedDropout(rate, 0)(torch.ones(400, 500), torch.arange(400), True)
    assert (out == 0).float().mean().item() == pytest.approx(rate, abs=0.006)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / (1 - rate))]
    assert out.mean().item() == pytest.approx(1.0, abs=0.03)


def test_same_key_gives_same_noise_whatever_the_other_rows():
    layer, x = PlannedDropout(0.5, 3), torch.ones(5, 64)
    all_rows = layer(x, KEYS, True)
    assert torch.equal(layer(x[:1], KEYS[3:4], True), all_rows[3:4])
    order = torch.tensor([4, 2, 0, 1, 3])
    assert torch.equal(layer(x, KEYS[order], True), all_rows[order])
    padded = layer(torch.cat([x, x]), torch.cat([KEYS, torch.zeros(5, dtype=torch.int64)]), True)
    assert torch.equal(padded[:5], all_rows)


def test_different_keys_and_layers_give_different_noise():
    x = torch.ones(5, 64)
    rows = [tuple(row) for i in (0, 1) for row in PlannedDropout(0.5, i)(x, KEYS, True).tolist()]
    assert len(set(rows)) == 10


def test_noise_is_the_same_in_every_precision():
    single, double = (
        PlannedDropout(0.3, 0)(torch.ones(9, 99, dtype=d), torch.arange(9), True)
        for d in (torch.float32, torch.float64)
    )
    assert torch.equal(single == 0, double == 0)


def test_dropout_under_vmap_equals_single():
    layer, key = PlannedDropout(0.4, 2), torch.arange(12).reshape(3, 4) * 7919
    x = torch.randn(3, 4, 2, 5, dtype=torch.float64)
    batched = torch.func.vmap(lambda x, key: layer(x, key, True))(x, key)
    assert torch.equal(batched, torch.stack([layer(x[i], key[i], True) for i in range(3)]))


def test_dropout_in_eval_mode_and_at_rate_zero_is_the_identity():
    x = torch.randn(5, 8)
    assert torch.equal(PlannedDropout(0.9, 0)(x, KEYS, False), x)
    assert torch.equal(PlannedDropout(0.0, 0)(x, KEYS, True), x)


def test_gradient_passes_only_where_values_were_kept():
    x = torch.ones(5, 8, requires_grad=True)
    out = PlannedDropout(0.5, 0)(x, KEYS, True)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rate_outside_the_unit_interval_is_refused(rate):
    with pytest.raises(UserError, match="outside"):
        PlannedDropout(rate, 0)
