"""Flower's SuperLink, which serves other machines only what sites need.

Flower serves the interface that starts runs and registers keys at the port of the sites, to whoever reaches it.  Here
everything but the sites' interface is answered on loopback alone.
"""

from __future__ import annotations

from typing import Any

from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from idiolect.deploy.keys import is_loopback

__all__ = ["OnlySitesFromOutside", "main"]

SITE_PATHS = "/v1/fleet/"


class OnlySitesFromOutside:
    """Middleware that refuses requests of other machines outside the sites' interface."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            host = (scope.get("client") or ("",))[0]
            if not is_loopback(host) and not scope["path"].startswith(SITE_PATHS):
                await PlainTextResponse("not from here\n", status_code=403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def main() -> None:
    """Runs the SuperLink with this middleware."""
    extensions.get_middleware = lambda: (Middleware(OnlySitesFromOutside),)
    flower_superlink()


if __name__ == "__main__":
    main()
