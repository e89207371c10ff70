"""Flower's SuperLink with a guard: sites reach what sites need, and the server's own account alone the rest.

At the port of the sites Flower also serves the interfaces that start runs, which is to run code, register keys and hand
out tasks, to whoever reaches it.  Here all but the sites' interface is answered on loopback alone, and only to calls
with the token of the control interface, which other users of the machine cannot read.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from flwr.superlink import extensions
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from idiolect.deploy.control_token import TOKEN_HEADER, read_control_token
from idiolect.deploy.flower_with_token import command_with_token
from idiolect.deploy.keys import is_loopback

__all__ = ["Guard", "Unguarded", "main", "refuse_unguarded", "status_of_call"]

SITE_PATHS = "/v1/fleet/"
REFUSED = 403
CONTROL_PATHS = ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs")
LOOPBACK, ELSEWHERE = "127.0.0.1", "192.0.2.1"  # the second is an address of nobody


class Unguarded(Exception):
    """The guard did not refuse what it must refuse, or refused its own account."""


class Guard:
    """Middleware that refuses all but the sites' interface to calls from elsewhere or without the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or self._allows(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse("not from here\n", status_code=REFUSED)(scope, receive, send)

    def _allows(self, scope: Any) -> bool:
        if scope["path"].startswith(SITE_PATHS):
            return True
        found = dict(scope["headers"]).get(TOKEN_HEADER.encode(), b"")
        return is_loopback((scope.get("client") or ("",))[0]) and hmac.compare_digest(found, self._token)


async def refuse_unguarded(app: Any, token: str) -> None:
    """Calls the control interface as strangers would, and once as the server's own account.

    Raises:
        Unguarded: a stranger is not refused, or the server's own account is.
    """
    for path in CONTROL_PATHS:
        for host, sent in ((LOOPBACK, ""), (LOOPBACK, "0" * len(token)), (ELSEWHERE, token)):
            if await status_of_call(app, host, sent, path) != REFUSED:
                raise Unguarded(
                    f"a call of a stranger to {path} was not refused, so the server does not start"
                )
    if await status_of_call(app, LOOPBACK, token, CONTROL_PATHS[0]) == REFUSED:
        raise Unguarded("the guard refuses the server's own account, so the server does not start")


async def status_of_call(app: Any, host: str, token: str, path: str) -> int:
    """Returns what an application answers to a call from ``host``, without the network."""
    way = httpx.ASGITransport(app=app, client=(host, 1), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=way, base_url="http://server") as caller:
        return (await caller.post(path, headers={TOKEN_HEADER: token})).status_code


def main() -> None:
    """Runs the SuperLink with the guard, which is tried before the port is opened."""
    token = read_control_token(Path(os.environ["FLWR_HOME"]))
    superlink: Any = import_module("flwr.superlink.cli.flower_superlink")
    superexec_command = superlink._get_superexec_command

    @asynccontextmanager
    async def tried(app: Any) -> AsyncIterator[None]:
        await refuse_unguarded(app, token)
        yield

    extensions.get_middleware = lambda: (Middleware(Guard, token=token),)
    extensions.get_lifespan_contexts = lambda: (tried,)
    superlink._get_superexec_command = lambda **given: command_with_token(*superexec_command(**given))
    superlink.flower_superlink()


if __name__ == "__main__":
    main()
