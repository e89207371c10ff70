"""The worker of pfl-research: FederatedAveraging on its simulated backend, on a workload of the bench.

The row ``pfl`` runs one user after the other with all of torch's threads; ``two processes of pfl`` shares the users of
a round between two processes of one thread each, as its guide to fast simulations advises.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.machine_peaks import cuda_peak, synchronise
from idiolect.bench.native_network import values
from idiolect.bench.plain_loop_batches import blocks_of, cohort_of, round_batches
from idiolect.bench.plain_loops import PlainLoop
from idiolect.bench.roofline import Work, count_steps
from idiolect.bench.worker_protocol import BenchConnection, WorkerProcess, serve_row
from idiolect.bench.workloads import ENDLESS, LEARNING_RATE, MOMENTUM, BenchCell, bench_setting
from idiolect.experiments import Setting


class RoundGate:
    """Stops pfl's own loop between two rounds until the bench asks for the next one.

    Args:
        net: holds the shared model between rounds.
        others: the processes that train the rest of the cohort; they get every command as well.

    Attributes:
        work: counts the local steps.
        rounds: how many rounds are over.
    """

    def __init__(
        self, connection: BenchConnection, net: nn.Module, device: str, others: list[WorkerProcess]
    ) -> None:
        self.connection, self.net, self.device, self.others = connection, net, device, others
        self.work, self.began, self.counted, self.rounds = Work(), 0.0, 0, 0

    def open(self, **facts: Any) -> None:
        """Describes the row and waits for its first round."""
        for other in self.others:
            other.answer()
        self.connection.answer(phases=["round"], **facts)
        self.wait()

    def turn(self) -> bool:
        """Reports a finished round; returns whether there is another."""
        synchronise(self.device)
        seconds = time.perf_counter() - self.began
        steps, self.counted = self.work.steps - self.counted, self.work.steps
        self.rounds += 1
        steps += sum(other.answer()["steps"] for other in self.others)
        self.connection.answer(seconds=seconds, steps=steps, cuda=cuda_peak(self.device))
        return self.wait()

    def wait(self) -> bool:
        """Waits for the next command; returns whether it asks for another round."""
        while (command := self.connection.next()) is not None and command["do"] == "save":
            np.savez(command["path"], *(value.detach().cpu().numpy() for value in values(self.net)))
            self.connection.answer()
        self.began = time.perf_counter()
        for other in self.others:
            if command is None:
                other.hang_up()
            else:
                other.tell(command)
        return command is not None


class _Model(nn.Module):
    """The network with the two methods that pfl requires."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        from pfl.metrics import Weighted  # noqa: PLC0415 - not installed with the library

        return {"loss": Weighted(self.loss(x, y).item() * len(x), len(x))}


def serve_pair(cell: BenchCell, connection: BenchConnection) -> None:
    """Serves as the first of two processes; the second is its child."""
    torch.set_num_threads(1)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    os.environ.update(PFL_WORKER_ADDRESSES=f"localhost:{port},localhost:{port + 1}", PFL_WORKER_RANK="1")
    row = {"cell": asdict(cell), "runner": "pfl", "threads": 1}
    with WorkerProcess(row, [sys.executable, __file__]) as second:
        os.environ["PFL_WORKER_RANK"] = "0"
        serve(cell, connection, [second])


def serve(cell: BenchCell, connection: BenchConnection, others: list[WorkerProcess] | None = None) -> None:
    """Runs pfl's own loop of rounds, with the gate as its callback."""
    from pfl.aggregate.simulate import SimulatedBackend  # noqa: PLC0415
    from pfl.algorithm.base import NNAlgorithmParams  # noqa: PLC0415
    from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: PLC0415
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # noqa: PLC0415
    from pfl.model.pytorch import PyTorchModel  # noqa: PLC0415

    setting = bench_setting(cell, "fedavg")
    net = PlainLoop(setting).net.train()
    gate = RoundGate(connection, net, cell.device, others or [])
    facts = {"parameters": setting.n_parameters, "engine": "pfl", "version": version("pfl")}
    model = PyTorchModel(
        model=_Model(net),
        local_optimizer_create=lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=MOMENTUM),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    users = _users(setting, gate)
    train = NNTrainHyperParams(
        local_batch_size=cell.batch_size, local_num_epochs=1, local_learning_rate=LEARNING_RATE
    )
    with count_steps(gate.work, LEARNING_RATE):
        FederatedAveraging().run(
            NNAlgorithmParams(ENDLESS, ENDLESS, cell.clients, None),
            SimulatedBackend(users, users),
            model,
            train,
            NNEvalHyperParams(local_batch_size=cell.samples),
            callbacks=[_callback(gate, facts)],
        )


def _users(setting: Setting, gate: RoundGate) -> Any:
    """Returns the clients that the library selects, as pfl's federated dataset.

    The first round, which is never timed, reads their images in the order of the plain loop, so that the models can be
    compared; later rounds read them in the order in which they are stored.
    """
    from pfl.data.federated_dataset import FederatedDataset  # noqa: PLC0415
    from pfl.data.pytorch import PyTorchTensorDataset  # noqa: PLC0415

    x, y = setting.work.x, setting.work.y
    first = {c: torch.cat([rows for rows, _ in s["main"]]) for c, s in round_batches(setting, 0).items()}
    blocks = blocks_of(setting)
    drawn = (client for round in range(ENDLESS) for client in cohort_of(setting, round))

    def dataset(client: int) -> Any:
        rows = blocks[client] if gate.rounds else first[client]
        return PyTorchTensorDataset((x[rows], y[rows]))

    return FederatedDataset(dataset, lambda: next(drawn))


def _callback(gate: RoundGate, facts: dict[str, Any]) -> Any:
    from pfl.callback.base import TrainingProcessCallback  # noqa: PLC0415
    from pfl.metrics import Metrics  # noqa: PLC0415

    class Callback(TrainingProcessCallback):  # type: ignore[misc]
        def on_train_begin(self, *, model: Any) -> Any:
            gate.open(**facts)
            return Metrics()

        def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> Any:
            return not gate.turn(), Metrics()

    return Callback()


def _serve(cell: BenchCell, runner: str, connection: BenchConnection) -> None:
    if runner == "pfl":
        serve(cell, connection)
    else:
        serve_pair(cell, connection)


if __name__ == "__main__":
    serve_row(_serve)
