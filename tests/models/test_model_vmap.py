"""Nets as pure functions: stacked nets under vmap and grad equal one net after the other."""

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from idiolect.models import BatchContext, build, names

from .samples import SHAPES, rows_for

N_NETS, N_ROWS, N_CLASSES = 2, 3, 4


def objective(net, train):
    """(params, buffers, x, y, mask, key) -> masked loss, and (features, logits, new buffers)."""

    def loss(params, buffers, x, y, mask, key):
        tensors = {**params, **buffers}
        features, logits, _ = functional_call(net, tensors, (x, BatchContext(mask, train, key)))
        losses = cross_entropy(logits, y, reduction="none")
        return (losses * mask).sum() / mask.sum(), (
            features,
            logits,
            {name: tensors[name] for name in buffers},
        )

    return loss


def cohort(name):
    """Nets with their own values, and a batch with one padded row for each."""
    torch.manual_seed(3)
    nets = [build(name, SHAPES[name], N_CLASSES, seed=seed).double() for seed in range(N_NETS)]
    x = torch.stack([rows_for(net, N_ROWS, SHAPES[name]) for net in nets])
    x = x.double() if x.is_floating_point() else x
    y = torch.randint(N_CLASSES, (N_NETS, N_ROWS))
    mask = torch.ones(N_NETS, N_ROWS, dtype=torch.float64)
    mask[1, -1] = 0.0
    return nets, (x, y, mask, torch.randint(2**62, (N_NETS, N_ROWS)))


def leaves(tree):
    """All tensors of nested dicts and tuples, by path."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, torch.Tensor):
            yield (key,), value
        else:
            yield from (((key, *path), leaf) for path, leaf in leaves(value))


@pytest.mark.parametrize("name", names())
def test_vmap_over_stacked_nets_equals_single_nets(name):
    nets, data = cohort(name)
    train = (True,) * nets[0].n_units
    step = grad(objective(nets[0], train), has_aux=True)
    params, buffers = stack_module_state(nets)
    params = {key: value.detach() for key, value in params.items()}
    batched = dict(leaves(vmap(step)(params, buffers, *data)))
    for i, net in enumerate(nets):
        own = {key: value.detach() for key, value in net.named_parameters()}
        single = dict(leaves(step(own, dict(net.named_buffers()), *(part[i] for part in data))))
        assert single.keys() == batched.keys()
        for path, value in single.items():
            scale = max(value.abs().max().item(), 1e-3)
            torch.testing.assert_close(batched[path][i], value, rtol=0, atol=1e-9 * scale, msg=str(path))


def test_functional_call_hands_back_new_running_statistics():
    net, x = build("lenet_bn", (1, 28, 28), 4), torch.randn(5, 1, 28, 28)
    untouched = {key: value.clone() for key, value in net.named_buffers()}
    tensors = {**dict(net.named_parameters()), **untouched}
    functional_call(net, tensors, (x, BatchContext.plain(5, net.n_units, train=True)))
    for key, value in net.named_buffers():
        assert torch.equal(value, untouched[key]), "the net itself must not change"
        assert not torch.equal(tensors[key], untouched[key]), key
        assert not tensors[key].requires_grad
    net(x, BatchContext.plain(5, net.n_units, train=True))
    for key, value in net.named_buffers():
        torch.testing.assert_close(tensors[key], value)


def test_vmapped_running_statistics_differ_by_client():
    nets, data = cohort("lenet_bn")
    params, buffers = stack_module_state(nets)
    _, (_, _, after) = vmap(objective(nets[0], (True,) * nets[0].n_units))(params, buffers, *data)
    for key, value in after.items():
        assert value.shape == buffers[key].shape
        assert not torch.equal(value[0], value[1]) and not torch.equal(value, buffers[key]), key


def test_eval_mode_leaves_buffers_alone_under_vmap():
    nets, data = cohort("lenet_bn")
    params, buffers = stack_module_state(nets)
    _, (_, _, after) = vmap(objective(nets[0], (False,) * nets[0].n_units))(params, buffers, *data)
    assert all(torch.equal(after[key], buffers[key]) for key in buffers)


def test_client_without_real_rows_gets_finite_gradients_beside_others():
    nets, (x, y, mask, key) = cohort("lenet_bn")
    mask[1] = 0.0
    params, buffers = stack_module_state(nets)

    def loss(params, buffers, x, y, mask, key):
        tensors = {**params, **buffers}
        _, logits, _ = functional_call(nets[0], tensors, (x, BatchContext(mask, (True,) * 3, key)))
        return (cross_entropy(logits, y, reduction="none") * mask).sum(), {k: tensors[k] for k in buffers}

    grads, after = vmap(grad(loss, has_aux=True))(params, buffers, x, y, mask, key)
    for name, value in grads.items():
        assert torch.equal(value[1], torch.zeros_like(value[1])) and value[0].abs().sum() > 0, name
    for name, value in after.items():
        assert torch.equal(value[1], buffers[name][1]) and not torch.equal(value[0], buffers[name][0]), name
