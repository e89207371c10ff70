"""A digest of a network's architecture: its layers with their settings, and the names and shapes of its tensors.

Two networks of one name that differ in a width, a stride, an activation or a dropout rate have different digests.
Initial values that are drawn have no part in it; those of a user's network that are the same under every seed, such as
pretrained ones, have.  The layers of a user's module do not say what it computes, so its operations are recorded in a
forward pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode, resolve_name

from idiolect.models.batch_context import BatchContext
from idiolect.models.catalogue import build, outline
from idiolect.models.from_module import InputShapes
from idiolect.models.net import Net
from idiolect.models.registered_models import is_registered

__all__ = ["architecture"]

KNOWN = ("torch.nn.", "idiolect.models.")  # modules whose settings say what they compute
ROWS = 2


def architecture(spec: str, input_shape: tuple[int, ...], outputs: int, inputs: InputShapes = ()) -> str:
    """Returns the digest of the network that ``build`` returns for these arguments.

    A registered model is built anew each time, because its code may have changed.
    """
    if is_registered(spec):
        net, other = (build(spec, input_shape, outputs, seed=seed, inputs=inputs) for seed in (0, 1))
        return _digest(net, input_shape, _given_values(net, other))
    return _of_zoo(spec, input_shape, outputs)


@lru_cache(maxsize=256)
def _of_zoo(spec: str, input_shape: tuple[int, ...], outputs: int) -> str:
    return _digest(outline(spec, input_shape, outputs), input_shape)


def _given_values(net: Net, other: Net) -> dict[str, Any]:
    """Returns digests of the tensors that do not follow the seed, except for plain zeros and ones; and what is frozen.

    Args:
        other: the same net under another seed.
    """
    theirs = dict((*other.named_parameters(), *other.named_buffers()))
    found: dict[str, Any] = {}
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        plain = bool((tensor == 0).all() or (tensor == 1).all())
        if not plain and torch.equal(tensor, theirs[name]):
            raw = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            found[name] = hashlib.sha256(raw).hexdigest()
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    return found | ({"frozen": frozen} if frozen else {})


def _digest(net: Net, input_shape: Sequence[int], values: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Returns the digest of a net.

    Args:
        values: what is known of its initial values.
    """
    named = [*net.named_parameters(), *net.named_buffers()]
    shapes = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in named]
    found: list[Any] = [shapes, _layers(net), *([dict(values)] if values else [])]
    if any(not type(module).__module__.startswith(KNOWN) for module in net.modules()):
        found += [_operations(net, input_shape, train) for train in (True, False)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _layers(module: nn.Module) -> list[Any]:
    """Returns a module's class, its settings and the modules in it."""
    settings = {
        key: _written(value)
        for key, value in sorted(vars(module).items())
        if not key.startswith("_") and key != "training"
    }
    return [type(module).__qualname__, settings, [[n, _layers(m)] for n, m in module.named_children()]]


def _operations(net: Net, input_shape: Sequence[int], train: bool) -> list[Any]:
    """Returns every operation of a forward pass with its constants and the tensors it reads."""
    named = [*net.named_parameters(), *net.named_buffers()]
    tensors = {name: tensor.detach() for name, tensor in named}
    x = torch.zeros(ROWS, *input_shape)
    x = x.flatten(1).long() if net.takes_tokens else x.to(named[0][1].dtype)
    recorder = CallRecorder(tensors)
    try:
        with torch.no_grad(), recorder:
            functional_call(net, dict(tensors), (x, BatchContext.plain(ROWS, net.n_units, train=train)))
    except Exception:  # the error is reported when the run is prepared
        return []
    return recorder.operations


class CallRecorder(TorchFunctionMode):
    """Records every operation; tensors are numbered as they appear, those of the network have their names."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.operations: list[Any] = []
        self.seen = list(tensors.values())  # held, so that no address serves two tensors
        self.names = {id(tensor): name for name, tensor in tensors.items()}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        result = func(*args, **options)
        name = resolve_name(func) or getattr(func, "__qualname__", type(func).__name__)
        if not name.endswith("__get__"):  # reading a shape or a type computes nothing
            named = {key: self._operand(value) for key, value in options.items()}
            self.operations.append([name, self._operand(args), named, self._operand(result)])
        return result

    def _operand(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [self._operand(each) for each in value]
        if not isinstance(value, Tensor):
            return _written(value)
        if id(value) not in self.names:
            self.names[id(value)] = str(len(self.seen))
            self.seen.append(value)
        return [self.names[id(value)], list(value.shape)]


def _written(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_written(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device):
        return repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)
