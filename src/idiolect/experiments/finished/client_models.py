"""What everything that holds clients' models can do: give a model, predict with it, and export it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from idiolect.data import CLASS_TASKS, encode_frame
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.finished.exported_models import DEFAULT_FORMATS, ExportedModel, export_models
from idiolect.experiments.finished.personal_model import PersonalModel
from idiolect.experiments.setting import Inputs

__all__ = ["ClientModels", "LazyModels", "raw_rows"]

AT_ONCE = 256  # rows that are predicted together
FEW = 5  # names that a sentence lists


class LazyModels(Mapping[str, nn.Module]):
    """The models of all clients by name; each is built when it is asked for."""

    def __init__(self, source: ClientModels, predictor: str | None) -> None:
        self._source, self._predictor = source, predictor

    def __getitem__(self, client: str) -> nn.Module:
        if client not in self._source.clients:
            raise KeyError(client)
        return self._source.model(client, self._predictor)

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.clients)

    def __len__(self) -> int:
        return len(self._source.clients)

    def __repr__(self) -> str:
        return f"<models of {len(self)} clients: {_few(self._source.clients)}>"


class ClientModels(ABC):
    """Models of several clients that were trained together."""

    @property
    @abstractmethod
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their numbers."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """What rows and outputs of the models are."""

    @property
    @abstractmethod
    def source(self) -> Mapping[str, Any]:
        """The manifest of the dataset that the models were trained on."""

    @abstractmethod
    def model(self, client: int | str, predictor: str | None = None) -> PersonalModel:
        """Returns a client's model as a plain module in evaluation mode.

        It takes raw rows, as they were given for training, and returns logits; for a regression, numbers in the units
        of the targets.

        Args:
            client: a name, or a number as in the tables of the run.
            predictor: one of the method's predictors; by default the one that represents the method in tables.
        """

    @abstractmethod
    def global_model(self) -> PersonalModel:
        """Returns the shared model on the server, which a client gets of whom nothing is known.

        Raises:
            UserError: the method keeps layers on the clients, so that the server has no whole model.
        """

    @property
    @abstractmethod
    def default_export_folder(self) -> Path:
        """The folder of exported models, where none is named."""

    @abstractmethod
    def describe(self, number: int | None, predictor: str | None) -> dict[str, Any]:
        """Returns what the file of a client's model, or of the shared one, says about it."""

    def export(
        self,
        client: int | str | None = None,
        *,
        shared: bool = False,
        predictor: str | None = None,
        out: str | Path | None = None,
        formats: Sequence[str] = DEFAULT_FORMATS,
    ) -> list[ExportedModel]:
        """Writes models that work without Idiolect.

        Args:
            client: a name, or a number as in the tables of the run; by default all clients.
            shared: writes the shared model in place of the clients' models.
            out: the folder; by default one beside the run.
            formats: ``program`` (a ``torch.export`` program), ``weights`` (safetensors) and ``onnx``.
        """
        return export_models(self, client, shared=shared, predictor=predictor, out=out, formats=formats)

    def models(self, predictor: str | None = None) -> Mapping[str, nn.Module]:
        """Returns the models of all clients by name; each is built when it is asked for."""
        return LazyModels(self, predictor)

    def predict(self, x: Any, client: int | str | None = None, predictor: str | None = None) -> np.ndarray:
        """Predicts raw rows with a client's model.

        Returns:
            The label of each row as it is written in the data, whole numbers as numbers and False and True as booleans;
            for ``multilabel`` whether each label applies, [N, K]; for a regression the numbers, [N] or [N, K].

        Args:
            x: a NumPy array, a tensor or, where the data have columns, a pandas table.
            client: a name, or a number as in the tables of the run; it cannot be left out.
        """
        inputs = self.inputs
        outputs = self._outputs(x, client, predictor)
        if inputs.task == "regression":
            return outputs[:, 0] if inputs.n_classes == 1 else outputs
        if inputs.task not in CLASS_TASKS:
            return outputs > 0
        classes = outputs.argmax(1)
        labels: np.ndarray = _written(inputs.class_names)[classes] if inputs.class_names else classes
        return labels

    def predict_proba(
        self, x: Any, client: int | str | None = None, predictor: str | None = None
    ) -> np.ndarray:
        """Returns the probability of each class, or of each label, [N, K]."""
        if self.inputs.task == "regression":
            raise UserError(
                "a regression predicts numbers and no probabilities; call predict in place of predict_proba"
            )
        logits = torch.from_numpy(self._outputs(x, client, predictor))
        found: np.ndarray = (
            logits.softmax(1) if self.inputs.task in CLASS_TASKS else logits.sigmoid()
        ).numpy()
        return found

    def number_of(self, client: int | str) -> int:
        """Returns the number of a client, as in the tables of its run; text is first taken for a name.

        Raises:
            UserError: there is no such client, or a number is also the name of another client.
        """
        names, text = self.clients, str(client)
        named = names.index(text) if text in names else None
        is_number = text.isdecimal() and int(text) < len(names)
        if named is not None and (isinstance(client, str) or not is_number):
            return named
        if not is_number and text.isdecimal():
            named_so = f", named {_few(names)}"
            raise UserError(
                f"there is no client {text}; there are clients 0 to {len(names) - 1}"
                f"{'' if names[0] == '0' else named_so}"
            )
        if not is_number:
            raise unknown_name("client", text, names)
        number = int(text)
        if named not in (None, number):
            raise UserError(
                f"client {number} is the number of one client and the name of another; give the name as text: "
                f"{names[number]!r} or {text!r}"
            )
        return number

    def _outputs(self, x: Any, client: int | str | None, predictor: str | None) -> np.ndarray:
        if client is None:
            raise UserError(f"say whose model predicts with client=NAME, one of {_few(self.clients)}")
        model = self.model(client, predictor)
        rows = raw_rows(x, self.inputs, self.source)
        with torch.no_grad():
            found = [model(chunk) for chunk in torch.split(rows, AT_ONCE)]
        return torch.cat(found).numpy()


def raw_rows(x: Any, inputs: Inputs, source: Mapping[str, Any]) -> Tensor:
    """Returns rows as the models of a run take them, [N, ...] in the type of its raw data.

    Args:
        x: an array or a tensor, whose axes of length 1 may be left out or added; a table, by its columns; or a mapping
            of arrays, where the data have several inputs.
        source: the manifest of the dataset, which says how columns become numbers.

    Raises:
        UserError: a column is missing, or the rows have another shape or type, or miss values that nothing fills.
    """
    first = x[0] if isinstance(x, list | tuple) and len(x) else x
    if isinstance(first, str | Path):
        raise UserError(f"{first} is a path or a word, and the models take rows; give arrays, not paths")
    if isinstance(x, pd.DataFrame):
        x = encode_frame(x, source)
    if isinstance(x, Mapping):
        x = _packed(x, inputs)
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    shape = inputs.shape[2:] if inputs.dtype == "int64" else inputs.shape
    if _without_ones(array.shape[1:]) != _without_ones(shape):
        frame = ", or a frame with the columns of the data" if "columns" in source else ""
        raise UserError(
            f"the models take rows of the shape {list(shape)} and these have {list(array.shape[1:])}; give an array "
            f"[N{''.join(f', {size}' for size in shape)}]{frame}"
        )
    if array.dtype.kind not in "biuf":
        raise UserError(f"the models take numbers and the rows are of the type {array.dtype}")
    if inputs.dtype != "float32" and array.dtype.kind == "f":
        raise UserError(
            f"the run was trained on {inputs.dtype} rows and these are {array.dtype}; give them as {inputs.dtype}"
        )
    rows = np.ascontiguousarray(array.reshape(len(array), *shape), dtype=inputs.dtype)
    if not inputs.preprocessing.fill and rows.dtype.kind == "f" and np.isnan(rows).any():
        raise UserError("values of the rows are missing (NaN) and the run filled none; fill them first")
    if rows.dtype.kind == "f" and np.isinf(rows).any():
        raise UserError("values of the rows are infinite; replace them, or mark them as missing (NaN)")
    return torch.from_numpy(rows)


def _packed(arrays: Mapping[str, Any], inputs: Inputs) -> np.ndarray:
    """Returns several inputs one after the other in flat rows."""
    names = [name for name, _ in inputs.named]
    missing = [name for name in names if name not in arrays]
    if missing or not names:
        wanted = ", ".join(names) or "one input without a name; give an array"
        raise UserError(f"the models take {wanted}, and these are {', '.join(map(str, arrays))}")
    flat = [np.asarray(arrays[name]) for name in names]
    return np.concatenate([one.reshape(len(one), -1) for one in flat], axis=1)


def _written(class_names: Sequence[str]) -> np.ndarray:
    """Returns labels as they are written in the data: whole numbers or booleans where all of them are, else words.

    >>> _written(["-1", "10"]), _written(["007", "1"])
    (array([-1, 10]), array(['007', '1'], dtype='<U3'))
    """
    if tuple(class_names) == ("False", "True"):
        return np.array([False, True])
    whole = all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in class_names)
    longest = max(map(len, class_names))  # 18 digits fit into 64 bits
    return np.asarray(class_names, np.int64 if whole and longest <= 18 else None)


def _few(names: Sequence[str]) -> str:
    return f"{', '.join(names[:FEW])}{', ...' if len(names) > FEW else ''}"


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
