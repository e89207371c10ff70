"""FedPer's ablation: all base layers of a net replaced by a single linear one under the net's own last units.

FedPer: Arivazhagan et al., 2019, section 4.4 (https://arxiv.org/abs/1912.00818): the base layers become one
fully connected layer without non-linearity, to show that what clients share must be more than a linear map; the
personalisation layers stay those of the net.  Units: the linear base, then the last units of the net, the classifier
among them.  Initialisation: the framework's default.

Deviations: none that the paper excludes.  It does not give the width of the layer: the layer makes what enters the
kept units in the whole net.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.models.batch_context import BatchContext
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit
from idiolect.models.zoo.mobilenet import mobilenet_v1
from idiolect.models.zoo.resnet import resnet34

__all__ = ["linear_base"]

NETS: dict[str, Callable[..., Net]] = {"resnet34": resnet34, "mobilenet_v1": mobilenet_v1}


def linear_base(
    *,
    in_channels: int,
    image_size: tuple[int, int],
    n_classes: int,
    net: str = "resnet34",
    units: int = 1,
    side: int = 0,
) -> Net:
    """Flattened image, one linear layer without activation, then the last units of a net.

    Args:
        in_channels: C of the images.
        image_size: height and width of the images.
        n_classes: K, outputs of the classifier.
        net: `resnet34` or `mobilenet_v1`, whose last units are kept.
        units: K_P, how many of them; 1 keeps the classifier alone, on 512 or 1024 features.
        side: height and width of the map that the linear layer makes; 0 makes it as large as in the net.
    """
    refuse_unknown_choice("model linear_base: net", net, NETS)
    shape: dict[str, Any] = {"in_channels": in_channels, "image_size": image_size, "n_classes": n_classes}
    whole = NETS[net](**shape)
    if units >= whole.n_units:
        raise UserError(f"model linear_base: units={units} should be less than the {whole.n_units} of {net}")
    entering = _entering(net, shape, units)
    if side and len(entering) == 1:
        raise UserError("model linear_base: side is for maps, and the classifier of units=1 takes a vector")
    if side:
        entering = (entering[0], side, side)
    inputs = in_channels * image_size[0] * image_size[1]
    layers: dict[str, nn.Module] = {"linear": nn.Linear(inputs, torch.Size(entering).numel())}
    if len(entering) > 1:
        layers["map"] = nn.Unflatten(1, entering)
    return Net([Unit(flatten=nn.Flatten(), **layers), *list(whole.units)[-units:]])


def _entering(net: str, shape: dict[str, Any], units: int) -> tuple[int, ...]:
    """Returns the shape of what enters the last units: (C, H, W) of a map, or (d,) of the classifier's features."""
    with torch.device("meta"):
        whole = NETS[net](**shape)
        height, width = shape["image_size"]
        x, context = torch.empty(1, shape["in_channels"], height, width), BatchContext.plain(1, whole.n_units)
    for unit in list(whole.units)[:-units]:
        x = unit(x, context.mask, False, context.key)
    return tuple(x.shape[1:]) if units > 1 else (x[0].numel(),)
