"""MAP as a plain loop: restricted softmax, upload, then distillation from the client's inherited model.

The options are ``map``'s defaults with ``hpm_init=theta0``, so that every client has a teacher from the start and
each private step makes the same two forward passes in every round.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.lessons import Lesson
from idiolect.bench.plain import Plain, State, copied
from idiolect.experiments import Setting

__all__ = ["METHOD", "PlainMap"]

METHOD = "map(hpm_init=theta0)"
ALPHA, WEIGHT, TEMPERATURE, MU = 0.9, 0.01, 4.0, 0.9


def distilled(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """tau^2 KL(sigma(teacher / tau) || sigma(student / tau)), averaged over rows."""
    log_student, log_teacher = (F.log_softmax(z / temperature, 1) for z in (student, teacher))
    return temperature**2 * F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


class PlainMap(Plain):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        missing = torch.from_numpy(setting.federation.class_counts() == 0).to(self.x)
        self.scales = 1 - (1 - ALPHA) * missing  # [clients, classes]
        self.teacher = self.new_net(setting).eval()
        self.inherited: dict[int, State] = {}
        self.seen: dict[int, int] = {}
        self.first = copied(self.net)
        self.selections = setting.experiment.participation_rate * setting.experiment.rounds

    def client(self, client: int, stages: dict[str, list[Lesson]], total: State) -> None:
        scale = self.scales[client]
        self.train(stages["main"], lambda net, x, y: F.cross_entropy(net(x) * scale, y))
        self.upload(total)
        old = self.inherited.get(client, self.first)
        self.teacher.load_state_dict(old)
        self.train(stages["private"], self.taught)
        mu = min(MU * self.seen.get(client, 0) / self.selections, 1.0)
        with torch.no_grad():
            self.inherited[client] = {
                name: (1 - mu) * value + mu * old[name] for name, value in self.net.state_dict().items()
            }
        self.seen[client] = self.seen.get(client, 0) + 1

    def taught(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x)
        logits = net(x)
        return (1 - WEIGHT) * F.cross_entropy(logits, y) + WEIGHT * distilled(logits, wanted, TEMPERATURE)
