"""A trained model as a plain module: raw rows go in, logits or numbers in the user's units come out.

The module holds everything that prediction needs: the filling of missing values, the normalisation, the tensors of the
predictor and its way of combining them.  It can be called, moved, saved and given to ``torch.export`` as any module.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple, cast

import cloudpickle
import torch
from torch import Tensor, nn

from idiolect.core import Batch, Context, Facts, Flat, Flats, Predictor, Program, Result
from idiolect.core.trees import tree_leaves, with_leaves
from idiolect.experiments.finished.preprocessing_layers import InputPreprocessing, OutputScale
from idiolect.experiments.setting import Inputs

__all__ = ["NETWORK", "PersonalModel", "PredictorState", "finished_model", "name_leaves", "state_of"]

NETWORK, CONTEXT = "network", "context"


class PredictorState(NamedTuple):
    """The tensors of a predictor.

    Args:
        kind: ``network``: parameters and buffers of one network; ``context``: the shared model as a client received it
            with the client's private state, from which the method makes a predictor of several models.
        tree: the tensors.
        statistics: normalisation statistics of the main model that were recomputed on the client's training rows.
    """

    kind: str
    tree: dict[str, Any]
    statistics: Flat


class PersonalModel(nn.Module):
    """One predictor of a method with the preprocessing of its run, in evaluation mode.

    Args:
        program: the method at the end of the run.
        predictor: its name among the method's predictors.
        state: its tensors, which become parameters and buffers of the module.
        inputs, outputs: what comes before and after the network.
    """

    def __init__(
        self,
        program: Program,
        predictor: str,
        state: PredictorState,
        inputs: InputPreprocessing,
        outputs: OutputScale,
    ) -> None:
        super().__init__()
        self.predictor = predictor
        self.inputs, self.outputs = inputs, outputs
        self._program, self._kind = program, state.kind
        self._form = {"tree": state.tree, "statistics": state.statistics}
        self._names = []
        for name, leaf in name_leaves(self._form).items():
            own = leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
            attribute = name.replace(".", "/")  # a dot would mean a module inside
            self._names.append(attribute)
            if state.kind == NETWORK and own.is_floating_point() and name.startswith("tree/params/"):
                self.register_parameter(attribute, nn.Parameter(own, requires_grad=False))
            else:
                self.register_buffer(attribute, own)
        self._form = with_leaves(self._form, [None] * len(self._names))
        self.eval()

    @property
    def state(self) -> PredictorState:
        """The tensors as they are now."""
        held = with_leaves(self._form, [getattr(self, name) for name in self._names])
        return PredictorState(self._kind, held["tree"], held["statistics"])

    def forward(self, x: Tensor) -> Tensor:
        rows = self.inputs(x)
        state = self.state
        ones = torch.ones_like(rows.flatten(1)[:, 0], dtype=self._dtype(state))
        zeros = torch.zeros_like(ones, dtype=torch.int64)
        rows = rows.to(ones.dtype) if rows.is_floating_point() else rows
        batch = Batch(rows, zeros, ones, zeros, {})
        logits = self._program.predict(_predictor(self._program, self.predictor, state), batch)
        outputs: Tensor = self.outputs(logits)
        return outputs

    def __deepcopy__(self, memo: dict[int, Any]) -> PersonalModel:
        """Returns a copy with tensors of its own; what the method computes is shared."""
        memo[id(self._program)] = self._program
        copy = PersonalModel.__new__(PersonalModel)
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """Makes functions of the method, which pickle cannot name, into bytes."""
        return {**self.__dict__, "_program": cloudpickle.dumps(self._program)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _program=cloudpickle.loads(state["_program"]))

    @staticmethod
    def _dtype(state: PredictorState) -> torch.dtype:
        found: torch.dtype = next(leaf.dtype for leaf in tree_leaves(state.tree) if leaf.is_floating_point())
        return found


def finished_model(program: Program, inputs: Inputs, name: str, state: PredictorState) -> PersonalModel:
    """Returns a predictor with the preprocessing of its run."""
    n_axes = 1 if inputs.dtype == "int64" else len(inputs.shape)
    before, after = InputPreprocessing(inputs.preprocessing, n_axes), OutputScale(inputs.preprocessing)
    return PersonalModel(program, name, state, before, after)


def state_of(program: Program, context: Context, name: str, statistics: Flat | None = None) -> PredictorState:
    """Returns the tensors of one predictor of a client.

    Args:
        statistics: replace the main model's, where the predictor asks for recomputed ones.
    """
    predictor = program.predictors(context)[name]
    if predictor.forward is None:
        params, buffers = predictor.params["model"], {**predictor.buffers["model"], **(statistics or {})}
        return PredictorState(NETWORK, {"params": params, "buffers": buffers}, {})
    tree: dict[str, Any] = {
        "server": context.server,
        "private": context.private,
        "facts": context.facts._asdict(),
    }
    tree["results"] = {stage: tuple(result) for stage, result in context.results.items()}
    return PredictorState(CONTEXT, tree, statistics or {})


def name_leaves(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Returns the leaves of a tree by their paths, in the order of ``tree_leaves``.

    >>> name_leaves({"params": {"units.0.weight": 1}, "slots": [2, 3]})
    {'params/units.0.weight': 1, 'slots/0': 2, 'slots/1': 3}
    """
    if isinstance(tree, Mapping):
        items = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, tuple | list):
        items = [(str(place), value) for place, value in enumerate(tree)]
    else:
        return {prefix: tree}
    found: dict[str, Tensor] = {}
    for key, value in items:
        found |= name_leaves(value, f"{prefix}/{key}" if prefix else key)
    return found


def _predictor(program: Program, name: str, state: PredictorState) -> Predictor:
    if state.kind == NETWORK:
        return Predictor({"model": state.tree["params"]}, {"model": state.tree["buffers"]})
    tree = state.tree
    results = {stage: Result(*fields) for stage, fields in tree["results"].items()}
    context = Context(tree["server"], tree["private"], Facts(**tree["facts"]), results)
    predictor = program.predictors(context)[name]
    if not state.statistics:
        return predictor
    buffers = cast(
        "Flats", {**predictor.buffers, "model": {**predictor.buffers["model"], **state.statistics}}
    )
    return predictor._replace(buffers=buffers)
