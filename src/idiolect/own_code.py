"""Code of the user's own: files, modules and plugins that register methods, parts, networks, partitions and so on.

A file is given as ``mine.py``, a module as ``package.module``.  A plugin is an installed package with an entry point in
the group ``idiolect.plugins``; plugins are loaded when a name is first looked up.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from idiolect.errors import UserError

__all__ = [
    "LoadedCode",
    "given_code",
    "load_code",
    "load_plugins",
    "loaded_code",
    "run_file",
    "source_digest",
]

PLUGINS = "idiolect.plugins"
PLAIN = (type(None), bool, int, float, complex, str, bytes)


class LoadedCode(NamedTuple):
    """A file or module that this process has run, as it was given, and the SHA-256 of its text."""

    source: str
    sha256: str


_LOADED: dict[str, tuple[LoadedCode, ModuleType]] = {}  # by digest
_GIVEN: dict[str, None] = {}  # sources that ``load_code`` was given, files by their absolute path
_PLUGINS: set[str] = set()  # entry points that are loaded, or on the way


def loaded_code() -> list[LoadedCode]:
    """Returns the files and modules that this process has run, in their order."""
    return [loaded for loaded, _ in _LOADED.values()]


def given_code() -> list[str]:
    """Returns what ``load_code`` has loaded, as it can be given again from any folder."""
    return list(_GIVEN)


def load_code(source: str | os.PathLike[str]) -> None:
    """Runs a Python file, or imports a module by its dotted path; the same text runs once in a process.

    Modules are looked for in the current folder too.

    Raises:
        UserError: it is missing, is not Python or raises; the sentence names file, line and error.
    """
    text = os.fspath(source)
    path = Path(text)
    if path.suffix == ".py" or path.exists() or os.sep in text:
        run_file(text)
        _GIVEN[str(path.resolve())] = None
        return
    if not all(word.isidentifier() for word in text.split(".")):
        raise UserError(f"{text!r} is neither a Python file nor the dotted path of a module")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    _import(text, f"module {text}")
    _GIVEN[text] = None


def load_plugins() -> None:
    """Loads the plugins of installed packages, once in a process."""
    for point in _plugins():
        if point.name not in _PLUGINS:
            _PLUGINS.add(point.name)  # a plugin looks names up itself while it is loaded
            try:
                _import(point.module, f"plugin {point.name} ({point.value})")
            except UserError:
                _PLUGINS.discard(point.name)
                raise


@cache
def _plugins() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=PLUGINS))


def _import(name: str, called: str) -> None:
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(f"{called} cannot be loaded: {_where(error)}{_said(error)}") from error
    file = getattr(module, "__file__", None)
    content = Path(file).read_bytes() if file else name.encode()
    _LOADED.setdefault(hashlib.sha256(content).hexdigest(), (_loaded(name, content), module))


def run_file(text: str) -> ModuleType:
    """Runs a file as a module that no process can import, so that what it defines is sent to others by value.

    The same text runs once in a process.
    """
    path = Path(text)
    if not path.is_file():
        raise UserError(f"there is no file {text} of code to load")
    content = path.read_bytes()
    loaded = _loaded(text, content)
    if loaded.sha256 in _LOADED:
        return _LOADED[loaded.sha256][1]
    file = str(path.resolve())
    module = ModuleType(f"idiolect_own_{path.stem}_{loaded.sha256[:8]}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up while it runs
    try:
        code = compile(content, file, "exec")
        lines = content.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[file] = (
            len(content),
            None,
            lines,
            file,
        )  # the text that runs, whatever becomes of the file
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        raise UserError(f"{text}{_line(error, file)}: {_said(error)}") from error
    finally:
        del sys.modules[module.__name__]
    _LOADED[loaded.sha256] = loaded, module
    return module


def _loaded(source: str, content: bytes) -> LoadedCode:
    return LoadedCode(source, hashlib.sha256(content).hexdigest())


def _said(error: BaseException) -> str:
    """Returns an error in one line; what a user's mistake raises is a sentence already."""
    if isinstance(error, UserError):
        return str(error)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__} {message}".strip().split("\n")[0]


def _line(error: BaseException, file: str) -> str:
    """Returns the line of the file in which the error came up."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename == file:
        return f", line {error.lineno}"
    found = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f", line {found[-1]}" if found else ""


def _where(error: BaseException) -> str:
    """Returns file and line of the user's code in which an error came up while a module was imported."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: "
    library = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((library, "<frozen", importlib.__path__[0]))
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""


# The text behind a registered function


@cache
def source_digest(function: Callable[..., Any]) -> str:
    """Returns a digest of the text of a function of the user's own; empty for one of the package.

    It covers the functions, classes and plain values that the function names, as far as they are of its own module or
    package, the defaults of its arguments, its decorators and what it closes over.
    """
    root = _root_of(function)
    if root == __name__.partition(".")[0]:
        return ""
    whole = hashlib.sha256()
    for text in _texts(function, root, set()):
        whole.update(text.encode() + b"\0")
    return whole.hexdigest()


def _root_of(value: Any) -> str:
    named = value.func if isinstance(value, partial) else value
    return str(getattr(named, "__module__", None) or type(named).__module__).partition(".")[0]


def _texts(value: Any, root: str, seen: set[int]) -> Iterator[str]:
    """Yields the texts that a value stands for."""
    if isinstance(value, PLAIN):
        yield repr(value)
        return
    if id(value) in seen:
        return
    if isinstance(value, dict | tuple | list | set | frozenset):
        seen.add(id(value))
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for item in items.items() if isinstance(items, dict) else items:
            yield from _texts(item, root, seen)
        return
    if _root_of(value) != root:
        return
    seen.add(id(value))
    if isinstance(value, partial):
        yield repr((value.args, value.keywords))
        yield from _texts(value.func, root, seen)
    elif isinstance(value, FunctionType):
        yield from _texts_of_function(value, root, seen)
    elif isinstance(value, type):
        for name, held in sorted(vars(value).items()):
            if not name.startswith("__") or isinstance(held, FunctionType):
                yield name
                yield from _texts(getattr(held, "__func__", held), root, seen)
    elif not isinstance(value, ModuleType):
        yield from _texts(type(value), root, seen)
        yield from _texts(dict(getattr(value, "__dict__", {})), root, seen)


def _texts_of_function(function: FunctionType, root: str, seen: set[int]) -> Iterator[str]:
    yield from _texts(function.__defaults__ or (), root, seen)
    yield from _texts(function.__kwdefaults__ or {}, root, seen)
    for cell in function.__closure__ or ():
        try:
            yield from _texts(cell.cell_contents, root, seen)
        except ValueError:  # not filled yet
            continue
    if str(function.__globals__.get("__name__")).partition(".")[0] != root:  # a decorator of another package
        return
    try:
        yield inspect.getsource(function.__code__)
    except (OSError, TypeError):  # typed into an interpreter
        yield from (_bytecode(code) for code in _codes(function.__code__))
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(names & function.__globals__.keys()):
        yield name
        yield from _texts(function.__globals__[name], root, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of a function and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _bytecode(code: CodeType) -> str:
    plain = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    return repr((code.co_code, plain, code.co_names, code.co_varnames))
