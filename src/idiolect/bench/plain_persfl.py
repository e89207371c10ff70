"""PersFL as a plain loop: FedAvg whose every new model all clients score, then distillation from the best one.

Both stages: ``round`` is a round of FedAvg and the scoring, ``end`` the distillation of every client.  The grid is
one point and the distillation one epoch; a longer grid repeats the same work.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.lessons import Lesson, Lessons
from idiolect.bench.plain import Plain, State, copied
from idiolect.bench.plain_map import distilled
from idiolect.experiments import Setting

__all__ = ["METHOD", "PlainPersFL"]

METHOD = "persfl(lambdas=(0.5,), temperatures=(5.0,), epochs=1)"
LAMBDA, TEMPERATURE = 0.5, 5.0
DISTIL = "distil 0.5 5"  # the stages' names in the plan
SCORE, VALID = "score", f"valid {DISTIL}"


class PlainPersFL(Plain):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.teacher = self.new_net(setting).eval()
        self.best: dict[int, float] = {}
        self.teachers: dict[int, State] = {}
        self.students: dict[int, State] = {}

    def round(self, lessons: Lessons) -> None:
        super().round({client: stages for client, stages in lessons.items() if "main" in stages})
        self.net.load_state_dict(self.shared)
        for client, stages in lessons.items():
            loss, _ = self.scored(stages[SCORE])
            if loss < self.best.get(client, float("inf")):
                self.best[client], self.teachers[client] = loss, self.shared

    def end(self, lessons: Lessons) -> None:
        for client, stages in lessons.items():
            self.teacher.load_state_dict(self.teachers[client])
            self.net.load_state_dict(self.teachers[client])
            self.train(stages[DISTIL], self.taught)
            self.scored(stages[VALID])
            self.students[client] = copied(self.net)

    def taught(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x)
        logits = net(x)
        return (1 - LAMBDA) * F.cross_entropy(logits, y) + LAMBDA * distilled(logits, wanted, TEMPERATURE)

    def scored(self, lessons: list[Lesson]) -> tuple[float, float]:
        """Mean loss and accuracy of ``net`` on validation rows."""
        self.net.eval()
        loss = hits = rows_read = 0.0
        with torch.no_grad():
            for rows, _ in lessons:
                logits, y = self.net(self.x[rows]), self.y[rows]
                loss += F.cross_entropy(logits, y, reduction="sum").item()
                hits += (logits.argmax(1) == y).sum().item()
                rows_read += len(rows)
        return loss / rows_read, hits / rows_read
