"""Students of a frozen teacher at every point of a grid; the best on validation data stays (PersFL).

A <- O;  min (1 - lambda) CE(y, sigma(A)) + lambda T^2 KL(sigma(O/T) || sigma(A/T))      eq. (3)
PersFL-GD: the cross-entropy CE(sigma(O/T), sigma(A/T)) in place of KL                   eq. (7)
(lambda, T) by validation accuracy, ties to the smaller lambda, then to the smaller T
Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from idiolect.core import Batch, Flats, Loss, Model, Out, Results, Slot, Stage, Trees, View
from idiolect.core.measures import validation
from idiolect.core.trees import where
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.parts.distillation import FORMS

__all__ = ["StudentGrid", "grid_of"]


def grid_of(lambdas: tuple[float, ...], temperatures: tuple[float, ...]) -> list[tuple[float, float]]:
    """(lambda, T) in the order in which ties are won; T has no effect at lambda = 0 and is 1 there.

    >>> grid_of((0.0, 0.5), (1.0, 5.0))
    [(0.0, 1.0), (0.5, 1.0), (0.5, 5.0)]
    """
    found = {(weight, 1.0 if weight == 0 else t) for weight, t in product(lambdas, temperatures)}
    return sorted(found)


@dataclass(frozen=True)
class StudentGrid:
    """Distils one student for each point, scores it, and picks one.

    Args:
        lambdas, temperatures, epochs, lr_scale, soft_loss: see ``optimal_teacher``.
    """

    lambdas: tuple[float, ...]
    temperatures: tuple[float, ...]
    epochs: float
    lr_scale: float
    soft_loss: str

    def __post_init__(self) -> None:
        if not self.points:
            raise UserError("lambdas and temperatures need at least one value each")
        for weight, temperature in self.points:
            refuse_outside("lambda", weight, 0, 1)
            refuse_outside("temperature (T)", temperature, 1e-6)
        refuse_outside("epochs", self.epochs, 0)
        refuse_outside("lr_scale", self.lr_scale, 0)
        refuse_unknown_choice("soft_loss", self.soft_loss, ("kl", "soft_cross_entropy", "kl_elements"))

    @property
    def points(self) -> list[tuple[float, float]]:
        return grid_of(tuple(self.lambdas), tuple(self.temperatures))

    def stages(self, owner: str, teacher: Callable[[View], Model]) -> tuple[Stage, ...]:
        """For each point a stage that distils and one that scores the student on the validation split."""
        found: list[Stage] = []
        for weight, temperature in self.points:
            student = self._distil(owner, teacher, weight, temperature)
            found += [student, Stage(f"valid {student.name}", owner, measure=validation(), split="valid")]
        return tuple(found)

    def best(self, results: Results) -> Slot:
        """The student of the highest validation accuracy, and its point."""
        chosen: Slot = {}
        for weight, temperature in self.points:
            name = _name(weight, temperature)
            trained, accuracy = results[name], results[f"valid {name}"].measured["merit"]
            found = {
                "params": trained.params["model"],
                "buffers": trained.buffers["model"],
                "accuracy": accuracy,
                "lambda": torch.full_like(accuracy, weight),
                "temperature": torch.full_like(accuracy, temperature),
            }
            chosen = where(accuracy > chosen["accuracy"], found, chosen) if chosen else found
        return chosen

    def _distil(
        self, owner: str, teacher: Callable[[View], Model], weight: float, temperature: float
    ) -> Stage:
        def start(received: Trees, results: Results, view: View) -> Trees:
            model = teacher(view)
            return {"model": model.params}, {"model": model.buffers}

        def objective(view: View) -> Loss:
            def total(params: Flats, batch: Batch, out: Out) -> Tensor:
                wanted = view.predict(teacher(view), batch).logits
                hard = view.task.criterion(params, batch, out)
                soft = FORMS[self.soft_loss](out.logits, wanted, batch.mask, temperature)
                return (1 - weight) * hard + weight * soft

            return total

        return Stage(
            _name(weight, temperature),
            owner,
            start,
            objective,
            epochs=self.epochs,
            lr_scale=self.lr_scale,
            stream="distil",
        )


def _name(weight: float, temperature: float) -> str:
    return f"distil {weight:g} {temperature:g}"
