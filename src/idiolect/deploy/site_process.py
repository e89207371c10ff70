"""The process of a site: opens its folder, runs a Flower SuperNode, and answers the server's messages.

The SuperNode only carries messages.  It is told that another process runs its tasks; that is the site, which takes a
task, reads the message, and answers from its own code.  The app that the server sends is never installed or run.  A
SuperNode that is lost is started again.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx
import torch
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

from idiolect.deploy.configuration import SiteConfig, individual_uploads, read_site
from idiolect.deploy.keys import private_key, write_secret
from idiolect.deploy.processes import flower_environment, flower_program, free_port
from idiolect.deploy.signed_messages import SignedMessage, from_record, to_record
from idiolect.deploy.site import Site
from idiolect.errors import UserError

__all__ = ["run_site"]

RESTART_SECONDS = 2.0  # before a SuperNode that ended is started again
MAX_REFUSALS = 3  # in a row, after which the site gives up
NOT_CONNECTED = "Exit Code: 305"
REFUSALS = {  # words in Flower's log, and what they mean here
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the authority in ca.crt",
    "Failed to activate SuperNode": "the site's key is not registered with the server",
    NOT_CONNECTED: "the connection was refused",
}
POLL_SECONDS = 0.2  # between looks for a task
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
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
        refusals: list[str] = []
        while len(refusals) < MAX_REFUSALS:
            node = SuperNode.start(config)
            _say(f"{config.name} connects to {config.address}")
            try:
                node.serve(site.reply)
            finally:
                node.stop()
            refusals = [*refusals, refusal] if (refusal := node.refusal()) else []
            time.sleep(RESTART_SECONDS)
        raise UserError(
            f"{config.name} and the server at {config.address} do not agree to connect: {refusals[-1]} ({node.log})"
        )


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

    def serve(self, reply: Callable[[SignedMessage], SignedMessage]) -> None:
        """Answers tasks until the SuperNode ends."""
        client = self._client(
            SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods={ACQUIRE})
        )
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while self.process.poll() is None:
            try:
                task = client.AcquireTask(wanted)
            except httpx.HTTPError:
                time.sleep(POLL_SECONDS)
                continue
            if task.token:
                self._work(task.token, reply)
            else:
                time.sleep(POLL_SECONDS)
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

    def _work(self, token: str, reply: Callable[[SignedMessage], SignedMessage]) -> None:
        """Answers one task; nothing is kept in Flower's own state."""
        client = self._client(RuntimeTokenHttpInterceptor(token))
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        try:
            message, context, _, _ = pull_task_input(client)
            answer = to_record(reply(from_record(message.content)))
            push_message(client, Message(answer, reply_to=message), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        except UserError as error:
            push_task_output(client, None, SubStatus.FAILED, str(error))
        except httpx.HTTPError:
            return  # the SuperNode ended meanwhile; the server asks again
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
