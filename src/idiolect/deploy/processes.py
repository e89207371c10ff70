"""Starts, finds and stops the processes of a deployment on this machine: the server, and sites for a trial on loopback.

Every process carries the deployment's folder in an environment variable, by which all of them are found again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from idiolect.deploy.configuration import Deployment, SiteEntry
from idiolect.deploy.control_token import make_control_token, read_control_token
from idiolect.deploy.heartbeat import HANGS, condition, server_answers
from idiolect.deploy.keys import is_loopback, keep_to_owner
from idiolect.errors import UserError

__all__ = [
    "PROFILE",
    "bring_up",
    "deployment_processes",
    "flower_environment",
    "flower_program",
    "free_port",
    "is_served",
    "refuse_silent_server",
    "running",
    "start_of_process",
    "start_server",
    "stop_processes",
    "use_flower",
]

PROFILE = "idiolect"  # by which Flower's command line finds the server
DEPLOYMENT_VARIABLE = "IDIOLECT_DEPLOYMENT"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_INTERNAL_GRPC_CONTROL_API": "0",  # would open a second, unguarded way to the same interface
    "FLWR_INTERNAL_GRPC_FLEET_API": "0",
}
START_SECONDS = 60.0  # that the server may take to start
COMMAND_SECONDS = 120.0  # that it may take for a command
PROBES = 3  # questions without an answer after which a server is taken to hang


def bring_up(deployment: Deployment, sites: int) -> dict[str, int]:
    """Starts the server and the first ``sites`` sites where they do not run yet; returns all that run.

    A site that hangs is ended first.

    Raises:
        UserError: there are fewer sites, the server does not start, or it runs and does not answer.
    """
    if sites > len(deployment.sites):
        raise UserError(f"{deployment.folder} has {len(deployment.sites)} sites; --local {sites} is too many")
    there = running(deployment)
    if "server" in there:
        refuse_silent_server(deployment)
    else:
        start_server(deployment)
    for site in deployment.sites[:sites]:
        if site.name in there and condition(deployment.site_folder(site), there[site.name]) == HANGS:
            _signal([there.pop(site.name)], signal.SIGKILL)
            _wait_until_gone(deployment, site)
        if site.name not in there:
            _start_site(deployment, site)
    return running(deployment)


def start_server(deployment: Deployment) -> subprocess.Popen[bytes]:
    """Starts the SuperLink and registers the sites' keys with it.

    Raises:
        UserError: it does not start.
    """
    if is_served(deployment):
        raise UserError(
            f"something listens at {deployment.local_address} already; end it, or init with another --address"
        )
    keep_to_owner(deployment.folder.resolve(), below=False)
    _end_leftovers(deployment)
    make_control_token(_home(deployment))
    log = deployment.server / "superlink.log"
    process = _spawn(_superlink_command(deployment), deployment, log)
    try:
        _wait_until_served(deployment, process, log)
        _register_keys(deployment)
    except BaseException:
        process.terminate()
        raise
    return process


def running(deployment: Deployment) -> dict[str, int]:
    """Returns the server and sites that run on this machine, by name, with their process ids."""
    found = {}
    for process, command in deployment_processes(deployment.folder).items():
        if "idiolect.deploy.guarded_superlink" in command:
            found["server"] = process
        for site in deployment.sites:
            if f"idiolect.deploy.site_process {deployment.site_folder(site)}" in f"{command} ":
                found[site.name] = process
    return found


def deployment_processes(folder: Path) -> dict[int, str]:
    """Returns the command line of every process of a deployment that runs now, by process id."""
    sign = f"{DEPLOYMENT_VARIABLE}={Path(folder).resolve()}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if sign not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state != "Z" and int(entry.name) != os.getpid():
            found[int(entry.name)] = command
    return found


def start_of_process(process: int) -> str:
    """Returns when a process was started, in words that fit no other with its number; nothing where it is gone."""
    try:
        state, *facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return ""
    return "" if state == "Z" else f"{facts[18]} ticks after {boot}"


def stop_processes(folder: Path, patience: float = 5.0) -> list[int]:
    """Ends every process of a deployment and returns their ids.

    Args:
        patience: seconds that processes have to end by themselves before they are killed.
    """
    ended = list(deployment_processes(folder))
    _signal(ended, signal.SIGTERM)
    until = time.monotonic() + patience
    while (left := deployment_processes(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    while left:
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
        left = deployment_processes(folder)
    return ended


def flower_environment(folder: Path, home: Path) -> dict[str, str]:
    """Returns the environment of a Flower process: no telemetry, update checks or installs; files below ``home``.

    Args:
        folder: marks the process, unless this process carries a mark already and passes it on.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    mark = os.environ.get(DEPLOYMENT_VARIABLE, str(Path(folder).resolve()))
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home), DEPLOYMENT_VARIABLE: mark}


def flower_program(name: str) -> str:
    """Returns the path of a program of Flower's in this Python environment."""
    return str(Path(sys.executable).parent / name)


def use_flower(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Flower's command line with this deployment's profile and the token of its control interface.

    Raises:
        UserError: the token cannot be read, or the server does not take the command in time.
    """
    read_control_token(_home(deployment))
    try:
        return subprocess.run(
            [sys.executable, "-m", "idiolect.deploy.flower_with_token", "flwr", *words, "--format", "json"],
            env=flower_environment(deployment.folder, _home(deployment)),
            cwd=deployment.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the server at {deployment.local_address} took more than {COMMAND_SECONDS:g} seconds for a command; end "
            f"other programs on its machine, or start it again with idiolect deploy down {deployment.folder}"
        ) from None


def _home(deployment: Deployment) -> Path:
    """Returns the folder of Flower's own files at the server."""
    return deployment.server / "flower"


def is_served(deployment: Deployment) -> bool:
    """Returns whether something listens at the server's port."""
    host, _, port = deployment.local_address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def refuse_silent_server(deployment: Deployment) -> None:
    """Raises ``UserError`` where the server runs and answers nothing."""
    authority = None if deployment.plain else deployment.server / "tls" / "ca.crt"
    answers = server_answers(deployment.local_address, authority)
    if not any(answers() for _ in range(PROBES)):
        raise UserError(
            f"the server at {deployment.local_address} runs and does not answer, or another one listens there; start "
            f"it again with idiolect deploy down {deployment.folder} and idiolect deploy up {deployment.folder}"
        )


def free_port() -> int:
    """Returns a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_leftovers(deployment: Deployment) -> None:
    """Ends what a server that was killed has left: the loop of its run would go on beside the next one's."""
    left = deployment_processes(deployment.folder).items()
    _signal(
        (process for process, command in left if "idiolect.deploy.flower_with_token" in command),
        signal.SIGKILL,
    )


def _start_site(deployment: Deployment, site: SiteEntry) -> None:
    folder = deployment.site_folder(site)
    command = [sys.executable, "-m", "idiolect.deploy.site_process", str(folder)]
    _spawn(command, deployment, folder / "site.log")


def _spawn(command: list[str], deployment: Deployment, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            env=flower_environment(deployment.folder, _home(deployment)),
            cwd=deployment.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _superlink_command(deployment: Deployment) -> list[str]:
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
        "idiolect.deploy.guarded_superlink",
        *(["--insecure"] if deployment.plain else trust),
        "--host",
        "127.0.0.1" if is_loopback(host) else "0.0.0.0",
        "--port",
        port,
        "--database",
        str(_home(deployment) / "superlink.db"),
        "--disable-runtime-dependency-installation",
    ]


def _wait_until_gone(deployment: Deployment, site: SiteEntry) -> None:
    """Waits until the processes of a site that was killed are gone, its SuperNode with it."""
    folder, until = str(deployment.site_folder(site)), time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if not any(folder in command for command in deployment_processes(deployment.folder).values()):
            return
        time.sleep(0.05)
    raise UserError(f"the processes of {site.name} do not end; see {folder}/site.log")


def _wait_until_served(deployment: Deployment, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the server answers.

    Raises:
        UserError: it ends, or does not answer in time.
    """
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UserError(f"the server did not start; its last words are in {log}")
        if is_served(deployment):
            return
        time.sleep(0.1)
    raise UserError(f"the server did not start within {START_SECONDS:g} seconds; see {log}")


def _register_keys(deployment: Deployment) -> None:
    """Registers every site's public key with the SuperLink; one that is registered already stays."""
    if deployment.plain:
        return
    for site in deployment.sites:
        key = deployment.server / "sites" / f"{site.name}.pub"
        done = use_flower(deployment, "supernode", "register", str(key), PROFILE, "--name", site.name)
        if done.returncode and "already" not in done.stdout + done.stderr:
            raise UserError(f"the key of {site.name} was not registered: {_last_line(done)}")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    try:
        found: Any = json.loads(done.stdout)
        return str(found.get("error-message", found)).strip()
    except (ValueError, AttributeError):
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
