"""Every wait of a site has an end: when the server dies while it sends, and when the site itself hangs."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_objects

from idiolect.deploy import heartbeat, processes, site_process
from idiolect.deploy.configuration import SiteConfig, read_site, write_site
from idiolect.deploy.control_token import make_control_token
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.heartbeat import HANGS, beating, condition, server_answers
from idiolect.deploy.processes import free_port, running
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.site_process import LostTask, SuperNode, bound_receiving, serve
from idiolect.deploy.status import start_run as ask_for_run
from idiolect.deploy.status import status
from idiolect.errors import UserError

from .conftest import Deploy
from .real import idiolect, kill, start_run, up, wait_for


class Transfer:
    """A SuperNode that still waits for the server: its objects are not there, or only after some questions."""

    def __init__(self, there_after: float = float("inf")) -> None:
        self.asked, self.there_after = 0, there_after

    def PullObject(self, request: Any) -> Any:
        self.asked += 1
        there = self.asked > self.there_after
        return SimpleNamespace(object_found=True, object_available=there, object_content=b"whole" * there)


def received(transfer: Transfer, patience: float, moved_on: Callable[[], bool]) -> dict[str, bytes]:
    """What Flower's own loop makes of it, which by itself asks for two hours."""
    bound_receiving(transfer, patience, moved_on)
    ask = make_pull_object_fn_protobuf(lambda request: transfer.PullObject(request), None, 1)
    return pull_objects(["a"], ask, initial_backoff=0.01, backoff_cap=0.02)


def test_message_that_never_arrives_is_given_up() -> None:
    with pytest.raises(LostTask, match="did not arrive within"):
        received(Transfer(), 0.1, lambda: False)


def test_message_that_the_supernode_dropped_is_given_up_at_once() -> None:
    with pytest.raises(LostTask, match="dropped"):
        received(Transfer(), 600, lambda: True)


def test_message_that_arrives_late_is_read() -> None:
    assert received(Transfer(there_after=3), 600, lambda: False) == {"a": b"whole"}


class Node:
    """A SuperNode whose tasks end as ``ends`` says, one after the other."""

    log = "supernode.log"

    def __init__(self, ends: list[BaseException | None], started: list[Any]) -> None:
        self.ends, self.stopped = ends, False
        started.append(self)

    def serve(self, reply: Any, patience: float) -> None:
        error = self.ends.pop(0)
        if error is not None:
            raise error

    def stop(self) -> None:
        self.stopped = True

    def refusal(self) -> str:
        return ""


def test_site_connects_again_whatever_went_wrong(monkeypatch: pytest.MonkeyPatch, config: SiteConfig) -> None:
    wrong = [httpx.ReadTimeout("slow"), LostTask("gone"), RuntimeError("unknown"), ValueError("odd"), None]
    ends, started = [*wrong, SystemExit(0)], []
    monkeypatch.setattr(SuperNode, "start", lambda config: Node(ends, started))
    monkeypatch.setattr(site_process, "RESTART_SECONDS", 0.0)
    with pytest.raises(SystemExit):
        serve(config, lambda message: message)
    assert len(started) == len(wrong) + 1
    assert all(node.stopped for node in started)


def test_supernode_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(wanted: Any) -> Any:
        raise httpx.ReadTimeout("no answer")

    process = SimpleNamespace(poll=lambda: None)
    node = SuperNode(process, "127.0.0.1:1", b"0" * 32, Path("log"), 0)  # type: ignore[arg-type]
    client = SimpleNamespace(AcquireTask=refuse, close=lambda: None)
    monkeypatch.setattr(SuperNode, "_client", lambda self, interceptor: client)
    monkeypatch.setattr(site_process, "DEAF_SECONDS", 0.05)
    monkeypatch.setattr(site_process, "POLL_SECONDS", 0.01)
    with pytest.raises(LostTask, match="has not answered"):
        node.serve(lambda message: message, 600)


@pytest.fixture
def config(tmp_path: Path) -> SiteConfig:
    address = f"127.0.0.1:{free_port()}"
    return SiteConfig(tmp_path, "site-0", 0, 0, address, True, "experiment", "code", "data", "private")


@pytest.mark.parametrize(
    ("age", "answered", "words"),
    [
        (0, 0, "connected"),
        (0, 100, "not connected: the server has not answered for 100 s"),
        (0, None, "not connected: the server has not answered yet"),
        (100, 0, HANGS),
    ],
)
def test_a_process_is_not_taken_for_a_connection(
    tmp_path: Path, age: float, answered: float | None, words: str
) -> None:
    now = time.monotonic()
    found = {"pid": 7, "at": now - age, "answered": None if answered is None else now - answered}
    (tmp_path / "heartbeat.json").write_text(json.dumps(found))
    assert condition(tmp_path, 7) == words
    assert condition(tmp_path, 8) == "starts"


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "[]",
        "7",
        '{"pid": 7}',
        '{"pid": 7, "at": "now", "answered": 1}',
        '{"pid": 7, "at": 1.0, "answered": []}',
        f'{{"pid": 7, "at": {10**400}, "answered": 1}}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_damaged_heartbeat_is_none(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "heartbeat.json").write_bytes(damaged.encode("latin-1"))
    assert condition(tmp_path, 7) == "starts"


def test_heartbeat_goes_on_after_a_write_that_failed(
    monkeypatch: pytest.MonkeyPatch, config: SiteConfig
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    full = [OSError(errno.ENOSPC, "No space left on device")] * 3

    def write(path: Path, text: str) -> None:
        if full:
            raise full.pop()
        path.write_text(text)

    monkeypatch.setattr(heartbeat, "write_atomically", write)
    with beating(config.folder, lambda: True):
        wait_for(lambda: condition(config.folder, os.getpid()) == "connected", "a beat", 5)
    assert not full


def test_heartbeat_says_when_the_server_answered(monkeypatch: pytest.MonkeyPatch, config: SiteConfig) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    answers = [True, False]
    with beating(config.folder, lambda: answers.pop() if answers else True):
        wait_for(lambda: condition(config.folder, os.getpid()) == "connected", "an answer", 5)
    assert not server_answers(config.address, None)(), "nobody listens there"


def test_run_is_not_asked_of_a_server_that_hangs(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port still takes connections, and what is known of the run before must not be lost over it."""
    monkeypatch.setattr(heartbeat, "PROBE_SECONDS", 0.05)
    deployment = deploy()
    DeploymentProgress(deployment.server, 3, status="finished").save()
    host, _, port = deployment.local_address.rpartition(":")
    with socket.create_server((host, int(port))), pytest.raises(UserError, match="runs and does not answer"):
        ask_for_run(deployment)
    assert status(deployment)["status"] == "finished"


def test_command_that_the_server_does_not_take_in_time_is_a_sentence(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy()
    make_control_token(deployment.server / "flower")
    monkeypatch.setattr(processes, "COMMAND_SECONDS", 0.01)
    with pytest.raises(UserError, match=r"took more than 0\.01 seconds for a command"):
        processes.use_flower(deployment, "run", "app")


def test_sites_are_not_brought_up_beside_a_server_that_hangs(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(processes, "running", lambda deployment: {"server": os.getpid()})
    deployment = deploy()
    host, _, port = deployment.local_address.rpartition(":")
    with socket.create_server((host, int(port))), pytest.raises(UserError, match="runs and does not answer"):
        processes.bring_up(deployment, 1)


def test_configuration_of_before_has_a_patience(config: SiteConfig) -> None:
    write_site(config)
    path = config.folder / "site.toml"
    assert "patience = 600.0" in path.read_text()
    path.write_text(path.read_text().replace("patience = 600.0\n", ""))
    assert read_site(config.folder).patience == 600


LARGE = {"method": "fedavg", "model": "mlpnet(hidden=4500)", "rounds": 1, "precision": "float32"}  # 81 MB


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 40.0])
def test_site_goes_on_when_the_server_dies_while_it_sends(deploy: Deploy, pause: float) -> None:
    """The server is killed as a message of 81 MB is on its way, at once or after it stood still for a while."""
    deployment = deploy(DeploymentOptions(wait=90, grace=90, deadline=600, min_sites=1), clients=3, **LARGE)
    up(deployment, 1)
    log = deployment.site_folder(deployment.sites[0]) / "supernode.log"
    with start_run(deployment):
        wait_for(lambda: log.exists() and "Receiving:" in log.read_text(), "the site to be greeted")
        server = running(deployment)["server"]
        wait_for(lambda: log.read_text().count("Receiving:") == 2, "the model on its way", pause=0.002)
        os.kill(server, signal.SIGSTOP)
        assert log.read_text().count("Received successfully") == 1, (
            "the model arrived before the server stopped"
        )
        time.sleep(pause)
        kill(deployment, "server")
    up(deployment, 1)
    assert idiolect("deploy", "run", deployment.folder).returncode == 0
    words = (deployment.site_folder(deployment.sites[0]) / "site.log").read_text()
    assert words.count("train, round 1") == 1
    assert "connects again after" in words
    assert idiolect("deploy", "down", deployment.folder).returncode == 0


@pytest.mark.slow
def test_site_that_hangs_is_seen_and_started_again(deploy: Deploy) -> None:
    deployment = deploy(DeploymentOptions(plain=True, wait=60, min_sites=1))
    up(deployment, 1)
    folder, first = deployment.site_folder(deployment.sites[0]), running(deployment)["site-0"]
    wait_for(lambda: condition(folder, first) == "connected", "the site's heartbeat")
    os.kill(first, signal.SIGSTOP)
    wait_for(lambda: condition(folder, first) == HANGS, "a late heartbeat")
    up(deployment, 1)
    second = running(deployment)["site-0"]
    assert second != first
    wait_for(lambda: condition(folder, second) == "connected", "the new heartbeat")
    kill(deployment, "server")
    wait_for(lambda: condition(folder, second).startswith("not connected"), "the site to miss its server")
    assert "not connected" in idiolect("deploy", "status", deployment.folder).stdout


def test_refused_site_still_gives_up(monkeypatch: pytest.MonkeyPatch, config: SiteConfig) -> None:
    monkeypatch.setattr(Node, "refusal", lambda self: "the connection was refused")
    monkeypatch.setattr(SuperNode, "start", lambda config: Node([None], []))
    monkeypatch.setattr(site_process, "RESTART_SECONDS", 0.0)
    with pytest.raises(UserError, match="do not agree to connect"):
        serve(config, lambda message: message)
