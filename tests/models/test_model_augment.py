"""Crop and flip: the views that an image can have, all of them, decided by the key alone."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap

from idiolect.models import PlannedDropout, crop_and_flip

KEYS = torch.randint(2**62, (4000,), generator=torch.Generator().manual_seed(0))


def views(image, padding, fill=0.0):
    """Every (down, right, mirrored) view of [C, H, W], by slicing."""
    height, width = image.shape[1:]
    padded = F.pad(image, (padding,) * 4, value=fill)
    return {
        (a, b, flip): (cut.flip(2) if flip else cut)
        for a in range(2 * padding + 1)
        for b in range(2 * padding + 1)
        for flip in (False, True)
        for cut in [padded[:, a : a + height, b : b + width]]
    }


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_every_view_comes_up_equally_often_and_no_other(padding):
    image = torch.randn(2, 5, 7)
    there_are = {view.numpy().tobytes(): name for name, view in views(image, padding).items()}
    found = crop_and_flip(image.expand(len(KEYS), -1, -1, -1), KEYS, padding)
    names = [there_are[row.numpy().tobytes()] for row in found]  # KeyError: a view there is not
    counts = torch.tensor([names.count(name) for name in there_are.values()], dtype=torch.float64)
    expected = len(KEYS) / len(there_are)
    chi2, freedom = ((counts - expected) ** 2 / expected).sum().item(), len(there_are) - 1
    assert abs(chi2 - freedom) < 5 * (2 * freedom) ** 0.5


def test_default_padding_is_four():
    image = torch.randn(1, 6, 6)
    there_are = {view.numpy().tobytes() for view in views(image, 4).values()}
    found = {row.numpy().tobytes() for row in crop_and_flip(image.expand(4000, -1, -1, -1), KEYS)}
    assert len(there_are) == 162 and found == there_are


def test_edges_are_filled_by_channel():
    black = crop_and_flip(torch.ones(500, 2, 6, 6), KEYS[:500], 2, fill=(-3.0, 0.5))
    assert set(black[:, 0].unique().tolist()) == {-3.0, 1.0}
    assert set(black[:, 1].unique().tolist()) == {0.5, 1.0}
    assert set(crop_and_flip(torch.ones(500, 2, 6, 6), KEYS[:500], 2).unique().tolist()) == {0.0, 1.0}


def test_view_depends_on_the_key_alone():
    x = torch.randn(6, 3, 8, 8)
    whole = crop_and_flip(x, KEYS[:6])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.equal(crop_and_flip(x[order], KEYS[:6][order]), whole[order])
    assert torch.equal(crop_and_flip(x[:1], KEYS[:1]), whole[:1])
    assert torch.equal(crop_and_flip(x.double(), KEYS[:6]).float(), whole)
    assert not torch.equal(crop_and_flip(x, KEYS[6:12]), whole)
    before = torch.random.get_rng_state()
    crop_and_flip(x, KEYS[:6])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("fill", [None, (0.1, 0.2, 0.3)])
def test_views_under_vmap_equal_those_of_single_clients(fill):
    x, key = torch.randn(3, 5, 3, 8, 6), KEYS[:15].reshape(3, 5)
    found = vmap(lambda x, key: crop_and_flip(x, key, fill=fill))(x, key)
    assert torch.equal(found, torch.stack([crop_and_flip(x[i], key[i], fill=fill) for i in range(3)]))


def test_views_have_a_stream_beside_dropouts():
    """The first draws of a dropout layer say nothing of where an image is moved."""
    ramp = torch.arange(9.0)[:, None].repeat(len(KEYS), 1, 1, 9)
    moved = crop_and_flip(ramp, KEYS, 1)[:, 0, 4, 4] - 4
    assert set(moved.tolist()) == {-1.0, 0.0, 1.0}
    for layer in (0, 1):
        dropped = PlannedDropout(0.5, layer)(torch.ones(len(KEYS), 1), KEYS, True)[:, 0] - 1
        correlation = (moved * dropped).mean() / (moved.std() * dropped.std())
        assert abs(correlation.item()) < 5 / len(KEYS) ** 0.5
