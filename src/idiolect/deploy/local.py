"""Processes of a deployment on this machine: the server, and for a trial sites on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from idiolect.deploy.app_files import PROFILE
from idiolect.deploy.keys import is_loopback
from idiolect.deploy.plan import Deployment, Member
from idiolect.deploy.surroundings import end, environment, marked, program
from idiolect.errors import UserError

__all__ = [
    "bring_up",
    "flower",
    "is_served",
    "register_keys",
    "running",
    "start_server",
    "start_site",
    "stop",
    "wait_until_served",
]

READY = 60.0  # seconds that the server may take to start


def bring_up(deployment: Deployment, sites: int) -> dict[str, int]:
    """Starts the server and the first ``sites`` sites, those that do not run yet; gives all that run.

    Raises:
        UserError: there are fewer sites, or the server does not start.
    """
    if sites > len(deployment.members):
        raise UserError(
            f"{deployment.folder} has {len(deployment.members)} sites; --local {sites} is too many"
        )
    there = running(deployment)
    if "server" not in there:
        start_server(deployment)
    for member in deployment.members[:sites]:
        if member.name not in there:
            start_site(deployment, member)
    return running(deployment)


def start_server(deployment: Deployment) -> subprocess.Popen[bytes]:
    """Starts the SuperLink and has the sites' keys registered.

    Raises:
        UserError: it does not start.
    """
    if is_served(deployment):
        raise UserError(
            f"something listens at {deployment.local_address} already; end it, or init with another --address"
        )
    log = deployment.server / "superlink.log"
    process = _spawn(_superlink(deployment), deployment, log)
    try:
        wait_until_served(deployment, process, log)
        register_keys(deployment)
    except BaseException:
        process.terminate()
        raise
    return process


def start_site(deployment: Deployment, member: Member) -> subprocess.Popen[bytes]:
    folder = deployment.site_folder(member)
    command = [sys.executable, "-m", "idiolect.deploy.site_process", str(folder)]
    return _spawn(command, deployment, folder / "site.log")


def running(deployment: Deployment) -> dict[str, int]:
    """What runs here: the server and sites, by name, with the process that each is."""
    found = {}
    for process, command in marked(deployment.folder).items():
        if "idiolect.deploy.superlink" in command:
            found["server"] = process
        for member in deployment.members:
            if f"idiolect.deploy.site_process {deployment.site_folder(member)}" in f"{command} ":
                found[member.name] = process
    return found


def stop(deployment: Deployment) -> list[int]:
    """Ends all processes of the deployment that run here, and what they started."""
    return end(deployment.folder)


def register_keys(deployment: Deployment) -> None:
    """Makes every site's public key known to the SuperLink; one that is known stays."""
    if deployment.plain:
        return
    for member in deployment.members:
        key = deployment.server / "sites" / f"{member.name}.pub"
        done = flower(deployment, "supernode", "register", str(key), PROFILE, "--name", member.name)
        if done.returncode and "already" not in done.stdout + done.stderr:
            raise UserError(f"the key of {member.name} was not registered: {_last_line(done)}")


def flower(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    """Flower's command line with this deployment's profile."""
    return subprocess.run(
        [program("flwr"), *words, "--format", "json"],
        env=environment(deployment.folder, deployment.server / "flower"),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_until_served(deployment: Deployment, process: subprocess.Popen[bytes], log: Path) -> None:
    """Raises:
    UserError: the server ends, or does not answer in time.
    """
    until = time.monotonic() + READY
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UserError(f"the server did not start; its last words are in {log}")
        if is_served(deployment):
            return
        time.sleep(0.1)
    raise UserError(f"the server did not start within {READY:g} seconds; see {log}")


def is_served(deployment: Deployment) -> bool:
    host, _, port = deployment.local_address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _spawn(command: list[str], deployment: Deployment, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            env=environment(deployment.folder, deployment.server / "flower"),
            cwd=deployment.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _superlink(deployment: Deployment) -> list[str]:
    host, _, port = deployment.address.rpartition(":")
    tls = deployment.server / "tls"
    trust = [
        "--ssl-ca-certfile",
        str(tls / "ca.crt"),
        "--ssl-certfile",
        str(tls / "server.crt"),
        "--ssl-keyfile",
        str(tls / "server.key"),
        "--enable-supernode-auth",
    ]
    return [
        sys.executable,
        "-m",
        "idiolect.deploy.superlink",
        *(["--insecure"] if deployment.plain else trust),
        "--host",
        "127.0.0.1" if is_loopback(host) else "0.0.0.0",
        "--port",
        port,
        "--database",
        str(deployment.server / "flower" / "superlink.db"),
        "--disable-runtime-dependency-installation",
    ]


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    try:
        found: Any = json.loads(done.stdout)
        return str(found.get("error-message", found)).strip()
    except (ValueError, AttributeError):
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
