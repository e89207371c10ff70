"""Ordinary torch modules as networks: converting changes no forward pass, and engines agree on a round of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from idiolect.data import Dataset
from idiolect.engines import Engine, EngineChoice, LoopEngine, choose_engine
from idiolect.errors import UserError
from idiolect.experiments import Experiment, Setting, Simulation, prepare
from idiolect.models import BatchContext, build, check_model, from_module
from idiolect.models.registered_models import REGISTERED

K = 3
LOOP = EngineChoice("loop", "cpu", "as asked")


class Case(NamedTuple):
    """A module, the rows it takes, and why it cannot be run for many clients at once.

    Args:
        eval_only: the module itself can be compared in eval mode only.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    alone: str = ""
    eval_only: bool = False
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    vocabulary: int | None = None


class Of(nn.Module):
    """Layers by name and a function of them and the inputs."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.run(self, *inputs)


def sequence(*layers: nn.Module, width: int) -> Callable[[], nn.Module]:
    """Fresh copies of layers, drawn anew, under a linear head."""
    return lambda: nn.Sequential(*map(_drawn, deepcopy(layers)), nn.Flatten(), nn.Linear(width, K))


def _drawn(layer: nn.Module) -> nn.Module:
    if hasattr(layer, "reset_parameters"):
        layer.reset_parameters()
    return layer


def recurrent(kind: type[nn.Module], **options: Any) -> Callable[[], nn.Module]:
    wide = 4 * (2 if options.get("bidirectional") else 1)
    return lambda: Of(
        lambda net, x: net.head(net.reader(x)[0][:, -1]),
        reader=kind(3, 4, batch_first=True, **options),
        head=nn.Linear(wide, K),
    )


def attention(rate: float) -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net.head((x + net.attention(x, x, x)[0]).mean(1))

    return Of(
        forward,
        attention=nn.MultiheadAttention(4, 2, dropout=rate, batch_first=True),
        head=nn.Linear(4, K),
    )


def encoder(rate: float, batch_first: bool) -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        turned = x if batch_first else x.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]).to(x)
        y = net.encoder(turned, mask=mask)
        return net.head(y.mean(1 if batch_first else 0))

    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=rate, batch_first=batch_first)
    return Of(
        forward, encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), head=nn.Linear(4, K)
    )


def decoder() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]).to(x)
        return net.head(net.decoder(x, x.flip(1), tgt_mask=mask).mean(1))

    layer = nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    return Of(forward, decoder=nn.TransformerDecoder(layer, 1), head=nn.Linear(4, K))


def tied() -> nn.Module:
    net = Of(
        lambda net, x: net.head(torch.relu(net.second(torch.relu(net.first(x))))),
        first=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
        head=nn.Linear(4, K),
    )
    net.second.weight = net.first.weight
    return net


def tied_head() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net.decoder(net.embedding(x).mean(1))

    net = Of(forward, embedding=nn.Embedding(K, 4), decoder=nn.Linear(4, K, bias=False))
    net.decoder.weight = net.embedding.weight
    return net


def pretrained() -> nn.Module:
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, K))
    net.load_state_dict(
        {n: torch.linspace(-1, 1, t.numel()).reshape(t.shape) for n, t in net.state_dict().items()}
    )
    return net


def frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, K))
    net[0].requires_grad_(False)
    return net


def positions() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net.head(torch.tanh(net.enter(x) + net.table(net.ids) * net.scale).flatten(1))

    net = Of(forward, enter=nn.Linear(3, 4), table=nn.Embedding(6, 4), head=nn.Linear(24, K))
    net.register_buffer("ids", torch.arange(6))
    net.register_buffer("scale", torch.full((4,), 0.3))
    return net


def plain_tensor() -> nn.Module:
    net = Of(lambda net, x: net.head(x * net.factor), head=nn.Linear(5, K))
    net.factor = torch.linspace(0.5, 1.5, 5)
    return net


def _by_hook(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(layer)


def residual() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        y = net.norm(net.first(x))
        y = torch.relu(y + net.second(torch.relu(y)))
        return net.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))

    return Of(
        forward,
        first=nn.Conv2d(2, 4, 3, padding=1),
        norm=nn.BatchNorm2d(4),
        second=nn.Conv2d(4, 4, 3, padding=1, bias=False),
        fc=nn.Linear(4, K),
    )


def routed() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in net.steps:
            x = torch.relu(layer(x))
        return net.ends["out"](x)

    steps = nn.ModuleList([nn.Linear(5, 4), nn.Linear(4, 4)])
    return Of(forward, steps=steps, ends=nn.ModuleDict({"unused": nn.Linear(4, 2), "out": nn.Linear(4, K)}))


def two_inputs() -> nn.Module:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.table, self.words = nn.Conv1d(2, 3, 3), nn.Linear(4, 3), nn.Embedding(5, 3)
            self.head = nn.Linear(9 + 3 + 3, K)

        def forward(self, table, image, words):
            found = [self.image(image).flatten(1), self.table(table), self.words(words.abs() % 5).mean(1)]
            return self.head(torch.relu(torch.cat(found, 1)))

    return Both()


IMAGE, SERIES, VOLUME, FLAT = (2, 6, 6), (6, 3), (2, 4, 4, 4), (5,)
VMAP = "torch has no form of its operation aten::"
CASES = {
    "conv1d": Case(sequence(nn.Conv1d(6, 4, 2), nn.ReLU(), width=8), SERIES),
    "conv2d": Case(sequence(nn.Conv2d(2, 4, 3, stride=2), nn.ReLU(), width=16), IMAGE),
    "conv3d": Case(sequence(nn.Conv3d(2, 3, 2), nn.ReLU(), width=81), VOLUME),
    "conv_transpose": Case(sequence(nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), width=147), IMAGE),
    "grouped": Case(sequence(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), width=64), IMAGE),
    "depthwise": Case(
        sequence(nn.Conv2d(2, 2, 3, groups=2, padding=1), nn.Conv2d(2, 4, 1), width=144), IMAGE
    ),
    "batch_norm1d": Case(sequence(nn.Linear(5, 4), nn.BatchNorm1d(4), width=4), FLAT),
    "batch_norm2d": Case(sequence(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), width=64), IMAGE),
    "batch_norm3d": Case(sequence(nn.BatchNorm3d(2), nn.ReLU(), width=128), VOLUME),
    "batch_norm_plain": Case(sequence(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), width=4), FLAT),
    "batch_norm_slow": Case(sequence(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=0.01), width=4), FLAT),
    "sync_batch_norm": Case(
        lambda: nn.Sequential(nn.Linear(5, 4), nn.SyncBatchNorm(4), nn.Linear(4, K)), FLAT, eval_only=True
    ),
    "group_norm": Case(sequence(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), width=64), IMAGE),
    "layer_norm": Case(sequence(nn.LayerNorm(3), nn.GELU(), width=18), SERIES),
    "instance_norm": Case(sequence(nn.InstanceNorm2d(2, affine=True), nn.ReLU(), width=72), IMAGE),
    "rms_norm": Case(sequence(nn.RMSNorm(3), width=18), SERIES),
    "local_response": Case(sequence(nn.Conv2d(2, 4, 3), nn.LocalResponseNorm(2), width=64), IMAGE),
    "weight_norm": Case(
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, K)),
        FLAT,
        VMAP,
    ),
    "weight_norm_by_hook": Case(
        lambda: nn.Sequential(_by_hook(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, K)), FLAT, VMAP
    ),
    "spectral_norm": Case(
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, K)),
        FLAT,
        "is written in place",
    ),
    "rnn": Case(recurrent(nn.RNN), SERIES, VMAP),
    "gru": Case(recurrent(nn.GRU, bidirectional=True), SERIES, VMAP),
    "lstm": Case(recurrent(nn.LSTM), SERIES, VMAP),
    "lstm_stacked": Case(
        recurrent(nn.LSTM, num_layers=2, dropout=0.3), SERIES, "random numbers", eval_only=True
    ),
    "attention": Case(lambda: attention(0.0), (6, 4)),
    "attention_dropout": Case(lambda: attention(0.3), (6, 4), eval_only=True),
    "encoder": Case(lambda: encoder(0.0, True), (6, 4)),
    "encoder_dropout": Case(lambda: encoder(0.3, True), (6, 4), eval_only=True),
    "encoder_time_first": Case(lambda: encoder(0.3, False), (8, 4), eval_only=True),
    "decoder": Case(decoder, (6, 4)),
    "embedding": Case(
        lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, K)), (4,), vocabulary=7
    ),
    "embedding_bag": Case(
        lambda: nn.Sequential(nn.EmbeddingBag(7, 3), nn.Linear(3, K)), (4,), VMAP, vocabulary=7
    ),
    "prelu": Case(sequence(nn.Linear(5, 4), nn.PReLU(4), width=4), FLAT),
    "bare_parameter": Case(
        lambda: Of(
            lambda net, x: net.head(x * net.scale), scale=nn.Parameter(torch.rand(5)), head=nn.Linear(5, K)
        ),
        FLAT,
    ),
    "tied": Case(tied, (4,)),
    "tied_head": Case(tied_head, (4,), vocabulary=K),
    "two_inputs": Case(two_inputs, (19,), inputs=(("image", (2, 5)), ("table", (4,)), ("words", (5,)))),
    "pretrained": Case(pretrained, FLAT),
    "frozen": Case(frozen, FLAT),
    "positions": Case(positions, SERIES),
    "plain_tensor": Case(plain_tensor, FLAT),
    "residual": Case(residual, IMAGE),
    "lazy": Case(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(K)), IMAGE),
    "functional_dropout": Case(
        lambda: Of(lambda net, x: net.head(F.dropout(x, 0.4, net.training)), head=nn.Linear(5, K)),
        FLAT,
        "random numbers",
        eval_only=True,
    ),
    "dropout2d": Case(sequence(nn.Conv2d(2, 4, 3), nn.Dropout2d(0.5), width=64), IMAGE, eval_only=True),
    "alpha_dropout": Case(
        sequence(nn.Linear(5, 4), nn.SELU(), nn.AlphaDropout(0.3), width=4), FLAT, eval_only=True
    ),
    "routed": Case(routed, FLAT),
    "no_head": Case(
        lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, K), nn.LogSoftmax(-1)), FLAT
    ),
    "pooled_head": Case(lambda: Of(lambda net, x: net.head(x).mean(1), head=nn.Linear(3, K)), SERIES),
    "by_value": Case(
        lambda: Of(lambda net, x: net.head(x if float(x.sum()) > 0 else 2 * x), head=nn.Linear(5, K)),
        FLAT,
        "depends on the values",
    ),
}


SIMILAR = (
    *("conv2d", "conv_transpose", "grouped", "batch_norm1d", "batch_norm3d", "sync_batch_norm", "layer_norm"),
    *("rms_norm", "local_response", "rnn", "lstm", "encoder", "prelu", "pretrained", "residual", "routed"),
)  # a round of these is a slow test, because another case is much like them


@pytest.fixture(params=CASES)
def case(request):
    yield from _registered(CASES[request.param])


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.slow) if n in SIMILAR else n for n in CASES])
def round_case(request):
    yield from _registered(CASES[request.param])


def _registered(found: Case) -> Iterator[Case]:
    REGISTERED["mine"] = found.build
    yield found
    del REGISTERED["mine"]


def rows_of(case: Case, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if case.vocabulary:
        return torch.randint(case.vocabulary, (n, *case.shape), generator=generator)
    return torch.randn(n, *case.shape, generator=generator, dtype=torch.float64)


def called(case: Case, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The untouched module on rows."""
    if not case.inputs:
        return module(x)
    sizes = [torch.Size(shape).numel() for _, shape in case.inputs]
    pieces = zip(case.inputs, x.split(sizes, 1), strict=True)
    given = {name: piece.reshape(len(x), *shape) for (name, shape), piece in pieces}
    return module(**given | {"words": given["words"].long()})


def original(case: Case, seed: int) -> nn.Module:
    """What the builder returns under a seed, as the package calls it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = case.build()
        with torch.no_grad():
            called(case, module.eval(), rows_of(case, 2).float() if not case.vocabulary else rows_of(case, 2))
    return module.double()


@pytest.mark.parametrize("train", [True, False])
def test_converting_changes_no_forward_pass(case, train):
    if train and case.eval_only:
        pytest.skip("the module draws noise, or trains on a GPU only")
    module, net = original(case, 4), build("mine", case.shape, K, seed=4, inputs=case.inputs).double()
    x = rows_of(case, 6)
    given = x.flatten(1).long() if net.takes_tokens else x
    found = net(given, BatchContext.plain(6, net.n_units, train=train)).logits
    torch.testing.assert_close(found, called(case, module.train(train), x), rtol=1e-12, atol=1e-12)


def test_net_starts_with_the_values_of_the_builder(case):
    module, net = original(case, 9), build("mine", case.shape, K, seed=9, inputs=case.inputs).double()
    values = sorted(float(p.detach().sum()) for p in module.parameters())
    assert sorted(float(p.detach().sum()) for p in net.parameters()) == pytest.approx(values, abs=1e-12)
    assert [p.requires_grad for p in net.parameters()] == [p.requires_grad for p in module.parameters()]


def data_of(case: Case) -> Dataset:
    n = 20
    x, y = rows_of(case, n).numpy(), np.arange(n) % K
    return Dataset(
        name="mine",
        train_x=x if case.vocabulary else x.astype(np.float32),
        train_y=y.astype(np.int64),
        test_x=x[:4] if case.vocabulary else x[:4].astype(np.float32),
        test_y=y[:4].astype(np.int64),
        n_classes=K,
        mean=() if case.vocabulary else (0.0,) * case.shape[0],
        std=() if case.vocabulary else (1.0,) * case.shape[0],
        manifest={},
        train_ids=np.repeat([0, 1], [9, 11]),
        vocabulary=case.vocabulary,
        inputs=case.inputs,
    )


EXPERIMENT = Experiment(
    dataset="mine",
    partition="by_id",
    clients=2,
    model="mine",
    rounds=1,
    participation_rate=1.0,
    local_epochs=1,
    batch_size=4,
    precision="float64",
)


def after_a_round(setting: Setting, engine: Engine) -> dict[str, torch.Tensor]:
    simulation = Simulation.start(setting, engine)
    simulation.advance()
    found = {**simulation.server["params"], **simulation.server["buffers"]}
    return {name: value.cpu() for name, value in found.items()}


def test_engines_agree_on_a_round(round_case):
    setting = prepare(EXPERIMENT, LOOP, dataset=data_of(round_case))
    chosen = EngineChoice("cohort", "cpu", "as asked").for_network(setting.cannot_batch)
    assert (chosen.engine == "loop") == bool(round_case.alone)
    assert round_case.alone in setting.cannot_batch
    found = after_a_round(setting, LoopEngine(setting.work))
    again = after_a_round(setting, choose_engine(chosen, setting.work))
    first = setting.first_server()["params"]
    assert any(not torch.equal(value, found[name]) for name, value in first.items())
    for name, value in found.items():
        torch.testing.assert_close(again[name], value, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA GPU here")
def test_a_gpu_agrees_on_a_round(case):
    if case.alone and case.eval_only:
        pytest.skip("the module's own noise is another on a GPU")
    here = prepare(EXPERIMENT, LOOP, dataset=data_of(case))
    there = prepare(EXPERIMENT, EngineChoice("cohort", "cuda", "as asked"), dataset=data_of(case))
    chosen = EngineChoice("cohort", "cuda", "as asked").for_network(there.cannot_batch)
    expected = after_a_round(here, LoopEngine(here.work))
    found = after_a_round(there, choose_engine(chosen, there.work))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9, msg=name)


NOISY = [name for name, case in CASES.items() if case.eval_only and name != "sync_batch_norm"]


@pytest.mark.parametrize("name", NOISY)
def test_noise_follows_the_keys_of_the_rows(name):
    case = CASES[name]
    REGISTERED["mine"] = case.build
    try:
        net = build("mine", case.shape, K)
    finally:
        del REGISTERED["mine"]
    x = rows_of(case, 6).float()
    plain, state = BatchContext.plain(6, net.n_units, train=True), torch.get_rng_state()
    one, again, other = (net(x, plain._replace(key=plain.key * 97 + start)).logits for start in (0, 0, 5))
    assert torch.equal(one, again) and not torch.allclose(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["encoder_time_first", "decoder", "attention_dropout"])
def test_attention_can_be_traced(name):
    module = CASES[name].build()
    net = from_module(module, "head").to("meta")
    x = torch.empty(2, *CASES[name].shape, device="meta")
    assert net(x, BatchContext.plain(2, 2, train=True, device="meta")).logits.shape == (2, K)


REFUSED = {
    "tuple": (
        lambda: Of(lambda net, x: (net.head(x), x), head=nn.Linear(5, K)),
        "returns a tuple, not one tensor",
    ),
    "wrong outputs": (lambda: nn.Sequential(nn.Linear(5, 4)), "should make 3 logits"),
    "wrong rows": (lambda: nn.Linear(7, K), "fails on inputs of 5: RuntimeError"),
    "all frozen": (lambda: nn.Linear(5, K).requires_grad_(False), "no parameter that can be trained"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_module_that_cannot_run_is_refused_in_a_sentence(name):
    builder, sentence = REFUSED[name]
    REGISTERED["mine"] = builder
    try:
        with pytest.raises(UserError, match=sentence):
            check_model(build("mine", (5,), K), (5,), K)
    finally:
        del REGISTERED["mine"]
