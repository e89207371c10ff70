"""Flower's own FedAvg, with its own SuperNodes, on the same payload: what our loop is measured against."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from idiolect.deploy.processes import (
    deployment_processes,
    flower_environment,
    flower_program,
    free_port,
    stop_processes,
)

from ..child_process import child_process

__all__ = ["seconds_of_rounds"]

PROJECT = """[project]
name = "baseline"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "baseline"

[tool.flwr.app.components]
serverapp = "baseline_app:server"
clientapp = "baseline_app:client"

[tool.flwr.app.config]
out = ""
parameters = 1
rounds = 1
"""

MODULE = """
import json
import time

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


@client.train()
def train(message, context):
    arrays = message.content["arrays"].to_torch_state_dict()
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    def __init__(self, out, **options):
        super().__init__(**options)
        self.out, self.began = out, []

    def configure_train(self, server_round, *arguments):
        self.began.append(time.perf_counter())
        return super().configure_train(server_round, *arguments)

    def aggregate_train(self, *arguments):
        found = super().aggregate_train(*arguments)
        self.began.append(time.perf_counter())
        with open(self.out, "w") as file:
            json.dump([b - a for a, b in zip(self.began[::2], self.began[1::2])], file)
        return found


@server.main()
def main(grid, context):
    config = context.run_config
    strategy = Timed(config["out"], fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    initial = ArrayRecord({"w": torch.zeros(config["parameters"])})
    strategy.start(grid, initial, num_rounds=config["rounds"])
"""


def seconds_of_rounds(folder: Path, parameters: int, rounds: int) -> list[float]:
    """Seconds of each round, from its configuration to its aggregate."""
    app, out, port = folder / "app", folder / "seconds.json", free_port()
    app.mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "baseline_app.py").write_text(MODULE)
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "b"\n\n[superlink.b]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    link = ["--insecure", "--port", str(port), "--disable-runtime-dependency-installation"]
    commands = [[flower_program("flower-superlink"), *link]]
    for _ in range(3):
        node = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
        commands.append([flower_program("flower-supernode"), *node])
    with ExitStack() as processes, open(folder / "baseline.log", "ab") as log:
        processes.callback(_end_what_they_started, folder)
        for command in commands:
            started = child_process(command, env=flower_environment(folder, folder), stdout=log, stderr=log)
            processes.enter_context(started)
            time.sleep(3)
        config = f'out="{out}" parameters={parameters} rounds={rounds}'
        words = [flower_program("flwr"), "run", str(app), "b", "-c", config]
        subprocess.run(
            words, env=flower_environment(folder, folder), check=True, capture_output=True, timeout=120
        )
        until = time.monotonic() + 60 * rounds
        while time.monotonic() < until:
            found = json.loads(out.read_text()) if out.exists() and out.stat().st_size else []
            if len(found) == rounds:
                return found
            time.sleep(0.5)
        raise AssertionError(f"the baseline did not end; see {folder}")


def _end_what_they_started(folder: Path) -> None:
    stop_processes(folder)
    assert deployment_processes(folder) == {}
