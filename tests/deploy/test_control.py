"""Who may command a server: its own account, and neither another user of its machine nor anybody elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from idiolect.deploy import flower_with_token, processes
from idiolect.deploy.control_token import make_control_token, read_control_token
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.flower_with_token import launch_task
from idiolect.deploy.guarded_superlink import Guard, Unguarded, refuse_unguarded, status_of_call
from idiolect.deploy.processes import deployment_processes
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.status import is_running as is_running_loop
from idiolect.deploy.status import start_run as ask_for_run
from idiolect.deploy.status import watch
from idiolect.errors import UserError

from ..child_process import child_process, is_running
from .conftest import Deploy
from .real import idiolect, site_says, start_run, up, wait_for

TOKEN = "a" * 64
NOBODY = 65534


def everything() -> Starlette:
    """An application that answers all calls with 200."""
    return Starlette(routes=[Route("/{rest:path}", lambda request: Response(), methods=["POST", "GET"])])


@pytest.mark.parametrize(
    ("host", "token", "path", "status"),
    [
        ("10.0.0.9", "", "/v1/fleet/pull-messages", 200),
        ("127.0.0.1", "", "/v1/fleet/pull-messages", 200),
        ("127.0.0.1", TOKEN, "/v1/control/start-run", 200),
        ("127.0.0.1", "", "/v1/control/start-run", 403),
        ("127.0.0.1", "b" * 64, "/v1/control/start-run", 403),
        ("127.0.0.1", "", "/v1/runtime/acquire-task", 403),
        ("127.0.0.1", "", "/docs", 403),
        ("10.0.0.9", TOKEN, "/v1/control/start-run", 403),
        ("10.0.0.9", TOKEN, "/v1/runtime/acquire-task", 403),
    ],
)
def test_sites_reach_what_sites_need_and_only_the_token_commands(
    host: str, token: str, path: str, status: int
) -> None:
    assert asyncio.run(status_of_call(Guard(everything(), TOKEN), host, token, path)) == status


def test_guard_is_tried_before_the_server_starts() -> None:
    asyncio.run(refuse_unguarded(Guard(everything(), TOKEN), TOKEN))
    with pytest.raises(Unguarded, match="a stranger to /v1/control/start-run was not refused"):
        asyncio.run(refuse_unguarded(everything(), TOKEN))
    with pytest.raises(Unguarded, match="refuses the server's own account"):
        asyncio.run(refuse_unguarded(Guard(everything(), "c" * 64), TOKEN))


def test_token_is_its_owners_alone_and_new_at_every_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="idiolect deploy up"):
        read_control_token(tmp_path)
    make_control_token(tmp_path)
    first = read_control_token(tmp_path)
    assert len(first) == 64 and (tmp_path / "control-token").stat().st_mode & 0o077 == 0
    make_control_token(tmp_path)
    assert read_control_token(tmp_path) != first


def test_token_of_a_task_is_not_on_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    show = "import sys; print(sys.argv[1:], open('/dev/stdin').read())"
    monkeypatch.setattr(flower_with_token, "command_with_token", lambda *w: [sys.executable, "-c", show, *w])
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], **options: Any) -> None:
        started.append(whole(command, stdout=subprocess.PIPE, text=True, **options))

    whole = subprocess.Popen
    monkeypatch.setattr("idiolect.deploy.flower_with_token.subprocess.Popen", start)
    launch_task(None, task())
    out, _ = started[0].communicate(timeout=20)
    words, _, read = out.strip().rpartition(" ")
    assert read == TOKEN and TOKEN not in words
    assert "flwr-serverapp" in words and "--token-file" in words


def task() -> SimpleNamespace:
    address = {"task_type": "flwr-serverapp", "runtime_api_address": "127.0.0.1:1", "token": TOKEN}
    return SimpleNamespace(**address, insecure=True, root_certificates_path=None, parent_pid=None)


BLOCKED = """
import os, subprocess, sys, threading
from idiolect.deploy import flower_with_token
flower_with_token.END_SECONDS = 0.2
if sys.argv[1:]:
    flower_with_token.end_with(os.getppid())
    print(os.getpid(), flush=True)
    waits = threading.Lock()
    waits.acquire()
    waits.acquire()
subprocess.Popen([sys.executable, "-c", open("/proc/self/cmdline").read().split(chr(0))[2], "task"]).wait()
"""


def test_task_ends_with_its_parent_also_where_its_main_thread_waits_without_end() -> None:
    with child_process([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        task = int(parent.stdout.readline())
        assert is_running(task)
        parent.kill()
        parent.wait()
        wait_for(lambda: not is_running(task), "the end of the task", 20)


def test_what_a_killed_server_left_is_ended_before_the_next_one_starts(deploy: Deploy) -> None:
    deployment = deploy()
    words = [
        sys.executable,
        "-c",
        "import time; time.sleep(600)",
        "idiolect.deploy.flower_with_token",
        "loop",
    ]
    marked = {**os.environ, processes.DEPLOYMENT_VARIABLE: str(deployment.folder)}
    with child_process(words, env=marked) as left, pytest.MonkeyPatch.context() as patch:
        wait_for(lambda: left.pid in deployment_processes(deployment.folder), "the start", 20)
        patch.setattr(processes, "_superlink_command", lambda deployment: [sys.executable, "-c", "pass"])
        with pytest.raises(UserError, match="the server did not start"):
            processes.start_server(deployment)
        assert left.wait(20) == -signal.SIGKILL


def test_folder_that_was_moved_is_closed_to_others_when_its_server_starts(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's database in it holds uploads, and has the modes that Flower gives it."""
    deployment = deploy()
    deployment.folder.chmod(0o755)
    monkeypatch.setattr(processes, "_superlink_command", lambda deployment: [sys.executable, "-c", "pass"])
    with pytest.raises(UserError, match="the server did not start"):
        processes.start_server(deployment)
    assert deployment.folder.stat().st_mode & 0o777 == 0o700


def test_run_of_a_server_that_is_gone_is_not_watched(deploy: Deploy) -> None:
    deployment = deploy()
    DeploymentProgress(deployment.server, 3).save()  # as a loop that has not ended yet
    assert is_running_loop(deployment)
    with pytest.raises(UserError, match="no server answers"):
        ask_for_run(deployment)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (False, "the server ended after round 0; start it again with idiolect deploy up"),
        (True, "the server's loop ended after round 0 and could not say why"),
    ],
)
def test_run_that_was_cut_off_says_how_to_go_on(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, server: bool, sentence: str
) -> None:
    deployment = deploy()
    with monkeypatch.context() as patch:
        patch.setattr("idiolect.deploy.progress.start_of_process", lambda process: "before the last boot")
        DeploymentProgress(deployment.server, 3).save()
    monkeypatch.setattr("idiolect.deploy.status.running", lambda deployment: {"server": 1} if server else {})
    with pytest.raises(UserError, match=sentence) as refused:
        watch(deployment, lambda found: None)
    assert "go on with idiolect deploy run" in str(refused.value)


STRANGER = """
import encodings.idna, json, os, ssl, stringprep, sys, urllib.error, urllib.request
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
trusting = ssl.create_default_context()
trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
answers = []
for path in ("control/list-runs", "control/start-run", "control/register-node", "runtime/acquire-task"):
    kind = {{"content-type": "application/x-protobuf"}}
    request = urllib.request.Request(f"https://{address}/v1/{{path}}", data=b"", headers=kind)
    try:
        answers.append(urllib.request.urlopen(request, context=trusting, timeout=20).status)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
try:
    answers.append(open("{token}").read())
except OSError as error:
    answers.append(type(error).__name__)
print(json.dumps([os.getuid(), answers]))
"""


@pytest.mark.slow
def test_another_user_of_the_servers_machine_commands_nothing(deploy: Deploy) -> None:
    """As root the stranger is the user nobody; elsewhere it is this account without the token."""
    deployment = deploy(DeploymentOptions(wait=15, grace=1, min_sites=1), rounds=1, local_epochs=100)
    up(deployment, 1)
    token = deployment.server / "flower" / "control-token"
    words = STRANGER.format(nobody=NOBODY, address=deployment.local_address, token=token)
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    user, answers = json.loads(done.stdout)
    assert answers[:4] == [403] * 4
    if os.geteuid() == 0:
        assert user == NOBODY and answers[4] == "PermissionError"
    with start_run(deployment) as run:
        wait_for(site_says(deployment, 0, "train, round 1"), "the first round")
        commands = deployment_processes(deployment.folder).values()
        (loop,) = (command for command in commands if "flwr-serverapp" in command)
        assert "--token-file /dev/stdin" in loop
        assert not any("--token " in command for command in commands)
        assert not any(token.read_text() in command for command in commands)
        _, errors = run.communicate(timeout=150)
    assert run.returncode == 0, errors
    assert idiolect("deploy", "down", deployment.folder).returncode == 0


@pytest.mark.slow
def test_server_whose_guard_lets_strangers_in_does_not_start(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy()
    make_control_token(deployment.server / "flower")
    words = (
        "from idiolect.deploy import guarded_superlink\n"
        "guarded_superlink.Guard._allows = lambda self, scope: True\n"
        "guarded_superlink.main()\n"
    )
    port = deployment.address.rpartition(":")[2]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            words,
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--isolation",
            "process",
        ],
        env={**os.environ, "FLWR_HOME": str(deployment.server / "flower"), "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "was not refused, so the server does not start" in done.stderr + done.stdout
