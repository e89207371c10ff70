"""Config files: everything that runs need as one TOML file, read by --config and written by --save-config.

A config has keys of its own (``method``, ``scenario``, ``seed``, ...) and the tables ``settings``, ``execution``,
``data`` and ``sweep``.  What it says comes after the scenario and before --quick, --set and all other options.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from idiolect.cli.options import RUN_OPTIONS, OwnDataOptions
from idiolect.errors import UserError, unknown_name
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.spec import unknown_setting
from idiolect.option_parsing import is_of_kind
from idiolect.own_code import given_code
from idiolect.records import write_atomically

__all__ = ["Config", "ConfigOptions", "configured", "read_config", "save_config", "write_toml"]

TOP = {
    "method": "str",
    "methods": "list[str]",
    "scenario": "str",
    "preset": "str",
    "seed": "int",
    "seeds": "int",
    "code": "str | list[str]",
    "model_file": "str",
    "from_sweep": "str",
}
PARAMETERS = {"methods": "methods_"}  # of commands, where a key is called otherwise
SETTINGS = {f.name: str(f.type) for f in dataclasses.fields(Experiment) if f.name not in ("method", "seed")}
EXECUTION = dict.fromkeys(RUN_OPTIONS, "str") | {
    "workers": "int",
    "jobs": "int",
    "gpus_per_worker": "float",
    "resume": "bool",
    "accept_changes": "bool",
    "store_cache": "float",
    "log": "list[str]",
    "checkpoint_every": "int",
    "notes": "list[str]",
}
DATA = {"path": "str"} | {f.name: "str" for f in dataclasses.fields(OwnDataOptions) if f.name != "data"}
DATA |= {"label_column": "str | list[str]", "vocabulary": "int", "repartition": "bool"}
SWEEP = {"vary": "list[str]", "preset_grid": "str", "random": "int", "search": "str", "trials": "int"}
SWEEP |= {"budget": "int", "early_stop": "str"}
TABLES = {"settings": SETTINGS, "execution": EXECUTION, "data": DATA, "sweep": SWEEP}


@dataclass(frozen=True)
class Config:
    """What a config file says: keys of its own, and its tables."""

    top: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Any] = field(default_factory=dict)


# Reading


def read_config(path: Path) -> Config:
    """Reads a config file.

    Raises:
        UserError: the file is missing or no TOML, or a key is unknown or of another kind; the sentence names both.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"cannot read the config {path}: {reason}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"the config {path} is not valid TOML: {error}") from None
    tables = {name: found.pop(name) for name in TABLES if name in found}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name} is a table; write [{name}] and its keys below")
        _check(path, table, TABLES[name], f"[{name}] ")
    _check(path, found, TOP)
    return Config(found, **tables)


def _check(path: Path, given: Mapping[str, Any], kinds: Mapping[str, str], table: str = "") -> None:
    for key, value in given.items():
        if key not in kinds:
            known = [*kinds, *(() if table else TABLES)]
            wrong = unknown_setting(key) if table == "[settings] " else unknown_name("key", key, known)
            raise UserError(f"{path}: {table}{wrong}")
        if not _fits(value, kinds[key]):
            raise UserError(f"{path}: {table}{key} must be {kinds[key]}, got {value!r}")


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, list):
        listed = "list[str]" in kind or kind == "tuple[str, ...]"
        return listed and all(isinstance(one, str) for one in value)
    scalar = " | ".join(one for one in kind.split(" | ") if one != "list[str]")
    return bool(scalar) and not isinstance(value, dict) and is_of_kind(value, scalar)


# What a command takes from it

LOADED = "idiolect.config"


def _load(context: typer.Context, path: Path | None) -> Path | None:
    """Makes what a config says the defaults of the command's options."""
    if path is None:
        return None
    config = read_config(path)
    takes = {parameter.name for parameter in context.command.params}
    defaults = {PARAMETERS.get(key, key): value for key, value in config.top.items()}
    for key in config.top:
        if PARAMETERS.get(key, key) not in takes:
            raise UserError(f"{path}: idiolect {context.info_name} takes no {key}")
    if config.sweep and "vary" not in takes:
        raise UserError(f"{path}: the table [sweep] is for idiolect sweep, not for {context.info_name}")
    if "methods_" in defaults:
        defaults["methods_"] = ",".join(defaults["methods_"])
    own = {"data" if key == "path" else key: value for key, value in config.data.items()}
    if isinstance(code := defaults.get("code"), str):
        defaults["code"] = [code]
    if isinstance(label := own.get("label_column"), str):
        own["label_column"] = [label]
    context.default_map = {**defaults, **config.execution, **config.sweep, **own}
    context.meta[LOADED] = config
    return path


def configured() -> Config:
    """Returns the config that the current command was given, or one that says nothing."""
    context = click.get_current_context(silent=True)
    return context.meta.get(LOADED, Config()) if context else Config()


@dataclass(frozen=True)
class ConfigOptions:
    """A config file to start from, and one to write."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            is_eager=True,
            callback=_load,
            help="A TOML file with everything that is to run; options given here win over it.",
        ),
    ] = None
    save_config: Annotated[
        Path | None, typer.Option("--save-config", help="Write all of it to a TOML file for --config.")
    ] = None


# Writing


def save_config(
    path: Path,
    command: str,
    top: Mapping[str, Any],
    settings: Mapping[str, Any],
    execution: Execution,
    own: OwnDataOptions,
    sweep: Mapping[str, Any] | None = None,
) -> None:
    """Writes a config that makes the same runs again, and tells the watcher.

    Args:
        command: the command that reads it.
        top: keys of its own; None where there is none.  ``code`` is added.
        settings: all settings of the experiment, or those that differ from a scenario's.
    """
    run_options = {name: getattr(execution, name) for name in EXECUTION}
    if execution.data_dir is not None:
        run_options["data_dir"] = str(Path(execution.data_dir).resolve())
    run_options["out"] = str(execution.out)
    described = own.keywords()
    if "data" in described:
        path_of_data = Path(described.pop("data"))
        on_hub = str(path_of_data).startswith("hf:")
        described = {"path": str(path_of_data if on_hub else path_of_data.resolve()), **described}
    named = {key: value for key, value in settings.items() if not (described and key == "dataset")}
    tables = {"settings": named, "execution": run_options, "data": described, "sweep": sweep or {}}
    text = f"# idiolect {command} --config {path.name}\n" + write_toml(
        {**top, "code": given_code() or None}, tables
    )
    if not path.parent.is_dir():
        raise UserError(f"cannot write the config {path}: there is no folder {path.parent}")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UserError(f"cannot write the config {path}: {error.strerror}; choose another path") from error
    execution.watcher.say(f"config written: {path}")


def write_toml(top: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes keys and flat tables as TOML; what is None or empty is left out.

    >>> print(write_toml({"method": "map"}, {"settings": {"rounds": 3, "clip_norm": None}, "data": {}}))
    method = "map"
    <BLANKLINE>
    [settings]
    rounds = 3
    <BLANKLINE>
    """
    blocks = ["".join(f"{key} = {_value(value)}\n" for key, value in top.items() if value is not None)]
    for name, table in tables.items():
        lines = [f"{key} = {_value(v)}\n" for key, v in table.items() if v is not None and v != ()]
        blocks += [f"\n[{name}]\n" + "".join(lines)] if lines else []
    return "".join(blocks)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
