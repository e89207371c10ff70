"""Builds a net from a user's own torch modules: `from_module(body, head)`.

Modules are used as they are, except for layers that read a batch as a whole or draw noise: batch normalisation
becomes `MaskedBatchNorm`, dropout `PlannedDropout` and attention `PlannedAttention`, under the same names and with the
same values.  Other properties of a module show only when it runs, so it is checked before a run; see `check_model`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from idiolect.errors import UserError, unknown_name
from idiolect.models.attention import PlannedAttention
from idiolect.models.dropout import (
    PlannedAlphaDropout,
    PlannedChannelDropout,
    PlannedDropout,
    PlannedFeatureAlphaDropout,
)
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["InputShapes", "OwnUnit", "SeveralInputs", "copy_of", "from_module", "passing_on", "whole_numbers"]

InputShapes = Sequence[tuple[str, tuple[int, ...]]]
DROPOUTS: dict[type[nn.Module], type[PlannedDropout]] = {
    nn.Dropout: PlannedDropout,
    nn.Dropout1d: PlannedChannelDropout,
    nn.Dropout2d: PlannedChannelDropout,
    nn.Dropout3d: PlannedChannelDropout,
    nn.AlphaDropout: PlannedAlphaDropout,
    nn.FeatureAlphaDropout: PlannedFeatureAlphaDropout,
}
ROWS_APART = (
    1_000_003  # between the keys of two examples, where an example has several rows in a dropout layer
)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def from_module(
    body: nn.Module | Sequence[nn.Module], head: nn.Module | str | None, inputs: InputShapes = ()
) -> Net:
    """Builds a net from copies of modules.

    Args:
        body: x -> features [B, d], or a map that is flattened to them; a list of modules, run one after the
            other, gives as many units, between which FedPer can split.
        head: features -> logits [B, K], one `nn.Linear` where a method restricts the softmax; or the name of the layer
            of the body that makes its output, such as `"classifier.2"`, which is then cut off the body; or None for a
            body that makes the logits itself, which methods that need a head refuse.
        inputs: name and shape of each input of a body that takes several; a row holds them one after the other, and
            the body is called with them by name, or in this order if it has no arguments of these names.

    Parameters with `requires_grad=False` are constants: never trained, never sent.  A tensor that two layers share is
    one tensor; where body and head share one, there is no head.

    Modules must hold their layers in the order in which they run, because FedPHP compares what enters the first
    linear layer in that order.

    >>> body = nn.Sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4))
    >>> net = from_module(body, nn.Linear(4 * 6 * 6, 10))
    >>> net.has_batchnorm, net.linear_head, net.n_units
    (True, True, 2)
    >>> from_module(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), head="1").linear_head
    True
    """
    bodies = list(body) if isinstance(body, Sequence | nn.ModuleList) else [body]
    for module in (*bodies, *([] if head is None or isinstance(head, str) else [head])):
        if not isinstance(module, nn.Module):
            raise UserError(f"from_module takes modules of torch, not {type(module).__name__}")
    if isinstance(head, str):
        *first, last = copy_of(bodies)
        last, cut = _without(last, head)
        modules: list[nn.Module] = [*first, last, cut]
    else:
        modules = copy_of([*bodies, *([] if head is None else [head])])
    if inputs:
        modules[0] = SeveralInputs(modules[0], inputs)
    modules = _converted(modules)
    if head is not None and _shares_tensors(modules[:-1], modules[-1]):
        modules, head = [nn.Sequential(*modules[:-1], nn.Flatten(), modules[-1])], None
    net = Net([*(OwnUnit(module) for module in modules[:-1]), _last_unit(modules[-1], head is not None)])
    net.observe(has_head=head is not None)
    _refuse_unusable(net)
    return net


def copy_of(modules: Any) -> Any:
    """Returns deep copies; tensors that a layer computes of its parameters, as weight_norm does, are copied too."""
    computed = [
        value
        for module in modules
        for layer in module.modules()
        for value in vars(layer).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    ]
    return deepcopy(modules, {id(value): value.detach().clone() for value in computed})


def _without(module: nn.Module, path: str) -> tuple[nn.Module, nn.Module]:
    """Cuts a layer off a module, which then returns what entered the layer."""
    layers = dict(module.named_modules())
    if path not in layers:
        raise unknown_name("layer of the model", path, [name for name in layers if name])
    if not path:
        return nn.Identity(), module
    parent, _, name = path.rpartition(".")
    layers[parent]._modules[name] = passing_on(layers[path])
    return module, layers[path]


def passing_on(layer: nn.Module) -> nn.Module:
    """Returns what stands where a layer is cut off: it hands its input on, and has the layer's settings to be read."""
    stand_in = nn.Identity()
    settings = {key: value for key, value in vars(layer).items() if not key.startswith("_")}
    vars(stand_in).update(settings)
    return stand_in


def _last_unit(module: nn.Module, is_head: bool) -> nn.Module:
    return Unit(linear=module) if is_head and type(module) is nn.Linear else OwnUnit(module)


def _shares_tensors(bodies: Sequence[nn.Module], head: nn.Module) -> bool:
    theirs = {id(p) for body in bodies for p in body.parameters()}
    return any(id(p) in theirs for p in head.parameters())


def _converted(modules: list[nn.Module]) -> list[nn.Module]:
    """Replaces layers in place, at any depth, and returns the modules; a layer held twice is replaced by one layer."""
    numbers = count()
    done: dict[int, nn.Module] = {}
    kept: list[nn.Module] = []  # so that no address serves two layers

    def convert(layer: nn.Module) -> nn.Module:
        if id(layer) not in done:
            kept.append(layer)
            for name, child in layer._modules.items():
                if child is not None:
                    layer._modules[name] = convert(child)
            _hold_tensors(layer)
            done[id(layer)] = _replaced(layer, numbers)
        return done[id(layer)]

    return [convert(module) for module in modules]


def _hold_tensors(layer: nn.Module) -> None:
    """Makes buffers of tensors that are plain attributes, so that they follow the net to its device and precision."""
    plain = [name for name, value in vars(layer).items() if type(value) is Tensor]
    for name in plain if not layer._forward_pre_hooks else ():  # a hook may compute them anew
        value = vars(layer).pop(name)
        layer.register_buffer(name, value)


def _refuse_unusable(net: Net) -> None:
    """Refuses a net whose tensors cannot be averaged or split, by name."""
    lazy = [name for name, p in net.named_parameters() if isinstance(p, UninitializedParameter)]
    if lazy:
        raise UserError(
            f"{lazy[0]} of the model has no shape yet; replace lazy layers by plain ones, or let the builder return "
            "the module itself"
        )
    if not any(p.requires_grad for p in net.parameters()):
        raise UserError("the model has no parameter that can be trained; set requires_grad of some to True")
    if net.has_head and not any(p.dim() > 1 for p in net.units[-1].parameters()):
        raise UserError("the head of the model has no weight matrix; end with a linear layer")


def _channels_first(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Lays rows out with their channels first.

    Group normalisation of rows whose channels lie last ends the process where only its own parameters need gradients
    on a CPU (PyTorch 2.13), as after a frozen layer.
    """
    return tuple(x.contiguous() for x in inputs)


def _replaced(layer: nn.Module, numbers: Iterator[int]) -> nn.Module:
    kind = type(layer).__name__
    if type(layer) in BATCH_NORMS:
        assert isinstance(layer, _BatchNorm)
        return _masked(layer)
    if type(layer) in DROPOUTS:
        assert isinstance(layer, _DropoutNd)
        return DROPOUTS[type(layer)](layer.p, next(numbers))
    if type(layer) is nn.MultiheadAttention:
        return PlannedAttention.planned(layer, next(numbers))
    if isinstance(layer, nn.TransformerEncoder | nn.TransformerDecoder):
        layer.register_forward_pre_hook(_mask_as_given, with_kwargs=True)
    if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        layer.activation_relu_or_gelu = (
            0  # torch's path for evaluation, which cannot be vmapped, is not taken
        )
        if not layer.self_attn.batch_first:
            for inner in layer.modules():
                if isinstance(inner, PlannedDropout):
                    inner.__dict__["_rows_axis"] = 1
    if isinstance(layer, nn.GroupNorm):
        layer.register_forward_pre_hook(_channels_first)
    if isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats):
        raise UserError(f"the model's {kind} cannot be converted; use BatchNorm1d, 2d or 3d, or GroupNorm")
    if isinstance(layer, _DropoutNd):
        raise UserError(f"the model's {kind} cannot be converted; use nn.Dropout")
    return layer


def _mask_as_given(
    layer: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Keeps a transformer from looking whether the values of its mask are causal, which no trace can follow.

    Planned attention adds the mask as it is either way.
    """
    hint, place = ("is_causal", 3) if isinstance(layer, nn.TransformerEncoder) else ("tgt_is_causal", 6)
    if len(inputs) <= place and given.get(hint) is None:
        given = {**given, hint: False}
    return inputs, given


def _masked(layer: _BatchNorm) -> MaskedBatchNorm:
    if not (layer.track_running_stats and layer.momentum):
        raise UserError(
            f"the model's {layer} cannot be converted; it needs track_running_stats=True and a momentum above 0"
        )
    found = MaskedBatchNorm(layer.num_features, layer.momentum, layer.eps)
    if layer.affine:
        found.weight, found.bias = layer.weight, layer.bias
    else:
        for name, start in (("weight", 1.0), ("bias", 0.0)):
            delattr(found, name)
            found.register_buffer(name, torch.full((layer.num_features,), start))
    assert layer.running_mean is not None and layer.running_var is not None
    found.running_mean, found.running_var = layer.running_mean, layer.running_var
    return found


class SeveralInputs(nn.Module):
    """A module of several inputs as one of flat rows, which hold the inputs one after the other."""

    def __init__(self, module: nn.Module, inputs: InputShapes) -> None:
        super().__init__()
        self.module = module
        self.inputs = tuple((str(name), tuple(shape)) for name, shape in inputs)
        arguments = inspect.signature(module.forward).parameters
        self.by_name = all(name in arguments for name, _ in self.inputs)

    def forward(self, x: Tensor) -> Any:
        sizes = [torch.Size(shape).numel() for _, shape in self.inputs]
        pieces = x.flatten(1).split(sizes, dim=1)
        given = {
            name: piece.reshape(x.shape[0], *shape)
            for (name, shape), piece in zip(self.inputs, pieces, strict=True)
        }
        return self.module(**given) if self.by_name else self.module(*given.values())


class OwnUnit(nn.Module):
    """A user's module as a unit, which is called with x alone.

    Hooks pass the mask, mode and keys to its converted layers. The mode is the one that the module's own `train` gives
    a layer, which may keep some in eval mode. Every call of a dropout layer has its own noise, also when one layer is
    called twice.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._now: tuple[Tensor, Iterator[Tensor]] | None = None  # mask and keys, while a pass goes on
        self._guesses_axis = False
        for layer in module.modules():
            if isinstance(layer, MaskedBatchNorm):
                layer.register_forward_pre_hook(self._inform_normalisation)
            elif isinstance(layer, PlannedDropout):
                layer.register_forward_pre_hook(self._inform_dropout)
                layer.register_forward_hook(_turned_back)
            elif isinstance(layer, PlannedAttention):
                layer.register_forward_pre_hook(self._inform_attention)
            elif isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                layer.register_forward_pre_hook(whole_numbers)

    @property
    def guesses_axis(self) -> bool:
        """Whether only the number of rows has told a dropout layer along which axis they lie."""
        return self._guesses_axis

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        self.module.train(train)
        self._now = mask, (key + call for call in count())
        try:
            y: Tensor = self.module(x)
            return y
        finally:
            self._now = None

    def _inform_normalisation(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[object, ...]:
        assert self._now is not None
        (x,), (mask, _) = inputs, self._now
        if x.shape[0] != mask.shape[0]:
            raise _other_rows(layer, x, mask)
        return x, mask, layer.training

    def _inform_dropout(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[object, ...]:
        """Gives each row of x its key; x may hold several rows for each example, or its examples along axis 1."""
        assert self._now is not None
        (x,), (mask, keys) = inputs, self._now
        key, rows, axis = next(keys), mask.shape[0], getattr(layer, "_rows_axis", 0)
        if axis == 0 and x.shape[0] % rows and x.dim() > 1 and x.shape[1] == rows:
            axis, self._guesses_axis = 1, True
        layer.__dict__["_turned"] = axis == 1
        x = x.transpose(0, 1) if axis == 1 else x
        if x.shape[0] % rows:
            raise _other_rows(layer, x, mask)
        each = x.shape[0] // rows
        if each > 1:
            key = (key[:, None] * ROWS_APART + torch.arange(each, device=key.device)).flatten()
        return x, key, layer.training

    def _inform_attention(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert self._now is not None and isinstance(layer, PlannedAttention)
        _, keys = self._now
        layer.__dict__["now"] = next(keys), layer.training


def _other_rows(layer: nn.Module, x: Tensor, mask: Tensor) -> UserError:
    return UserError(
        f"a {type(layer).__name__} of the model sees {x.shape[0]} rows of a batch of {mask.shape[0]}; "
        "keep one row for each example there"
    )


def _turned_back(layer: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Tensor:
    return y.transpose(0, 1) if layer.__dict__["_turned"] else y


def whole_numbers(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Lets an embedding read a row of numbers, as rows with other inputs beside the tokens are."""
    return inputs[0].long(), *inputs[1:]
