"""Flower's SuperLink with one rule more: from other machines only what sites need is served.

Flower serves the interface by which runs are started and keys registered at the port of the sites, to whoever
reaches it.  Here everything but the sites' interface is answered on loopback alone.
"""

from __future__ import annotations

from typing import Any

from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from idiolect.deploy.keys import is_loopback

__all__ = ["OnlySitesFromOutside", "main"]

FOR_SITES = "/v1/fleet/"


class OnlySitesFromOutside:
    """Refuses requests of other machines that are not a site's."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            host = (scope.get("client") or ("",))[0]
            if not is_loopback(host) and not scope["path"].startswith(FOR_SITES):
                await PlainTextResponse("not from here\n", status_code=403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def main() -> None:
    extensions.get_middleware = lambda: (Middleware(OnlySitesFromOutside),)
    flower_superlink()


if __name__ == "__main__":
    main()
