"""Modules of a user's as nets: what is converted, what is refused, what a check finds."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from idiolect.errors import UserError
from idiolect.models import (
    BatchContext,
    MaskedBatchNorm,
    Net,
    PlannedDropout,
    build,
    check_model,
    from_module,
    is_registered,
    names,
    options,
    register_model,
)
from idiolect.models.registered_models import REGISTERED

SHAPE, CLASSES = (1, 8, 8), 3


class Cnn(nn.Module):
    """A CNN as a user would write it, with one dropout layer called twice."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4, eps=1e-3), nn.ReLU())
        self.pool, self.hidden, self.norm = nn.MaxPool2d(2), nn.Linear(64, 6), nn.BatchNorm1d(6)
        self.dropout = nn.Dropout(rate)

    def forward(self, x):
        x = self.dropout(self.pool(self.conv(x)).flatten(1))
        return self.dropout(torch.relu(self.norm(self.hidden(x))))


@pytest.fixture
def registered():
    """Registers models and forgets them again."""
    before = dict(REGISTERED)
    yield register_model
    REGISTERED.clear()
    REGISTERED.update(before)


def cnn(*, in_channels, image_size, n_classes, rate=0.0, wide=False):
    return from_module(Cnn(rate), nn.Linear(6, n_classes))


# ---- conversion


@pytest.mark.parametrize("train", [True, False])
def test_converted_net_equals_the_users_own(train):
    torch.manual_seed(0)
    body, head = Cnn().double().train(train), nn.Linear(6, CLASSES).double()
    nn.init.normal_(body.norm.weight)
    net = from_module(body, head)
    x = torch.randn(5, *SHAPE, dtype=torch.float64)
    found, expected = net(x, BatchContext.plain(5, 2, train=train))[1], head(body(x))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    found.square().sum().backward()
    expected.square().sum().backward()
    for module, prefix in ((body, "units.0.module."), (head, "units.1.linear.")):
        for name, parameter in module.named_parameters():
            mine = net.get_parameter(prefix + name)
            torch.testing.assert_close(mine.grad, parameter.grad, rtol=1e-9, atol=1e-12, msg=name)
        for name, buffer in module.named_buffers():
            if "tracked" not in name:
                torch.testing.assert_close(net.get_buffer(prefix + name), buffer, rtol=1e-12, atol=1e-12)


def test_users_module_is_copied_and_keeps_its_layers():
    body = Cnn()
    net = from_module(body, nn.Linear(6, CLASSES))
    assert isinstance(body.norm, nn.BatchNorm1d) and isinstance(net.units[0].module.norm, MaskedBatchNorm)
    assert net.units[0].module.conv[1].eps == 1e-3
    with torch.no_grad():
        net.units[0].module.hidden.weight.zero_()
    assert body.hidden.weight.any()


def test_padding_changes_nothing_in_a_users_net():
    net = from_module(Cnn(0.5), nn.Linear(6, CLASSES)).double()
    x = torch.randn(7, *SHAPE, dtype=torch.float64)
    how = BatchContext(torch.tensor([1.0] * 4 + [0.0] * 3), (True, True), torch.arange(7) * 11)
    expected = net(x[:4], BatchContext(how.mask[:4], how.train, how.key[:4]))[1]
    torch.testing.assert_close(net(x, how)[1][:4], expected, rtol=1e-12, atol=1e-12)


def test_every_call_of_a_dropout_layer_drops_otherwise():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x):
            return torch.stack([self.dropout(x), self.dropout(x)], 1)

    net = from_module([Twice(), nn.Flatten(), nn.Dropout(0.5)], nn.Linear(200, 2))
    how = BatchContext.plain(2, net.n_units, train=True)
    noise = net.units[0](torch.ones(2, 100), how.mask, True, how.key)  # [rows, calls, 100]
    assert not torch.equal(noise[:, 0], noise[:, 1]) and not torch.equal(noise[0], noise[1])
    assert torch.equal(net.units[0](torch.ones(2, 100), how.mask, True, how.key), noise)
    assert torch.equal(net.units[0](torch.ones(2, 100), how.mask, False, how.key), torch.ones(2, 2, 100))
    layers = [layer for layer in net.modules() if isinstance(layer, PlannedDropout)]
    assert [layer.index for layer in layers] == [0, 1]


def test_a_dropout_layer_in_two_places_is_converted_in_both():
    shared = nn.Dropout(0.5)
    net = from_module(nn.Sequential(shared, nn.Flatten(), shared), nn.Linear(64, 2))
    kinds = [type(layer) for layer in net.units[0].module]
    assert kinds == [PlannedDropout, nn.Flatten, PlannedDropout]


def test_a_list_of_modules_gives_a_unit_each():
    net = from_module([nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()], nn.Linear(72, CLASSES))
    assert net.n_units == 4 and net.linear_head and net.has_batchnorm
    assert net.unit_names(1)[:2] == ("units.1.module.weight", "units.1.module.bias")
    net(
        torch.randn(3, *SHAPE), BatchContext.plain(3, 4, train=True)._replace(train=(True, False, True, True))
    )
    assert not net.units[1].module.running_mean.any()
    assert not from_module(nn.Flatten(), nn.Sequential(nn.Linear(64, 3), nn.ReLU())).linear_head


REFUSED = [
    (nn.InstanceNorm2d(4, track_running_stats=True), "InstanceNorm2d cannot be converted"),
    (nn.BatchNorm2d(4, momentum=None), "and a momentum above 0"),
    (nn.BatchNorm2d(4, track_running_stats=False), "it needs track_running_stats=True"),
    (nn.LazyLinear(4), "has no shape yet"),
    (nn.MultiheadAttention(4, 2, add_zero_attn=True), "MultiheadAttention cannot be converted"),
    (nn.Dropout(1.0), "dropout rate 1.0 is outside"),
]


@pytest.mark.parametrize(("layer", "sentence"), REFUSED)
def test_layer_that_cannot_be_converted_is_refused_by_name(layer, sentence):
    with pytest.raises(UserError, match=sentence):
        from_module(nn.Sequential(nn.Flatten(), nn.Sequential(layer)), nn.Linear(4, 2))


def test_what_cannot_be_split_is_refused():
    with pytest.raises(UserError, match="no weight matrix"):
        from_module(nn.Linear(4, 2), nn.ReLU())
    with pytest.raises(UserError, match="takes modules of torch, not function"):
        from_module(cnn, nn.Linear(4, 2))


# ---- check


class Body(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear, self.apply_ = nn.Linear(64, 6), forward

    def forward(self, x):
        return self.apply_(self, x)


def tried(forward, head=None):
    return check_model(from_module(Body(forward), head or nn.Linear(6, CLASSES)), SHAPE, CLASSES)


def test_good_net_passes_its_check_and_leaves_nothing_behind():
    net = from_module(Cnn(0.3), nn.Linear(6, CLASSES))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state = torch.get_rng_state()
    assert check_model(net, SHAPE, CLASSES) == ""
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


BROKEN = [
    (lambda net, x: net.linear(x), "fails on inputs of 1x8x8: RuntimeError mat1 and mat2"),
    (lambda net, x: F.dropout(net.linear(x.flatten(1)), 0.5, net.training), "draws random numbers"),
    (lambda net, x: net.linear(x.mul_(2).flatten(1)), "writes into its input or its tensors in place"),
    (lambda net, x: net.linear(x.flatten(1))[:2], "logits of 4 rows are .2, 3."),
    (lambda net, x: x.flatten(1)[:, :6] * net.linear.bias.data.add_(1), "writes into its input"),
]


@pytest.mark.parametrize(("forward", "sentence"), BROKEN)
def test_net_that_breaks_its_promises_is_refused(forward, sentence):
    with pytest.raises(UserError, match=sentence):
        tried(forward)


def test_head_of_another_shape_is_refused():
    with pytest.raises(UserError, match="should make 3 logits of 6 features"):
        tried(lambda net, x: net.linear(x.flatten(1)), nn.Linear(6, 4))


def test_net_that_cannot_be_batched_says_why():
    mixing = "its rows change one another, so that padding would change its numbers"
    assert tried(lambda net, x: net.linear(x.flatten(1) - x.flatten(1).mean(0))) == mixing

    def by_value(net, x):
        y = net.linear(x.flatten(1))
        return y if y.sum().item() > 0 else 2 * y

    assert "depends on the values" in tried(by_value)
    assert "depends on the values" in tried(
        lambda net, x: net.linear(x.flatten(1)) if net.training else by_value(net, x)
    )


def test_torchs_own_lstm_cannot_be_batched():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 6, batch_first=True)

        def forward(self, x):
            return self.lstm(x.flatten(1, 2))[0][:, -1]

    assert "no form of its operation aten::" in check_model(
        from_module(Reader(), nn.Linear(6, CLASSES)), SHAPE, CLASSES
    )


def test_normalised_rows_that_are_no_examples_are_refused():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return self.norm(x.reshape(-1, 8)).reshape(len(x), -1)

    with pytest.raises(UserError, match="sees 32 rows of a batch of 4"):
        check_model(from_module(Patches(), nn.Linear(64, CLASSES)), SHAPE, CLASSES)


# ---- names


def test_registered_model_is_built_by_name_with_its_options(registered):
    registered("my_cnn", cnn)
    assert "my_cnn" in names() and is_registered("my_cnn(rate=0.5)") and not is_registered("lenet5")
    assert options("my_cnn") == {"rate": 0.0, "wide": False}
    net = build("my_cnn(rate=0.25)", SHAPE, CLASSES)
    assert isinstance(net, Net) and net.units[0].module.dropout.rate == 0.25
    with pytest.raises(UserError, match="model my_cnn has no option 'depth'; its options: rate, wide"):
        build("my_cnn(depth=3)", SHAPE, CLASSES)


def test_registered_model_starts_by_its_seed_and_leaves_the_random_state_alone(registered):
    registered("my_cnn", cnn)
    state = torch.get_rng_state()
    a, b, c = (build("my_cnn", SHAPE, CLASSES, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["units.0.module.hidden.weight"], c["units.0.module.hidden.weight"])


def test_scheme_overwrites_the_layers_it_knows(registered):
    def grouped(*, in_channels, image_size, n_classes):
        body = nn.Sequential(nn.GroupNorm(1, 1), nn.Flatten(), nn.Linear(64, 500))
        nn.init.constant_(body[0].weight, 3.0)
        return from_module(body, nn.Linear(500, n_classes))

    registered("grouped", grouped)
    net = build("grouped", SHAPE, CLASSES, initialisation="map")
    assert net.units[0].module[0].weight.tolist() == [3.0]
    assert net.units[0].module[2].weight.std().item() == pytest.approx(0.01, rel=0.05)
    with pytest.raises(UserError, match="unknown initialisation"):
        build("grouped", SHAPE, CLASSES, initialisation="mapp")


def test_wrong_registration_is_refused_in_a_sentence(registered):
    for name, builder, sentence in (
        ("lenet5", cnn, "lenet5 is a model already"),
        ("My-Cnn", cnn, "'My-Cnn' cannot name a model"),
        ("none", None, "needs a function that builds it"),
        ("made", nn.Linear(2, 2), "needs a function that builds it"),
        ("deep", lambda in_channels, image_size, n_classes, depth: None, "option depth .* needs a default"),
    ):
        with pytest.raises(UserError, match=sentence):
            registered(name, builder)
    registered("my_cnn", cnn)
    with pytest.raises(UserError, match="my_cnn is a model already"):
        registered("my_cnn", cnn)


def test_builder_that_returns_no_module_is_refused(registered):
    registered("bare", lambda: [nn.Linear(2, 2)])
    with pytest.raises(UserError, match="model bare returned list, not a torch module or a Net"):
        build("bare", SHAPE, CLASSES)
    registered("broken", lambda n_classes: nn.Linear("two", n_classes))
    with pytest.raises(UserError, match="the builder of model broken fails: TypeError"):
        build("broken", SHAPE, CLASSES)
    registered("images", lambda in_channels, outputs: nn.Linear(in_channels, outputs))
    with pytest.raises(UserError, match="and rows of 2x2x2x2 are no images; let it take input_shape"):
        build("images", (2, 2, 2, 2), CLASSES)
