"""Which exceptions are of the user's machine and files, and the sentence that each becomes.

`main` asks here once, for every command.  Everything that is not listed is a mistake in the program and keeps its
traceback, and so does everything where ``IDIOLECT_TRACEBACK`` is set.

    what                                   from where
    an operating system's refusal          anywhere but the package's own files: full disk, rights, missing, network
    a damaged file                         safetensors, zip, zlib, lzma, PyTorch's archives; Arrow, in work on files
    a tracker or a database of trials      MLflow, SQLAlchemy, DuckDB's input and output
    no memory                              Python, NumPy, PyTorch
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import idiolect
from idiolect.errors import UserError

__all__ = ["sentence_of"]

PACKAGE = Path(idiolect.__file__).resolve().parent
SPACE = "free some space, or choose another place"
RIGHTS = "give yourself the right to it, or choose another place"
AGAIN = "check that the file is whole, or write it again"
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), RIGHTS),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "check the path"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTEMPTY), "choose another place, or remove what is there"),
    errno.ENAMETOOLONG: "choose a shorter name",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files, for example with ulimit -n 4096"),
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "end other programs, or ask for less"),
    **dict.fromkeys((errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE), "check the disk"),
    **dict.fromkeys((errno.EBUSY, errno.ETXTBSY), "end what uses it"),
    errno.EADDRINUSE: "choose another port, or end what uses it",
    **dict.fromkeys(
        (
            errno.ECONNREFUSED,
            errno.ECONNRESET,
            errno.ECONNABORTED,
            errno.EHOSTUNREACH,
            errno.ENETUNREACH,
            errno.ETIMEDOUT,
            errno.EADDRNOTAVAIL,
        ),
        "check the address and the network",
    ),
}  # what to do about an operating system's refusal; one that is not here is a mistake in the program
LIBRARIES = {
    ("safetensors", "SafetensorError"): f"{AGAIN}, with space on its disk",
    ("zipfile", "BadZipFile"): AGAIN,
    ("zlib", "error"): AGAIN,
    ("_lzma", "LZMAError"): AGAIN,
    ("mlflow", "MlflowException"): "check MLFLOW_TRACKING_URI and what it points to, or leave --log out",
    ("sqlalchemy", "DBAPIError"): "check the database and its disk, or choose another place with --out",
    ("duckdb", "IOException"): AGAIN,
    ("_duckdb", "IOException"): AGAIN,
    ("wandb", "Error"): "check the network and your account, or leave --log out",
    ("urllib", "URLError"): "check the address and the network",
    ("http", "HTTPException"): "check the address and the network",
}  # by package and class, where subclasses count
ARROW_FILES = ("_parquet", "_csv", "_dataset", "_fs", "ipc.", "io.pxi", "parquet/core", "feather")
NO_MEMORY = ("DefaultCPUAllocator", "CUDA out of memory")
TORCH_FILES = ("PytorchStreamWriter", "PytorchStreamReader", "inline_container")


def sentence_of(error: BaseException) -> str | None:
    """Returns the sentence for an exception that the user can do something about; None for any other."""
    if os.environ.get("IDIOLECT_TRACEBACK"):
        return None
    for one in _with_causes(error):
        if isinstance(one, UserError):
            return str(one)
        if (found := _described(one)) is not None:
            what, advice = found
            return f"{_first_line(what)}; {advice}"
    return None


def _described(error: BaseException) -> tuple[str, str] | None:
    """Returns what happened, and what to do about it."""
    if isinstance(error, MemoryError) or any(name in str(error) for name in NO_MEMORY):
        return (
            f"there is not enough memory ({str(error) or 'out of memory'})",
            "ask for less, or use a larger machine",
        )
    if isinstance(error, RuntimeError) and any(name in str(error) for name in TORCH_FILES):
        return f"a file of PyTorch cannot be read or written ({error})", f"{AGAIN}, with space on its disk"
    for kind in type(error).__mro__:
        if (advice := LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))) is not None:
            return f"{type(error).__name__}: {error}", advice
    if type(error).__module__.startswith("pyarrow") or (isinstance(error, OSError) and error.errno is None):
        return (f"a table cannot be read or written ({error})", AGAIN) if _in_arrow_files(error) else None
    if isinstance(error, OSError) and error.errno in ADVICE and not _is_own(error.filename):
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return f"{' and '.join(names) or 'the system says'}: {error.strerror}", ADVICE[error.errno]
    return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and what it was raised from."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__


def _is_own(path: object) -> bool:
    """Returns whether a path is of the package itself, whose files are always there."""
    return isinstance(path, str | os.PathLike) and PACKAGE in Path(path).resolve().parents


def _in_arrow_files(error: BaseException) -> bool:
    """Returns whether Arrow was reading or writing a file, and not computing with tables."""
    return any(part in file for file in _files_of(error.__traceback__) for part in ARROW_FILES)


def _files_of(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


def _first_line(text: str) -> str:
    """Returns text as one line of a bearable length."""
    lines = text.strip().splitlines()
    return lines[0][:400] if lines else "something went wrong"
