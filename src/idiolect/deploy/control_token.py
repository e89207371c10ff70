"""The token of a server's control interface, by which the server's account is told from other users of its machine.

It is made anew whenever the server starts, lies in a file that only its owner can read, and goes with every call of
Flower's programs that this deployment starts.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from idiolect.deploy.keys import write_secret
from idiolect.errors import UserError

__all__ = ["TOKEN_HEADER", "make_control_token", "read_control_token"]

TOKEN_HEADER = "x-idiolect-control"
FILE = "control-token"


def make_control_token(home: Path) -> None:
    """Writes a new token of 256 bits into the server's folder of Flower's files."""
    write_secret(home / FILE, secrets.token_hex(32).encode())


def read_control_token(home: Path) -> str:
    """Reads the token of the server that was started last.

    Raises:
        UserError: there is none, or it belongs to another account.
    """
    try:
        return (home / FILE).read_text()
    except FileNotFoundError:
        raise UserError(
            f"there is no {home / FILE}; start the server with idiolect deploy down and idiolect deploy up"
        ) from None
    except PermissionError:
        raise UserError(
            f"{home / FILE} is another account's; command the server from the account that started it"
        ) from None
