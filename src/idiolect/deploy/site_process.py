"""The process of a site: opens its folder, runs a Flower SuperNode, and answers the server's messages.

The SuperNode only carries messages.  It is told that another process runs its tasks; that is the site, which takes a
task, reads the message, and answers from its own code.  The app that the server sends is never installed or run.

Every wait has an end, and whatever goes wrong with a task, the SuperNode is started again: it then begins without the
messages and tasks of before, and the server, which sees another connection, asks again.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import torch
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from idiolect.deploy.configuration import SiteConfig, individual_uploads, read_site
from idiolect.deploy.heartbeat import beating, server_answers
from idiolect.deploy.keys import private_key, write_secret
from idiolect.deploy.processes import flower_environment, flower_program, free_port
from idiolect.deploy.signed_messages import SignedMessage, from_record, to_record
from idiolect.deploy.site import Site
from idiolect.errors import UserError

__all__ = ["LostTask", "SuperNode", "bound_receiving", "run_site"]

RESTART_SECONDS = 2.0  # before a SuperNode that ended is started again
MAX_REFUSALS = 3  # in a row, after which the site gives up
NOT_CONNECTED = "Exit Code: 305"
REFUSALS = {  # words in Flower's log, and what they mean here
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the authority in ca.crt",
    "Failed to activate SuperNode": "the site's key is not registered with the server",
    NOT_CONNECTED: "the connection was refused",
}
POLL_SECONDS = 0.2  # between looks for a task
DEAF_SECONDS = 60.0  # after which a SuperNode that does not answer is started again
# Stands for a record that is no message of ours; no signature fits it.
NOT_OURS = SignedMessage(b"", b"", b"")
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
TASK_OF_A_SITE = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
PR_SET_PDEATHSIG = 1


def run_site(folder: Path) -> None:
    """Serves until it is told to end.

    Raises:
        UserError: the folder is unusable, or the server refuses this site.
    """
    config = read_site(folder)
    with _lock(config.folder):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        site = Site.open(folder, _say)
        if sentence := individual_uploads(site.setting.method):
            _say(f"note: {sentence}")
        signal.signal(signal.SIGTERM, _exit)
        authority = None if config.plain else config.folder / "ca.crt"
        with beating(config.folder, server_answers(config.address, authority)):
            serve(config, site.reply)


def serve(config: SiteConfig, reply: Callable[[SignedMessage], SignedMessage]) -> None:
    """Answers the server through one SuperNode after the other.

    Raises:
        UserError: the server refuses this site several times in a row.
    """
    refusals: list[str] = []
    while len(refusals) < MAX_REFUSALS:
        node = SuperNode.start(config)
        _say(f"{config.name} connects to {config.address}")
        try:
            node.serve(reply, config.patience)
        except Exception as error:
            _say(f"{config.name} connects again after {type(error).__name__}: {error}")
        finally:
            node.stop()
        refusals = [*refusals, refusal] if (refusal := node.refusal()) else []
        time.sleep(RESTART_SECONDS)
    raise UserError(
        f"{config.name} and the server at {config.address} do not agree to connect: {refusals[-1]} ({node.log})"
    )


class LostTask(Exception):
    """The SuperNode will not finish what it began."""


@dataclass
class SuperNode:
    """A running SuperNode, and the way to its tasks.

    Args:
        address: of its runtime interface, on loopback.
        secret: authenticates this process at that interface.
        log_from: where in the log the lines of this start begin.
    """

    process: subprocess.Popen[bytes]
    address: str
    secret: bytes
    log: Path
    log_from: int

    @classmethod
    def start(cls, config: SiteConfig) -> SuperNode:
        """Starts Flower's SuperNode for a site."""
        port, secret, home = free_port(), os.urandom(32), config.folder / "flower"
        home.mkdir(exist_ok=True)
        write_secret(home / "secret", secret)
        log = config.folder / "supernode.log"
        if not config.plain:
            _sign_off(config, log)
        with open(log, "ab") as output:
            log_from = output.tell()
            process = subprocess.Popen(
                _supernode_command(config, port, home / "secret"),
                env=flower_environment(config.folder, home),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_parent,
            )
        return cls(process, f"127.0.0.1:{port}", secret, log, log_from)

    def serve(self, reply: Callable[[SignedMessage], SignedMessage], patience: float) -> None:
        """Answers tasks until the SuperNode ends.

        Args:
            patience: seconds that a message may take to arrive.

        Raises:
            LostTask: the SuperNode does not answer, or gives a message up.
        """
        client = self._client(
            SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods={ACQUIRE})
        )
        heard = time.monotonic()
        try:
            while self.process.poll() is None:
                try:
                    token = client.AcquireTask(TASK_OF_A_SITE).token
                    heard = time.monotonic()
                except httpx.HTTPError:
                    token = ""
                if token:
                    self._work(token, reply, patience, lambda: bool(client.AcquireTask(TASK_OF_A_SITE).token))
                elif time.monotonic() - heard > DEAF_SECONDS:
                    raise LostTask(f"its SuperNode has not answered for {DEAF_SECONDS:g} seconds")
                else:
                    time.sleep(POLL_SECONDS)
        finally:
            client.close()

    def refusal(self) -> str:
        """Returns why the connection was not made; empty where something else ended the SuperNode."""
        words = self.log.read_bytes()[self.log_from :].decode(errors="replace")
        for sign, reason in REFUSALS.items():
            if NOT_CONNECTED in words and sign in words:
                return reason
        return ""

    def stop(self) -> None:
        """Ends the SuperNode, and kills it where it does not end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _work(
        self,
        token: str,
        reply: Callable[[SignedMessage], SignedMessage],
        patience: float,
        moved_on: Callable[[], bool],
    ) -> None:
        """Answers one task; nothing is kept in Flower's own state."""
        client = self._client(RuntimeTokenHttpInterceptor(token))
        bound_receiving(client, patience, moved_on)
        heartbeat = HeartbeatSender(_task_heartbeat(client))
        heartbeat.start()
        try:
            message, context, _, _ = pull_task_input(client)
            try:
                request = from_record(message.content)
            except UserError:
                request = NOT_OURS
            push_message(client, Message(to_record(reply(request)), reply_to=message), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        finally:
            heartbeat.stop()
            client.close()

    def _client(
        self, interceptor: RuntimeTokenHttpInterceptor | SuperExecAuthHttpInterceptor
    ) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
        )


def bound_receiving(client: Any, patience: float, moved_on: Callable[[], bool]) -> None:
    """Has a client of the SuperNode give up a message that will not arrive; Flower would ask for it for two hours.

    Args:
        patience: seconds that the whole message may take.
        moved_on: returns whether the SuperNode offers another task, so that it has dropped this one: the server died
            while it sent the message, for example.
    """
    until, pull = time.monotonic() + patience, client.PullObject

    def pull_object(request: PullObjectRequest) -> PullObjectResponse:
        found = pull(request)
        if not found.object_available:
            if time.monotonic() > until:
                raise LostTask(f"a message did not arrive within {patience:g} seconds")
            if moved_on():
                raise LostTask("a message was dropped before it arrived")
        return found

    client.PullObject = pull_object


def _task_heartbeat(client: RuntimeHttpClient) -> Callable[[], bool]:
    """Returns the heartbeat of a task; Flower's own interrupts the process whose task is lost."""

    def beat() -> bool:
        with suppress(httpx.HTTPError):  # the answer, when it is ready, meets the same fault
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    return beat


def _sign_off(config: SiteConfig, log: Path) -> None:
    """Tells the server that the connection before this one is over, in case it was killed and could not say so.

    Otherwise the server takes it for alive, for a minute, and refuses another connection with the same key.
    """
    nodes = re.findall(r"SuperNode ID: (\d+)", log.read_text(errors="replace")) if log.exists() else []
    if not nodes:
        return
    key = private_key(config.folder / "key")
    interceptors = (
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    )
    ca = str(config.folder / "ca.crt")
    try:
        with FleetHttpClient.from_server_address(config.address, False, ca, interceptors) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(nodes[-1])))
    except (httpx.HTTPError, OSError):
        return  # the SuperNode will log what is wrong


def _supernode_command(config: SiteConfig, port: int, secret: Path) -> list[str]:
    trust = ["--insecure"] if config.plain else ["--root-certificates", str(config.folder / "ca.crt")]
    key = [] if config.plain else ["--auth-supernode-private-key", str(config.folder / "key")]
    return [
        flower_program("flower-supernode"),
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
    """Has Linux end the SuperNode when its site ends, however that ends."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Allows one process for a site, because two would write one private store."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"the site in {folder} runs already") from None
        yield


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    """Runs the site whose folder is the first argument."""
    try:
        run_site(Path(sys.argv[1]))
    except UserError as error:
        print(f"idiolect: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
