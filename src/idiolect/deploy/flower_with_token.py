"""Runs one of Flower's programs on the server's machine with the token of the control interface.

``python -m idiolect.deploy.flower_with_token flwr run ...`` is ``flwr run ...``, each of whose calls carries the token.
Where the program is Flower's SuperExec, the tasks it starts run in the same way, and get the token of their task on
standard input: on the command line, where Flower puts it, every user of the machine could read it.

A task ends with the process that started it, also where Flower's own end of it waits for a lock without end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from flwr.supercore.constant import TASK_TYPE_TO_APPIO_API_ADDRESS_ARG, TASK_TYPE_TO_COMMAND
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult

from idiolect.deploy.control_token import TOKEN_HEADER, read_control_token

__all__ = ["command_with_token", "end_with", "launch_task", "send_token"]

LOOK_SECONDS = 0.2  # between looks at the process that started a task
END_SECONDS = 10.0  # that Flower has to end a task whose parent is gone


def command_with_token(*words: str) -> list[str]:
    """Returns the command line that runs a program of Flower's with the token; ``FLWR_HOME`` says where it lies."""
    return [sys.executable, "-m", "idiolect.deploy.flower_with_token", *words]


def send_token(token: str) -> None:
    """Has every client of Flower's that this process makes send the token."""
    whole = ProtobufClient.__init__

    def initialise(self: Any, *arguments: Any, **options: Any) -> None:
        whole(self, *arguments, **options)
        self._client.headers[TOKEN_HEADER] = token

    ProtobufClient.__init__ = initialise


def launch_task(executor: Any, task: ExecutionSpec) -> LaunchResult:
    """Starts the process of a task in the place of Flower's own function."""
    command = command_with_token(
        TASK_TYPE_TO_COMMAND[task.task_type],
        TASK_TYPE_TO_APPIO_API_ADDRESS_ARG[task.task_type],
        task.runtime_api_address,
        "--token-file",
        "/dev/stdin",
    )
    if task.insecure:
        command.append("--insecure")
    elif task.root_certificates_path is not None:
        command += ["--root-certificates", task.root_certificates_path]
    if task.parent_pid is not None:
        command += ["--parent-pid", str(task.parent_pid)]
    with tempfile.TemporaryFile() as secret:  # has no name, and goes with the processes that hold it open
        secret.write(task.token.encode())
        secret.flush()
        subprocess.Popen(command, stdin=secret)
    return LaunchResult.accepted()


def end_with(parent: int) -> None:
    """Ends this process when its parent has ended.

    Flower interrupts the main thread of a task then, which does not hear it while it waits for an object of a message.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        time.sleep(END_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Runs the program that the first argument names with the arguments after it."""
    if sys.argv[1] in TASK_TYPE_TO_COMMAND.values():
        end_with(os.getppid())
    send_token(read_control_token(Path(os.environ["FLWR_HOME"])))
    subprocess_executor.SubprocessExecutor.launch = launch_task
    sys.argv = sys.argv[1:]
    (program,) = entry_points(group="console_scripts", name=sys.argv[0])
    sys.exit(program.load()())


if __name__ == "__main__":
    main()
