"""The server's pen: letters as it writes them, or nearly."""

from __future__ import annotations

from typing import Any

from idiolect.deploy.keys import private_key, public_key
from idiolect.deploy.letters import Letter, Sealed, opened, sealed
from idiolect.deploy.named import named
from idiolect.deploy.plan import Deployment, read_plan
from idiolect.deploy.server import server_setting
from idiolect.deploy.site import Site

__all__ = ["Server"]


class Server:
    """Writes letters as the server does, or nearly."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.plan = read_plan(deployment.server)
        self.key = private_key(deployment.server / "key")
        self.sent = named(server_setting(self.plan, deployment.server).first_server())
        self.site = Site.open(deployment.site_folder(deployment.members[0]))
        self.count = 0

    def ask(self, tensors: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        """The header of the site's answer."""
        return self.open(self.site.reply(self.letter(tensors, **changes))).header

    def letter(self, tensors: dict[str, Any] | None = None, **changes: Any) -> Sealed:
        self.count += 1
        header = {
            "experiment": self.plan.identity,
            "code": self.plan.code,
            "serial": [1, self.count],
            "site": "site-0",
            "kind": "train",
            "round": 0,
            "known": None,
            "observe": False,
        }
        return sealed({**header, **changes}, tensors if tensors is not None else self.sent, self.key)

    def open(self, answer: Sealed) -> Letter:
        return opened(answer, public_key(self.deployment.server / "sites" / "site-0.pub"), "site-0")
