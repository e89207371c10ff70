"""The Flower app of a deployment, and the profile by which Flower's command line finds the server."""

from __future__ import annotations

import json

from idiolect.deploy.plan import Deployment

__all__ = ["PROFILE", "write_app", "write_profile"]

PROFILE = "idiolect"

PROJECT = """[project]
name = "idiolect-app"
version = "1.0.0"
description = "A method of Idiolect where the data are"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "idiolect"

[tool.flwr.app.components]
serverapp = "idiolect_app:server"
clientapp = "idiolect_app:client"

[tool.flwr.app.config]
deployment = {deployment}
"""

MODULE = '''"""The server and the client of this deployment; what they do is in the package Idiolect."""

from idiolect.deploy.app import client, server

__all__ = ["client", "server"]
'''


def write_app(deployment: Deployment) -> None:
    folder = deployment.folder / "app"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(deployment=json.dumps(str(deployment.folder))))
    (folder / "idiolect_app.py").write_text(MODULE)


def write_profile(deployment: Deployment) -> None:
    """Flower's own configuration, kept in the deployment's folder and not in the user's home."""
    folder = deployment.server / "flower"
    folder.mkdir(parents=True, exist_ok=True)
    trust = (
        "insecure = true"
        if deployment.plain
        else f"root-certificates = {json.dumps(str(deployment.server / 'tls' / 'ca.crt'))}"
    )
    address = f'address = "{deployment.local_address}"'
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "{PROFILE}"\n\n[superlink.{PROFILE}]\n{address}\n{trust}\n'
    )
