"""The worker of Flower's simulation: its FedAvg strategy over Ray, with two actors of one core each."""

from __future__ import annotations

import json
import os
import time
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.plain_loop_batches import blocks_of
from idiolect.bench.plain_loops import PlainLoop
from idiolect.bench.roofline import Work, count_steps
from idiolect.bench.worker_protocol import BenchConnection, serve_row
from idiolect.bench.workloads import ENDLESS, LEARNING_RATE, MOMENTUM, BenchCell, bench_setting

ACTORS = 2
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


class HungUp(Exception):
    """Ends Flower's loop when the bench asks for no further round."""


@lru_cache(maxsize=1)
def _at_hand(text: str) -> tuple[nn.Module, Tensor, Tensor, list[slice]]:
    """Returns an actor's network and data, made at its first call."""
    torch.set_num_threads(1)
    setting = bench_setting(BenchCell(**json.loads(text)), "fedavg")
    return PlainLoop(setting).net, setting.work.x, setting.work.y, blocks_of(setting)


def train(message: Any, context: Any) -> Any:
    """Trains a client of Flower for one epoch over its images, from the model that it was sent."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict  # noqa: PLC0415

    config = message.content["config"]
    net, x, y, rows = _at_hand(config["cell"])
    mine = rows[context.node_config["partition-id"]]
    x, y, work = x[mine], y[mine], Work()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    with count_steps(work):
        for batch in torch.randperm(len(x), device=x.device).split(config["batch-size"]):
            optimiser.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": 1, "steps": work.steps})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def serve(cell: BenchCell, runner: str, connection: BenchConnection) -> None:
    """Runs Flower's own loop of rounds, which waits for the bench whenever a round is configured."""
    os.environ.update(QUIET)
    from flwr.app import ArrayRecord, ConfigRecord  # noqa: PLC0415 - not installed with the library
    from flwr.clientapp import ClientApp  # noqa: PLC0415
    from flwr.serverapp import ServerApp  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    clients, server = ClientApp(), ServerApp()
    clients.train()(train)
    setting = bench_setting(cell, "fedavg")
    initial = ArrayRecord(PlainLoop(setting).net.state_dict())
    parameters = setting.n_parameters
    del setting
    config = ConfigRecord({"cell": json.dumps(_fields(cell)), "batch-size": cell.batch_size})

    @server.main()
    def rounds(grid: Any, context: Any) -> None:
        strategy = _strategy(cell, connection, parameters)
        try:
            strategy.start(grid, initial, num_rounds=ENDLESS, train_config=config)
        except HungUp:
            return

    share = 1 / ACTORS if cell.device == "cuda" else 0.0
    run_simulation(
        server,
        clients,
        num_supernodes=cell.population,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": share},
            "init_args": {"num_cpus": ACTORS, "include_dashboard": False},
        },
    )


def _fields(cell: BenchCell) -> dict[str, Any]:
    return {name: value for name, value in cell.as_dict().items() if name != "model"}


def _strategy(cell: BenchCell, connection: BenchConnection, parameters: int) -> Any:
    from flwr.app import MetricRecord  # noqa: PLC0415
    from flwr.serverapp.strategy import FedAvg  # noqa: PLC0415

    def summed(replies: list[Any], weighted_by: str) -> Any:
        steps = sum(int(reply["metrics"]["steps"]) for reply in replies)
        return MetricRecord({"steps": steps})

    class Turnwise(FedAvg):
        began, steps = 0.0, 0

        def configure_train(self, server_round: int, *arguments: Any) -> Any:
            if server_round == 1:
                facts = {"parameters": parameters, "engine": f"flower, {ACTORS} actors", "reason": ""}
                connection.answer(phases=["round"], version=version("flwr"), **facts)
            else:
                connection.answer(seconds=time.perf_counter() - self.began, steps=self.steps)
            if connection.next() is None:
                raise HungUp
            self.began = time.perf_counter()
            return super().configure_train(server_round, *arguments)

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert metrics is not None
            self.steps = int(str(metrics["steps"]))
            return arrays, metrics

    return Turnwise(
        fraction_train=cell.clients / cell.population,
        fraction_evaluate=0.0,
        min_train_nodes=cell.clients,
        min_available_nodes=cell.population,
        train_metrics_aggr_fn=summed,
    )


if __name__ == "__main__":
    import flower_peer  # Ray pickles the client function by module name, which must not be __main__

    serve_row(flower_peer.serve)
