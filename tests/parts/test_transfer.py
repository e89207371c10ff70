"""Transfer terms against numpy, on real rows alone (Li et al., ECML-PKDD 2021, section 4.2)."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from idiolect.core import Batch, Model, Out
from idiolect.engines import make_task
from idiolect.errors import UserError
from idiolect.models import build
from idiolect.parts.transfer import mmd_squared, transfer_of

ROWS, WIDTH, CLASSES = 5, 3, 4


@pytest.fixture
def random():
    return np.random.default_rng(3)


def pair(random, rows=ROWS, width=WIDTH):
    return (torch.from_numpy(random.standard_normal((rows, width))) for _ in range(2))


def mmd_in_numpy(a, b):
    both = np.concatenate([a, b])
    n, m = len(both), len(a)
    distance = ((both[:, None] - both[None]) ** 2).sum(2)
    width = distance.sum() / (n**2 - n) + 1e-8
    kernel = sum(np.exp(-distance / (width * 2**i / 4)) for i in range(5))
    return (kernel[:m, :m] + kernel[m:, m:] - kernel[:m, m:] - kernel[m:, :m]).mean()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_mmd_agrees_with_numpy(random, rows):
    a, b = pair(random, rows)
    found = mmd_squared(a, b, torch.ones(rows).double())
    assert float(found) == pytest.approx(mmd_in_numpy(a.numpy(), b.numpy()), rel=1e-9)


def test_mmd_of_equal_features_is_zero_with_zero_gradient(random):
    a, _ = pair(random)
    leaf = a.clone().requires_grad_()
    value = mmd_squared(leaf, a, torch.ones(ROWS).double())
    (gradient,) = torch.autograd.grad(value, leaf)
    assert abs(float(value.detach())) < 1e-12
    assert gradient.abs().max() < 1e-12


def test_mmd_is_symmetric_and_not_negative(random):
    for _ in range(20):
        a, b = pair(random)
        one, other = (float(mmd_squared(*p, torch.ones(ROWS).double())) for p in ((a, b), (b, a)))
        assert one == pytest.approx(other, rel=1e-9)
        assert one > 0


def test_mmd_stops_the_gradient_through_the_bandwidth(random):
    """With it, scaling both sets alike would change nothing and the gradient along the features would be 0."""
    a, b = pair(random)
    leaf = torch.cat([a, b]).requires_grad_()
    value = mmd_squared(leaf[:ROWS], leaf[ROWS:], torch.ones(ROWS).double())
    (gradient,) = torch.autograd.grad(value, leaf)
    assert abs(float((gradient * leaf.detach()).sum())) > 1e-3


def test_mmd_ignores_padded_rows(random):
    a, b = pair(random)
    mask = torch.tensor([1.0, 1, 1, 0, 0]).double()
    bare = mmd_squared(a[:3], b[:3], torch.ones(3).double())
    assert float(mmd_squared(a, b, mask)) == pytest.approx(float(bare), rel=1e-9)
    moved = a.clone()
    moved[3:] += 100
    assert float(mmd_squared(moved, b, mask)) == pytest.approx(float(bare), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_gradient_of_mmd_in_single_precision_is_that_of_double(random, rows):
    """Features near those of the teacher, as in a client's second round; a last batch may hold one row."""
    a = torch.from_numpy(3 * np.abs(random.standard_normal((rows, 64))))
    b = a + 1e-3 * torch.from_numpy(random.standard_normal((rows, 64)))
    a, b = a.float().double(), b.float().double()
    found = []
    for dtype in (torch.float64, torch.float32):
        leaf = a.to(dtype).requires_grad_()
        value = mmd_squared(leaf, b.to(dtype), torch.ones(rows, dtype=dtype))
        found.append(torch.autograd.grad(value, leaf)[0].double())
    assert (found[0] - found[1]).norm() < 0.01 * found[0].norm()


def scenario(random, mask):
    """Outputs of a student, a batch, and a view whose teacher gives fixed outputs."""
    features, taught = pair(random)
    logits, wanted = pair(random, width=CLASSES)
    batch = Batch(features, torch.zeros(ROWS).long(), mask, torch.zeros(ROWS).long(), {})
    view = SimpleNamespace(predict=lambda model, batch: Out(taught, wanted))
    return Out(features, logits), batch, view, taught, wanted


MASKS = [torch.ones(ROWS).double(), torch.tensor([1.0, 1, 1, 0, 0]).double()]


@pytest.mark.parametrize("mask", MASKS, ids=["full", "padded"])
def test_l2_is_half_the_mean_squared_distance_of_the_features(random, mask):
    out, batch, view, taught, _ = scenario(random, mask)
    real = mask.numpy() > 0
    gap = (out.features - taught).numpy()[real]
    value = transfer_of("l2")({}, out, batch, Model({}, {}), view)
    assert float(value) == pytest.approx((gap**2).sum() / (2 * real.sum()), rel=1e-12)


@pytest.mark.parametrize("mask", MASKS, ids=["full", "padded"])
def test_kd_is_the_scaled_divergence_of_softened_outputs(random, mask):
    out, batch, view, _, wanted = scenario(random, mask)
    real = mask.numpy() > 0

    def soft(logits):
        e = np.exp(logits.numpy()[real] / 3.0)
        return e / e.sum(1, keepdims=True)

    p, q = soft(wanted), soft(out.logits)
    value = transfer_of("kd", temperature=3.0)({}, out, batch, Model({}, {}), view)
    assert float(value) == pytest.approx(9.0 * (p * np.log(p / q)).sum() / real.sum(), rel=1e-9)


def test_mmd_compares_the_features(random):
    out, batch, view, taught, _ = scenario(random, MASKS[1])
    value = transfer_of("mmd")({}, out, batch, Model({}, {}), view)
    expected = mmd_in_numpy(out.features.numpy()[:3], taught.numpy()[:3])
    assert float(value) == pytest.approx(expected, rel=1e-9)


def test_prox_is_the_squared_distance_of_the_parameters_without_a_half(random):
    out, batch, view, _, _ = scenario(random, MASKS[0])
    w, v = (
        {"a": torch.from_numpy(random.standard_normal(3)), "b": torch.ones(2).double() * s} for s in (1, 2)
    )
    value = transfer_of("prox")(w, out, batch, Model(v, {}), view)
    assert float(value) == pytest.approx(float(((w["a"] - v["a"]) ** 2).sum()) + 2, rel=1e-12)


@pytest.mark.parametrize("name", ["kd", "mmd", "l2"])
def test_no_gradient_flows_into_the_teacher(random, name):
    out, batch, _, taught, wanted = scenario(random, MASKS[0])
    teacher = Out(taught.requires_grad_(), wanted.requires_grad_())
    student = Out(out.features.requires_grad_(), out.logits.requires_grad_())
    view = SimpleNamespace(predict=lambda model, batch: teacher)
    value = transfer_of(name)({}, student, batch, Model({}, {}), view)
    leaves = [student.features, student.logits, teacher.features, teacher.logits]
    grads = torch.autograd.grad(value, leaves, allow_unused=True)
    assert any(g is not None and g.abs().max() > 0 for g in grads[:2])
    assert all(g is None for g in grads[2:])


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="transfer"):
        transfer_of("kl")
    with pytest.raises(UserError, match="kd_form"):
        transfer_of("kd", kd_form="mse")
    with pytest.raises(UserError, match="temperature"):
        transfer_of("kd", temperature=0)


@pytest.mark.parametrize("name", ["mmd", "l2"])
def test_model_is_at_no_distance_from_its_own_copy_whatever_is_dropped(name):
    """The student trains with dropout, its teacher predicts without."""
    torch.manual_seed(0)
    net = build("vgg11_fc", (3, 32, 32), CLASSES)
    task = make_task(net)
    model = Model({n: p.detach() for n, p in net.named_parameters()}, {})
    batch = Batch(torch.randn(4, 3, 32, 32), torch.zeros(4).long(), torch.ones(4), torch.arange(4), {})
    view = SimpleNamespace(predict=lambda model, batch: task.forward(*model, batch, False)[0])
    with torch.no_grad():
        student = task.forward(*model, batch, True)[0]
        assert not torch.equal(student.features, view.predict(model, batch).features)
        assert float(transfer_of(name)(model.params, student, batch, model, view)) == pytest.approx(
            0, abs=1e-6
        )
