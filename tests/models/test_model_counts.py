"""Parameter counts worked out by hand from the definitions in the papers and their released code."""

import pytest
import torch

from idiolect.models import build, describe
from idiolect.models.catalogue import names

DIGIT_28, DIGIT_32, COLOUR, TINY = (1, 28, 28), (1, 32, 32), (3, 32, 32), (3, 64, 64)
TEXT = (1, 1, 80)

COUNTS = [
    ("mlpnet", DIGIT_32, 10, 792_576),
    ("mlpnet(head_bias=True)", DIGIT_32, 10, 792_586),
    ("mlpnet", DIGIT_28, 10, 669_696),
    ("mlpnet(head_bias=True)", DIGIT_28, 10, 669_706),
    ("mlpnet(official=True)", DIGIT_28, 10, 1_985_920),
    ("lenet_map", DIGIT_28, 10, 9_392),
    ("lenet_map", DIGIT_32, 10, 10_832),
    ("lenet_fedrepo", DIGIT_28, 10, 48_686),
    ("lenet5", DIGIT_32, 10, 61_706),
    ("lenet5", DIGIT_28, 10, 61_706),
    ("lenet_bn", DIGIT_28, 10, (25 + 1 + 2) * 4 + (4 * 25 + 1 + 2) * 8 + (8 * 16 + 1) * 10),
    ("tfcnn", COLOUR, 10, 66_560),
    ("tfcnn", COLOUR, 100, 158_720),
    ("tfcnn_fc", COLOUR, 10, 188_810),
    ("tfcnn_fc", COLOUR, 100, 200_420),
    ("vgg8", COLOUR, 10, 3_915_904),
    ("vgg8", COLOUR, 100, 3_961_984),
    ("vgg8_bn", COLOUR, 10, 3_918_848),
    ("vgg8_bn", COLOUR, 100, 3_964_928),
    ("vgg11", COLOUR, 10, 9_225_600),
    ("vgg11", COLOUR, 100, 9_271_680),
    ("vgg11_fc", COLOUR, 10, 9_750_922),
    ("vgg11_fc", COLOUR, 100, 9_797_092),
    ("superfed_cnn", DIGIT_28, 62, 109_022),
    ("superfed_cnn", COLOUR, 10, 94_186),
    ("superfed_cnn", COLOUR, 100, 140_356),
    ("superfed_cnn", TINY, 200, 181_416),
    ("persfl_cnn", COLOUR, 10, 62_006),
    ("persfl_dnn", DIGIT_28, 10, 79_510),
    ("lenet_2d", DIGIT_28, 10, 156 + 2416 + 48_120 + 242 + 20),
    ("lenet_2d(relu=False, head_bias=True)", DIGIT_32, 10, 156 + 2416 + 48_120 + 242 + 30),
    ("tfcnn_tf", COLOUR, 10, 122_570),
    ("vgg11(normalised=True)", COLOUR, 10, 9_231_104),
    ("vgg16_bn", COLOUR, 10, 14_728_256),
    ("vgg16_bn", COLOUR, 100, 14_774_336),
    ("resnet20", COLOUR, 10, 272_464),
    ("resnet56", COLOUR, 10, 855_760),
    ("resnet34", COLOUR, 10, 21_282_122),
    ("resnet34(stem=imagenet)", COLOUR, 10, 21_289_802),
    ("mobilenet_v1", COLOUR, 10, 3_217_226),
    ("mobilenet_v1(blocks=11)", COLOUR, 10, 3_217_226 - 2 * (512 * 9 + 512 * 512 + 4 * 512)),
    ("leaf_cnn", DIGIT_28, 62, 6_603_710),
    ("femnistnet", DIGIT_28, 62, 115_584),
    ("char_lstm", TEXT, 81, 820_185),
    ("char_lstm(head_bias=False)", TEXT, 81, 820_104),
    ("linear_base", COLOUR, 100, 3072 * 512 + 512 + 512 * 100 + 100),
]


@pytest.mark.parametrize(("spec", "shape", "n_classes", "expected"), COUNTS)
def test_parameter_count_equals_the_papers(spec, shape, n_classes, expected):
    net = build(spec, shape, n_classes)
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


def test_counts_cover_every_model():
    assert {spec.partition("(")[0] for spec, *_ in COUNTS} == set(names())


def test_description_counts_equal_built_nets():
    for row in describe():
        net = build(row.name, row.image_shape, 10)
        assert row.parameters == sum(parameter.numel() for parameter in net.parameters()), row.name


@pytest.mark.parametrize("name", names())
def test_every_tensor_is_on_the_cpu_and_finite(name):
    shape = next(row.image_shape for row in describe() if row.name == name)
    for key, tensor in build(name, shape, 10).state_dict().items():
        assert tensor.device.type == "cpu" and torch.isfinite(tensor).all(), key
