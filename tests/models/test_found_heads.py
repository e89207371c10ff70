"""The head of an ordinary module is found where the module runs without it, and what cannot be used is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from idiolect.core import Batch
from idiolect.engines import make_task
from idiolect.errors import UserError
from idiolect.models import BatchContext, MaskedBatchNorm, Net, build, check_model, name_of_model
from idiolect.models.registered_models import REGISTERED

K = 3


class Small(nn.Module):
    def __init__(self, forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.run = forward
        self.table = nn.Embedding(2, 4)
        self.body, self.head = nn.Linear(5, 4), nn.Linear(4, K)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.run(self, *inputs)


def built(module: nn.Module, shape: tuple[int, ...] = (5,), **options: object) -> Net:
    REGISTERED["mine"] = lambda: module
    try:
        return build("mine", shape, K, **options)
    finally:
        del REGISTERED["mine"]


@pytest.mark.parametrize(
    ("forward", "is_found"),
    [
        (lambda net, x: net.head(net.body(x).view(-1, net.head.in_features)), True),
        (lambda net, x: net.head(net.body(x) * net.head.weight.mean()), False),
        (lambda net, x: net.head(net.body(x) + float(type(net.head) is nn.Linear)), False),
    ],
)
def test_head_is_cut_off_only_where_the_module_runs_the_same_without_it(forward, is_found):
    module = Small(forward)
    net, x = built(module), torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    assert net.has_head is is_found
    assert check_model(net, (5,), K) == ""
    torch.testing.assert_close(net(x, BatchContext.plain(6, net.n_units)).logits, module(x))


def test_head_of_a_module_with_words_among_its_inputs_is_found():
    class Both(Small):
        def forward(self, numbers, word):
            return self.head(self.body(numbers) + self.table(word).mean(1))

    net = built(Both(print), (6,), inputs=(("numbers", (5,)), ("word", (1,))))
    assert net.has_head and check_model(net, (6,), K) == ""


def test_layers_that_a_module_keeps_in_eval_mode_stay_there():
    class Calm(nn.Sequential):
        def train(self, mode: bool = True) -> Calm:
            super().train(mode)
            self[1].eval()
            self[2].eval()
            return self

    module = Calm(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, K))
    module[1].running_mean.fill_(0.3)
    net, x = built(module), torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    found = net(x, BatchContext.plain(6, net.n_units, train=True)).logits
    torch.testing.assert_close(found, module.train()(x))
    moving = set(dict(net.named_buffers())) - set(net.constants())
    assert {name.rpartition(".")[0] for name in moving} == {"units.0.module.3"}


def test_rows_of_tokens_that_mix_are_not_batched():
    def centred(net: Small, x: torch.Tensor) -> torch.Tensor:
        features = net.table(x).mean(1)
        return net.head(features - features.mean(0))

    assert "rows change one another" in check_model(built(Small(centred)), (5,), K)


def counting_in_place(net: Small, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    return net.head(net.body(x))


def counting_anew(net: Small, x: torch.Tensor) -> torch.Tensor:
    net.calls = net.calls + 1
    return net.head(net.body(x))


@pytest.mark.parametrize("forward", [counting_in_place, counting_anew])
def test_counter_that_would_stand_still_is_refused(forward):
    with pytest.raises(UserError, match=r"changes its buffer .*calls of whole numbers"):
        check_model(built(Small(forward)), (5,), K)


def test_builder_without_a_signature_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="model int needs a function of Python that builds it"):
        name_of_model(int)


def test_module_with_lazy_layers_can_be_given_itself():
    name = name_of_model(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(K)))
    try:
        one, again, other = (build(name, (5,), K, seed=seed).units[0].module[0].weight for seed in (1, 1, 2))
    finally:
        del REGISTERED[name]
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_scheme_leaves_a_layer_with_computed_weights_alone():
    layer = parametrizations.weight_norm(nn.Linear(5, 4))
    net = built(nn.Sequential(layer, nn.Linear(4, K)), initialisation="map")
    assert torch.equal(net.units[0].module[0].bias, layer.bias) and bool(
        (net.units[1].linear.bias == 0).all()
    )


def test_frozen_normalisation_keeps_the_precision_of_the_run():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, K))
    module[0].requires_grad_(False)
    net = built(module)
    (layer,) = (each for each in net.modules() if isinstance(each, MaskedBatchNorm))
    seen: list[torch.dtype] = []
    layer.register_forward_pre_hook(
        lambda layer, inputs: seen.extend(
            t.dtype for t in (layer.weight, layer.running_mean, layer.running_var)
        )
    )
    task = make_task(net, compute=torch.bfloat16)
    params = {name: p.detach() for name, p in net.named_parameters() if name in task.structure.params}
    ones = torch.ones(6)
    task.forward(params, {}, Batch(torch.zeros(6, 5), ones.long(), ones, ones.long(), {}), False)
    assert task.structure.buffers == () and seen == [torch.float32] * 3
