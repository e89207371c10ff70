"""Signed requests of a server, as it writes them or with changes."""

from __future__ import annotations

from typing import Any

from idiolect.deploy.configuration import Deployment, read_plan
from idiolect.deploy.keys import private_key, public_key
from idiolect.deploy.server import server_setting
from idiolect.deploy.signed_messages import OpenedMessage, SignedMessage, sign, verify
from idiolect.deploy.site import Site
from idiolect.deploy.tensor_names import flatten

__all__ = ["Server"]


class Server:
    """Signs requests as the server does, with changes where a test asks for them."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.plan = read_plan(deployment.server)
        self.key = private_key(deployment.server / "key")
        self.sent = flatten(server_setting(self.plan, deployment.server).first_server())
        self.site = Site.open(deployment.site_folder(deployment.sites[0]))
        self.count = 0

    def ask(self, tensors: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        """The header of the site's answer."""
        return self.open(self.site.reply(self.message(tensors, **changes))).header

    def message(self, tensors: dict[str, Any] | None = None, **changes: Any) -> SignedMessage:
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
            "era": "",
            "keep": 2,
        }
        return sign({**header, **changes}, tensors if tensors is not None else self.sent, self.key)

    def open(self, answer: SignedMessage) -> OpenedMessage:
        return verify(answer, public_key(self.deployment.server / "sites" / "site-0.pub"), "site-0")
