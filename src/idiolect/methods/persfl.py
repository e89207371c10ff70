"""PersFL and PersFL-GD: personalisation by distillation from each client's optimal teacher."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, optimal_teacher

__all__ = ["persfl", "persfl_gd"]

LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (1.0, 5.0, 25.0)


def persfl(
    lambdas: tuple[float, ...] = LAMBDAS,
    temperatures: tuple[float, ...] = TEMPERATURES,
    epochs: float = 20,
    lr_scale: float = 1.0,
    teacher: str = "optimal",
    soft_loss: str = "kl",
) -> Method:
    """FedAvg; every client keeps the shared model that suited it best, then distils its own model from it.

    Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191

    Args:
        lambdas: grid of the weight of the soft loss, in [0, 1].
        temperatures: grid of the temperature, > 0.
        epochs: of distillation for each grid point (the paper gives no number).
        lr_scale: of the scene's learning rate, in distillation.
        teacher: ``optimal`` or ``fedavg`` (the ablation of table 4).
        soft_loss: ``kl`` (eq. 3), or ``kl_elements`` (averaged over classes too).
    """
    part = optimal_teacher(lambdas, temperatures, epochs, lr_scale, teacher, soft_loss)
    return chain(average(), part, name="persfl")


def persfl_gd(
    lambdas: tuple[float, ...] = LAMBDAS,
    temperatures: tuple[float, ...] = TEMPERATURES,
    epochs: float = 20,
    lr_scale: float = 1.0,
    teacher: str = "optimal",
) -> Method:
    """PersFL with the soft-label cross-entropy in place of the divergence (generalised distillation, eq. 7).

    The two differ by the teacher's entropy, a constant: their gradients are the same.

    Args:
        lambdas, temperatures, epochs, lr_scale, teacher: as in PersFL.
    """
    part = optimal_teacher(lambdas, temperatures, epochs, lr_scale, teacher, "soft_cross_entropy")
    return chain(average(), part, name="persfl_gd")


gd_presets = {"paper": {"lambdas": LAMBDAS, "temperatures": TEMPERATURES, "teacher": "optimal"}}
presets = {"paper": {**gd_presets["paper"], "soft_loss": "kl"}}
