"""pfl-research on the same workload: FederatedAveraging on its simulated backend.

``serve`` runs one user after the other with all of torch's threads; ``serve_pair`` shares the users of a round between
two processes of one thread each, as its guide to fast simulations advises.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.cell import LEARNING_RATE, MOMENTUM, Cell
from idiolect.bench.gate import Gate
from idiolect.bench.lessons import blocks_of, cohort_of, round_lessons
from idiolect.bench.plain import Plain
from idiolect.bench.process import Process
from idiolect.bench.setting import ENDLESS, setting_of
from idiolect.bench.turnstile import Turnstile
from idiolect.bench.work import count_steps
from idiolect.experiments import Setting

__all__ = ["serve", "serve_pair"]


class _Model(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        from pfl.metrics import Weighted  # noqa: PLC0415 - not installed with the library

        return {"loss": Weighted(self.loss(x, y).item() * len(x), len(x))}


def serve_pair(cell: Cell, turnstile: Turnstile) -> None:
    """The first of two processes; the second is its child."""
    torch.set_num_threads(1)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    os.environ.update(PFL_WORKER_ADDRESSES=f"localhost:{port},localhost:{port + 1}", PFL_WORKER_RANK="1")
    with Process({"cell": asdict(cell), "runner": "pfl", "threads": 1}) as second:
        os.environ["PFL_WORKER_RANK"] = "0"
        serve(cell, turnstile, [second])


def serve(cell: Cell, turnstile: Turnstile, others: list[Process] | None = None) -> None:
    """Runs pfl's own loop of rounds."""
    from pfl.aggregate.simulate import SimulatedBackend  # noqa: PLC0415
    from pfl.algorithm.base import NNAlgorithmParams  # noqa: PLC0415
    from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: PLC0415
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # noqa: PLC0415
    from pfl.model.pytorch import PyTorchModel  # noqa: PLC0415

    setting = setting_of(cell, "fedavg")
    net = Plain(setting).net.train()
    gate = Gate(turnstile, net, cell.device, others or [])
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


def _users(setting: Setting, gate: Gate) -> Any:
    """Clients by the library's own selection.

    The first round, never timed, reads their images in the order of the plain loop, so that the models can be
    compared; the later ones read them as they lie.
    """
    from pfl.data.federated_dataset import FederatedDataset  # noqa: PLC0415
    from pfl.data.pytorch import PyTorchTensorDataset  # noqa: PLC0415

    x, y = setting.work.x, setting.work.y
    first = {c: torch.cat([rows for rows, _ in s["main"]]) for c, s in round_lessons(setting, 0).items()}
    blocks = blocks_of(setting)
    drawn = (client for round in range(ENDLESS) for client in cohort_of(setting, round))

    def dataset(client: int) -> Any:
        rows = blocks[client] if gate.rounds else first[client]
        return PyTorchTensorDataset((x[rows], y[rows]))

    return FederatedDataset(dataset, lambda: next(drawn))


def _callback(gate: Gate, facts: dict[str, Any]) -> Any:
    from pfl.callback.base import TrainingProcessCallback  # noqa: PLC0415
    from pfl.metrics import Metrics  # noqa: PLC0415

    class Callback(TrainingProcessCallback):  # type: ignore[misc]
        def on_train_begin(self, *, model: Any) -> Any:
            gate.open(**facts)
            return Metrics()

        def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> Any:
            return not gate.turn(), Metrics()

    return Callback()
