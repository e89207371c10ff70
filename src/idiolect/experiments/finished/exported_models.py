"""Models as files: programs that run with PyTorch alone, and tensors that any reader of safetensors opens.

A model ``<name>`` is ``<name>.safetensors`` (its tensors), ``<name>.pt2`` (a ``torch.export`` program that holds the
preprocessing, the network and the predictor, for any number of rows), ``<name>.onnx`` where it is asked for, and
``<name>.json``, which says what the model is.  The last one is written last: a model without it is incomplete.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.experiments.finished.personal_model import (
    NETWORK,
    PersonalModel,
    PredictorState,
    finished_model,
    name_leaves,
)
from idiolect.experiments.finished.recorded_setting import final_program, rebuilt_setting
from idiolect.experiments.run_binding import versions
from idiolect.experiments.setting import Inputs
from idiolect.records import DamagedFile, file_digest, read_plain_tensors, write_atomically
from idiolect.records.manifest import CHECKSUM, checksum_of

if TYPE_CHECKING:
    from idiolect.experiments.finished.client_models import ClientModels

__all__ = [
    "DEFAULT_FORMATS",
    "FORMATS",
    "ExportedModel",
    "check_formats",
    "describe_model",
    "export_models",
    "load_model",
    "write_model",
]

FORMAT = "idiolect-model-2"
UNSEALED = "idiolect-model-1"  # of versions before, whose pages have no checksum
FORMATS = ("program", "weights", "onnx")
DEFAULT_FORMATS = ("program", "weights")
SUFFIXES = {"weights": ".safetensors", "program": ".pt2", "onnx": ".onnx"}
EXAMPLE_ROWS = 2  # of the batch that a program is traced on
CHECKED_ROWS = 3  # of the batch that it is checked on


class ExportedModel(NamedTuple):
    """A model that was written.

    Args:
        files: all its files.
        notes: one sentence for each format that the model cannot be written in.
        client: the name of its client, as in the data; None for the shared model.
    """

    name: str
    files: list[Path]
    notes: list[str]
    client: str | None = None


def check_formats(formats: Sequence[str]) -> None:
    """Refuses formats that are unknown or whose packages are not installed."""
    if not formats:
        raise UserError(f"give at least one format of {', '.join(FORMATS)}")
    for one in formats:
        refuse_unknown_choice("format", one, FORMATS)
    if "onnx" in formats and not (find_spec("onnx") and find_spec("onnxscript")):
        raise UserError("the format onnx needs further packages: pip install 'idiolect[onnx]'")


def export_models(
    source: ClientModels,
    client: int | str | None,
    *,
    shared: bool,
    predictor: str | None,
    out: str | Path | None,
    formats: Sequence[str],
) -> list[ExportedModel]:
    """Writes one client's model, all clients' models, or the shared one; see ``ClientModels.export``."""
    check_formats(formats)
    if shared and (client is not None or predictor is not None):
        raise UserError(
            "the shared model belongs to no client and is one predictor; leave out client and predictor"
        )
    folder = Path(out) if out is not None else source.default_export_folder
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is no folder; choose another with --out")
    if shared:
        about = source.describe(None, "global")
        return [write_model(source.global_model(), folder / "global", about, formats)]
    numbers = range(len(source.clients)) if client is None else [source.number_of(client)]
    suffix = "" if predictor is None else f"-{_plain(predictor)}"
    written = []
    for number in numbers:
        model = source.model(source.clients[number], predictor)
        about = source.describe(number, predictor)
        name = f"{_file_name(source.clients, number)}{suffix}"
        written.append(write_model(model, folder / name, about, formats))
    return written


def describe_model(
    manifest: Mapping[str, Any],
    inputs: Inputs,
    population: int,
    client: str | None,
    predictor: str,
    member: str,
    newcomer: bool = False,
) -> dict[str, Any]:
    """Returns what the JSON file of a model says, but for its tensors and files.

    Args:
        manifest: of the run.
        client: its name; None for the shared model.
        predictor, member: the predictor that was asked for, and the one that it stands for.
        newcomer: the client joined after the run.
    """
    tokens = inputs.dtype == "int64"
    return {
        "method": manifest["method"],
        "client": client,
        "predictor": member,
        "chosen_as": predictor,
        "task": inputs.task,
        "outputs": "numbers in the units of the targets" if inputs.task == "regression" else "logits",
        "model": manifest["model"],
        "input": {"shape": ["batch", *(inputs.shape[2:] if tokens else inputs.shape)], "dtype": inputs.dtype},
        "class_names": inputs.class_names,
        "feature_names": inputs.feature_names,
        "preprocessing": inputs.preprocessing.plain(),
        "provenance": {
            "run": manifest["name"],
            "spec_hash": manifest["spec_hash"],
            "seed": manifest["seed"],
            "dataset": manifest["dataset"],
            "source": manifest["source"],
            "trained_with": manifest["versions"],
        },
        "rebuild": {
            "spec": manifest["spec"],
            "inputs": inputs.plain(),
            "architecture": manifest["architecture"],
            "population": population,
            "model_file": manifest.get("model_file"),
            "newcomer": newcomer,
        },
    }


def write_model(
    model: PersonalModel, stem: Path, about: Mapping[str, Any], formats: Sequence[str]
) -> ExportedModel:
    """Writes one model; files that are there already must belong to the same model.

    Args:
        stem: the path of its files without their suffixes.
        about: what the model is, for its JSON file.

    Raises:
        UserError: another model of this name is there.
    """
    state = model.state
    weights = save({name: leaf.contiguous().clone() for name, leaf in _named_tensors(state).items()})
    tensors = {
        "kind": state.kind,
        "layout": _layout(state),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    record = {"format": FORMAT, **about, "tensors": tensors}
    known = _known_files(stem, record, weights)
    wanted = [one for one in formats if f"{stem.name}{SUFFIXES[one]}" not in known]
    whose = stem.name if about["client"] is None else f"client {about['client']}"
    contents, notes = _contents(
        model,
        about["rebuild"]["inputs"],
        weights,
        wanted,
        whose,
    )
    if notes and f"{stem.name}{SUFFIXES['weights']}" not in known:
        contents["weights"] = weights
    new = {f"{stem.name}{SUFFIXES[one]}": content for one, content in contents.items()}
    files = known | {name: hashlib.sha256(content).hexdigest() for name, content in new.items()}
    page = {**record, "exported_with": versions(), "files": files}
    plain = json.loads(json.dumps(page, allow_nan=False))
    sealed = {**plain, CHECKSUM: checksum_of(plain)}
    text = json.dumps(sealed, indent=2, ensure_ascii=False) + "\n"
    _write_files(stem.parent, {**new, f"{stem.name}.json": text})
    paths = [stem.parent / name for name in (*files, f"{stem.name}.json")]
    return ExportedModel(stem.name, paths, notes, about["client"])


def _contents(
    model: PersonalModel, inputs: Mapping[str, Any], weights: bytes, formats: Sequence[str], name: str
) -> tuple[dict[str, bytes], list[str]]:
    """Returns the content of each format, and a sentence for each that the model cannot be written in."""
    makers: dict[str, Callable[[], bytes]] = {
        "program": lambda: _program(model, inputs),
        "weights": lambda: weights,
        "onnx": lambda: _onnx(model, inputs),
    }
    contents, notes = {}, []
    for one in formats:
        try:
            contents[one] = makers[one]()
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            notes.append(
                f"{name} cannot be written as {one} ({type(error).__name__}: {reason[:200]}); its weights load with "
                "idiolect.load_model"
            )
    return contents, notes


def _write_files(folder: Path, contents: Mapping[str, bytes | str]) -> None:
    """Writes files in their order; where one cannot be written, those before it are removed."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            written.append(write_atomically(folder / name, content))
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UserError(
            f"cannot write to {folder} ({error.strerror}); make room, or choose another folder with --out"
        ) from error


def load_model(path: str | Path) -> PersonalModel:
    """Loads an exported model from its weights, as a plain module in evaluation mode.

    Args:
        path: any of its files.

    Raises:
        UserError: files are missing or damaged, or the model's code is not loaded.
    """
    stem = Path(path)
    if stem.suffix in (".json", *SUFFIXES.values()):
        stem = stem.with_name(stem.name.removesuffix(stem.suffix))
    page, file = _with_suffix(stem, ".json"), _with_suffix(stem, SUFFIXES["weights"])
    record = _read_page(page)
    try:
        return _rebuilt(record, file, stem.name)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{page} does not describe a model ({error!r}); export the model again") from error


def _rebuilt(record: Mapping[str, Any], file: Path, name: str) -> PersonalModel:
    """Returns the model that a page describes, with the tensors of its file."""
    if not file.is_file():
        raise UserError(f"{file} is missing; export the model again with the format weights")
    if file_digest(file) != record["tensors"]["sha256"]:
        raise UserError(f"{file} is damaged: it does not match its checksum; move it away and export again")
    try:
        tensors = read_plain_tensors(file)
    except DamagedFile as error:
        raise UserError(f"{error}; export the model again") from error
    rebuild = record["rebuild"]
    inputs = Inputs.of_plain(rebuild["inputs"])
    setting = rebuilt_setting(
        rebuild["spec"],
        inputs,
        rebuild["architecture"],
        rebuild["population"],
        name,
        rebuild["model_file"],
    )
    state = _state(record["tensors"], tensors)
    program = final_program(setting, rebuild["newcomer"])
    return finished_model(program, inputs, record["predictor"], state)


def _known_files(stem: Path, record: Mapping[str, Any], weights: bytes) -> dict[str, str]:
    """Returns the files of this model that are there and whole, with their checksums.

    Raises:
        UserError: another model is there.
    """
    page, tensors = _with_suffix(stem, ".json"), _with_suffix(stem, SUFFIXES["weights"])
    other = UserError(
        f"{stem} holds another model already; choose another folder with --out, or move it away"
    )
    if not page.is_file():
        there = [_with_suffix(stem, suffix) for suffix in SUFFIXES.values()]
        if any(path.exists() for path in there) and not (
            tensors.is_file() and tensors.read_bytes() == weights
        ):
            raise other
        return {}
    found = _read_page(page)
    files: dict[str, str] = found.pop("files", {})
    for name in ("exported_with", "format"):
        found.pop(name, None)
    if found != {key: value for key, value in json.loads(json.dumps(record)).items() if key != "format"}:
        raise other
    return {
        name: digest
        for name, digest in files.items()
        if (stem.parent / name).is_file() and file_digest(stem.parent / name) == digest
    }


def _read_page(page: Path) -> dict[str, Any]:
    try:
        found = json.loads(page.read_bytes())
    except OSError as error:
        raise UserError(f"{page} cannot be read ({error.strerror}); a model needs its JSON file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{page} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") not in (FORMAT, UNSEALED):
        raise UserError(f"{page} is no model of this library: it has no format {FORMAT!r}")
    sealed = CHECKSUM in found or found["format"] == FORMAT
    if sealed and found.pop(CHECKSUM, "") != checksum_of(found):
        raise UserError(
            f"{page} is damaged: what it says does not match its checksum; export the model again"
        )
    return found


def _named_tensors(state: PredictorState) -> dict[str, Tensor]:
    """Returns the tensors by the names that they have in a file: a network's own names, or paths in the context."""
    if state.kind == NETWORK:
        return {**state.tree["params"], **state.tree["buffers"]}
    return name_leaves({**state.tree, "statistics": state.statistics})


def _layout(state: PredictorState) -> dict[str, Any]:
    """Returns where each tensor belongs, as values that JSON can hold."""
    if state.kind == NETWORK:
        return {part: list(state.tree[part]) for part in ("params", "buffers")}
    found: dict[str, Any] = _names_in_place({**state.tree, "statistics": state.statistics}, "")
    return found


def _names_in_place(tree: Any, path: str) -> Any:
    if isinstance(tree, Mapping):
        return {key: _names_in_place(value, f"{path}/{key}" if path else key) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return [_names_in_place(value, f"{path}/{place}") for place, value in enumerate(tree)]
    return path


def _state(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> PredictorState:
    layout = record["layout"]
    if record["kind"] == NETWORK:
        tree = {part: {name: tensors[name] for name in layout[part]} for part in ("params", "buffers")}
        return PredictorState(NETWORK, tree, {})
    tree = _filled(layout, tensors)
    return PredictorState(record["kind"], tree, tree.pop("statistics"))


def _filled(layout: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(layout, Mapping):
        return {key: _filled(value, tensors) for key, value in layout.items()}
    if isinstance(layout, list):
        return [_filled(value, tensors) for value in layout]
    return tensors[layout]


def _program(model: PersonalModel, inputs: Mapping[str, Any]) -> bytes:
    """Returns a ``torch.export`` program of the model, after it was tried on another number of rows."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = _traced(model, inputs)
        torch.export.save(program, buffer)
        rows = _rows(inputs, CHECKED_ROWS)
        torch.testing.assert_close(program.module()(rows), model(rows))
    return buffer.getvalue()


def _traced(model: PersonalModel, inputs: Mapping[str, Any]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(model, (_rows(inputs, EXAMPLE_ROWS),), dynamic_shapes=({0: batch},))


def _onnx(model: PersonalModel, inputs: Mapping[str, Any]) -> bytes:
    """Returns the model in the format ONNX, with the input ``rows`` and the output ``outputs``."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        found = torch.onnx.export(
            model,
            (_rows(inputs, EXAMPLE_ROWS),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            input_names=["rows"],
            output_names=["outputs"],
            verbose=False,
        )
    assert found is not None  # as of dynamo=True
    content: bytes = found.model_proto.SerializeToString()
    return content


def _rows(inputs: Mapping[str, Any], count: int) -> Tensor:
    shape = inputs["shape"][2:] if inputs["dtype"] == "int64" else inputs["shape"]
    return torch.zeros(count, *shape, dtype=getattr(torch, inputs["dtype"]))


def _file_name(clients: Sequence[str], number: int) -> str:
    """Returns a client's name as a file can have it; its number is added where two clients would share one.

    >>> [_file_name(["7", "client-7", "a b", "global"], number) for number in range(4)]
    ['client-7', 'client-7-1', 'a-b', 'global-3']
    """
    if clients[number].isdecimal():
        return f"client-{clients[number]}"
    plain = [f"client-{name}" if name.isdecimal() else _plain(name) for name in clients]
    unique = plain[number] and plain.count(plain[number]) == 1 and plain[number] != "global"
    return plain[number] if unique else f"{plain[number]}-{number}".strip("-")


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")


def _with_suffix(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}{suffix}")
