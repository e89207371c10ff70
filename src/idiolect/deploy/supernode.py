"""Flower's SuperNode beside a site: it carries letters, and runs nothing.

The SuperNode is told that somebody else runs its tasks.  That is the site itself: it takes a task, reads the letter,
and answers from its own code and its own warm process.  The app that the server sends is never installed or run.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from idiolect.deploy.carrier import record_of, sealed_of
from idiolect.deploy.keys import private_key, write_secret
from idiolect.deploy.letters import Sealed
from idiolect.deploy.plan import SiteConfig
from idiolect.deploy.surroundings import environment, free_port, program
from idiolect.errors import UserError

__all__ = ["SuperNode"]

NOT_CONNECTED = "Exit Code: 305"
REFUSALS = {  # what Flower says, and what it means here
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the authority in ca.crt",
    "Failed to activate SuperNode": "the site's key is not registered with the server",
    NOT_CONNECTED: "the connection was refused",
}
POLL = 0.2  # seconds between looks for a task
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
ON_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


@dataclass
class SuperNode:
    """A running SuperNode and the way to its tasks."""

    process: subprocess.Popen[bytes]
    address: str
    secret: bytes
    log: Path
    log_from: int  # where in the log this one's words begin

    @classmethod
    def start(cls, config: SiteConfig) -> SuperNode:
        port, secret, home = free_port(), os.urandom(32), config.folder / "flower"
        home.mkdir(exist_ok=True)
        write_secret(home / "secret", secret)
        log = config.folder / "supernode.log"
        if not config.plain:
            _sign_off(config, log)
        with open(log, "ab") as output:
            log_from = output.tell()
            process = subprocess.Popen(
                _command(config, port, home / "secret"),
                env=environment(config.folder, home),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_parent,
            )
        return cls(process, f"127.0.0.1:{port}", secret, log, log_from)

    def serve(self, reply: Callable[[Sealed], Sealed]) -> None:
        """Answers tasks until the SuperNode ends."""
        client = self._client(
            SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods={ACQUIRE})
        )
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while self.process.poll() is None:
            try:
                task = client.AcquireTask(wanted)
            except httpx.HTTPError:
                time.sleep(POLL)
                continue
            if task.token:
                self._work(task.token, reply)
            else:
                time.sleep(POLL)
        client.close()

    def refusal(self) -> str:
        """Why the connection was not made, if that is what ended it."""
        words = self.log.read_bytes()[self.log_from :].decode(errors="replace")
        for sign, reason in REFUSALS.items():
            if NOT_CONNECTED in words and sign in words:
                return reason
        return ""

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _work(self, token: str, reply: Callable[[Sealed], Sealed]) -> None:
        """One task: the letter in, the answer out, and nothing kept in Flower's own state."""
        client = self._client(RuntimeTokenHttpInterceptor(token))
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        try:
            message, context, _, _ = pull_task_input(client)
            answer = record_of(reply(sealed_of(message.content)))
            push_message(client, Message(answer, reply_to=message), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        except UserError as error:
            push_task_output(client, None, SubStatus.FAILED, str(error))
        except httpx.HTTPError:
            return  # the SuperNode ended meanwhile; the server asks again
        finally:
            heartbeat.stop()
            client.close()

    def _client(self, interceptor: object) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
        )


def _sign_off(config: SiteConfig, log: Path) -> None:
    """Tells the server that the connection before this one is over, where it was killed and could not say so.

    Until then the server takes it for alive, a minute long, and refuses another with the same key.
    """
    nodes = re.findall(r"SuperNode ID: (\d+)", log.read_text(errors="replace")) if log.exists() else []
    if not nodes:
        return
    key = private_key(config.folder / "key")
    interceptors = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    ca = str(config.folder / "ca.crt")
    try:
        with FleetHttpClient.from_server_address(config.address, False, ca, interceptors) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(nodes[-1])))
    except (httpx.HTTPError, OSError):
        return  # the SuperNode will say what is amiss


def _command(config: SiteConfig, port: int, secret: Path) -> list[str]:
    trust = ["--insecure"] if config.plain else ["--root-certificates", str(config.folder / "ca.crt")]
    key = [] if config.plain else ["--auth-supernode-private-key", str(config.folder / "key")]
    return [
        program("flower-supernode"),
        *trust,
        *key,
        "--superlink",
        config.address,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--isolation",
        "process",
        "--superexec-auth-secret-file",
        str(secret),
    ]


def _die_with_parent() -> None:
    """On Linux a SuperNode ends with its site, however that ends."""
    try:
        ctypes.CDLL(None).prctl(ON_PARENTS_DEATH, signal.SIGKILL)
    except (OSError, AttributeError):
        return
