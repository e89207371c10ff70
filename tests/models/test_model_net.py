"""What every net of the zoo promises: features and head, ordered units, layers, padding without effect."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from idiolect.errors import UserError
from idiolect.models import (
    LSTM,
    BatchContext,
    MaskedBatchNorm,
    Net,
    PlannedDropout,
    Unit,
    build,
    from_module,
    names,
)

from .samples import NORMALISED, SHAPES, STANDARD, rows_for

FEATURES = {
    "mlpnet": 512, "lenet5": 84, "lenet_map": 256, "lenet_fedrepo": 84, "lenet_bn": 128, "tfcnn": 1024,
    "tfcnn_fc": 128, "vgg8": 512, "vgg8_bn": 512, "vgg11": 512, "vgg11_fc": 512, "superfed_cnn": 512,
    "persfl_cnn": 84, "persfl_dnn": 100, "linear_base": 512, "lenet_2d": 2, "tfcnn_tf": 64, "vgg16_bn": 512,
    "resnet20": 64, "resnet56": 64, "resnet34": 512, "mobilenet_v1": 1024, "leaf_cnn": 2048,
    "femnistnet": 1024, "char_lstm": 256,
}  # fmt: skip
ENCODED = {
    "lenet5": 400, "lenet_fedrepo": 256, "lenet_2d": 400, "tfcnn_fc": 1024, "tfcnn_tf": 1024, "vgg11_fc": 512,
    "persfl_cnn": 400, "leaf_cnn": 3136,
}  # fmt: skip
UNITS = {
    "mlpnet": 3, "lenet5": 5, "lenet_map": 3, "lenet_fedrepo": 5, "lenet_bn": 3, "tfcnn": 4, "tfcnn_fc": 5,
    "vgg8": 6, "vgg8_bn": 6, "vgg11": 9, "vgg11_fc": 11, "superfed_cnn": 5, "persfl_cnn": 5, "persfl_dnn": 2,
    "linear_base": 2, "lenet_2d": 5, "tfcnn_tf": 5, "vgg16_bn": 14, "resnet20": 11, "resnet56": 29,
    "resnet34": 18, "mobilenet_v1": 15, "leaf_cnn": 4, "femnistnet": 3, "char_lstm": 4,
}  # fmt: skip


def one_of_each(name, rows=2, shapes=SHAPES):
    torch.manual_seed(1)
    net = build(name, shapes[name], 7)
    return net, rows_for(net, rows, shapes[name])


@pytest.mark.parametrize("name", names())
def test_head_of_features_equals_logits(name):
    net, x = one_of_each(name, shapes=STANDARD)
    how = BatchContext.plain(2, net.n_units)
    features, logits, encoded = net(x, how)
    assert (encoded is None) is (name not in ENCODED)
    assert encoded is None or encoded.shape == (2, ENCODED[name])
    assert features.shape == (2, FEATURES[name]) and logits.shape == (2, 7)
    assert torch.equal(net.features(x, how), features)
    assert torch.equal(net.head(features, how), logits)
    assert logits.std() > 0


@pytest.mark.parametrize("name", names())
def test_units_are_ordered_disjoint_and_cover_every_name(name):
    net, _ = one_of_each(name)
    assert net.n_units == UNITS[name]
    listed = [key for i in range(net.n_units) for key in net.unit_names(i)]
    held = [key for key, _ in net.named_parameters()] + [key for key, _ in net.named_buffers()]
    assert len(listed) == len(set(listed)) and set(listed) == set(held)
    owners = [net.unit_of(key) for key, _ in net.named_parameters()]
    assert owners == sorted(owners) and set(owners) == set(range(net.n_units))
    assert all(net.unit_of(key) == i for i in range(net.n_units) for key in net.unit_names(i))
    assert net.unit_names(-1) == net.unit_names(net.n_units - 1)


@pytest.mark.parametrize("name", names())
def test_layer_groups_are_the_layers_with_parameters_in_order(name):
    net, _ = one_of_each(name)
    groups = net.layer_groups()
    assert [key for group in groups for key in group] == [key for key, _ in net.named_parameters()]
    kinds = nn.Conv2d | nn.Linear | MaskedBatchNorm | nn.Embedding | LSTM
    layers = [path for path, module in net.named_modules() if isinstance(module, kinds)]
    assert [{key.rpartition(".")[0] for key in group} for group in groups] == [{path} for path in layers]


@pytest.mark.parametrize("name", names())
def test_every_head_is_a_single_linear_layer(name):
    net, _ = one_of_each(name)
    assert net.linear_head
    assert net.has_batchnorm == (name in NORMALISED)
    assert net.takes_tokens == (name == "char_lstm")


def test_a_head_of_two_layers_is_not_linear():
    assert not Net([Unit(linear=nn.Linear(2, 2), activation=nn.ReLU())]).linear_head


@pytest.mark.parametrize("name", names())
def test_padding_changes_nothing(name):
    net, x = one_of_each(name, rows=3)
    net = net.double()
    x = x.double() if x.is_floating_point() else x
    plain = BatchContext.plain(3, net.n_units, train=True)
    keys = torch.cat([plain.key, plain.key[:2]])
    padded = BatchContext(torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]), plain.train, keys)
    start = net.state_dict()
    start = {key: value.clone() for key, value in start.items()}
    expected, after = net(x, plain)[1], {key: value.clone() for key, value in net.named_buffers()}
    net.load_state_dict(start)
    beside = 5 * x[:2] if x.is_floating_point() else x[:2].flip(1)
    found = net(torch.cat([x, beside]), padded)[1][:3]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())
    for key, value in net.named_buffers():
        torch.testing.assert_close(value, after[key], rtol=1e-9, atol=1e-10)


def test_a_frozen_unit_runs_in_eval_mode():
    net, x = one_of_each("lenet_bn", rows=4)
    how = BatchContext.plain(4, net.n_units, train=True)
    net(x, how._replace(train=(False, True, True)))
    moved = {key for key, buffer in net.named_buffers() if not torch.equal(buffer, buffer.round())}
    assert moved == {"units.1.normalisation.running_mean", "units.1.normalisation.running_var"}


def test_dropout_layers_of_a_net_have_different_indices():
    net, _ = one_of_each("vgg11_fc")
    dropouts = [module for module in net.modules() if isinstance(module, PlannedDropout)]
    assert [(layer.index, layer.rate) for layer in dropouts] == [(0, 0.5), (1, 0.5)]


def test_dropout_acts_only_in_training():
    net, x = one_of_each("vgg11_fc")
    how = BatchContext.plain(2, net.n_units, train=True)
    evaluated = net(x, how._replace(train=(False,) * net.n_units))[0]
    trained = net(x, how)[0]
    assert torch.equal(trained, net(x, how)[0]) and not torch.equal(trained, evaluated)
    assert not torch.equal(trained, net(x, how._replace(key=how.key + 9))[0])


def test_flags_for_another_number_of_units_are_refused():
    net, x = one_of_each("lenet_map")
    with pytest.raises(ValueError, match="zip"):
        net(x, BatchContext.plain(2, net.n_units + 1))


def test_unknown_parameter_name_is_refused_with_near_matches():
    net, _ = one_of_each("lenet_map")
    with pytest.raises(UserError, match="did you mean"):
        net.unit_of("units.0.convolution.wieght")


def body(last):
    """A user's layers: an encoder, and linear layers with dropout around them."""
    convolution, hidden = nn.Conv2d(1, 4, 3), nn.Linear(4 * 6 * 6, 5)
    encoder = nn.Sequential(convolution, nn.ReLU())
    return encoder, {
        "dropout before": ([encoder, nn.Sequential(nn.Flatten(), nn.Dropout(0.5), hidden, nn.ReLU())], last),
        "dropout after flattening in the encoder": (
            [
                nn.Sequential(encoder, nn.Flatten(), nn.Dropout(0.5)),
                nn.Sequential(hidden, nn.ReLU(), nn.Dropout(0.5)),
            ],
            last,
        ),
        "one module": (nn.Sequential(encoder, nn.Dropout(0.5), nn.Flatten(), hidden, nn.Dropout(0.5)), last),
        "head of several": (
            encoder,
            nn.Sequential(
                nn.Dropout(0.5), nn.Linear(4 * 6 * 6, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 7)
            ),
        ),
        "dropout before the classifier": (
            nn.Sequential(encoder, nn.Flatten(), nn.Dropout(0.5)),
            nn.Linear(4 * 6 * 6, 7),
        ),
    }


@pytest.mark.parametrize("case", body(None)[1])
def test_encoded_is_what_the_users_linear_layers_read_before_dropout(case):
    torch.manual_seed(0)
    encoder, cases = body(nn.Linear(5, 7))
    net = from_module(*cases[case])
    x = torch.randn(3, 1, 8, 8)
    expected = encoder(x).flatten(1)
    for train in (True, False):
        how = BatchContext.plain(3, net.n_units, train=train)
        features, _, encoded = net(x, how)
        found = features if encoded is None else encoded
        torch.testing.assert_close(found, expected)
    assert (encoded is None) is (case == "head of several")
    tensors = {name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in net.named_parameters()}

    def both(tensors):
        return functional_call(net, tensors, (x, BatchContext.plain(3, net.n_units, train=True)))[
            2 * (encoded is not None)
        ]

    torch.testing.assert_close(vmap(both)(tensors)[0], expected.detach())


def test_net_whose_linear_layers_read_the_input_has_no_encoder():
    net = build("mlpnet(hidden=5)", (1, 4, 4), 3)
    assert net(torch.randn(2, 1, 4, 4), BatchContext.plain(2, net.n_units)).encoded is None
