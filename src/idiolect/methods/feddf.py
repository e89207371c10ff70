"""FedDF: ensemble distillation for robust model fusion."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, ensemble_distillation

__all__ = ["feddf"]


def feddf(steps: int = 100, learning_rate: float = 1e-4, weight_decay: float = 0.0, every: int = 1) -> Method:
    """FedAvg, then the server distils the clients' mean logits on public inputs without labels.

    Lin et al., NeurIPS 2020, https://arxiv.org/abs/2006.07242.  Public inputs are taken out of the server's test set
    for every method of a comparison (setting ``public``, 500 unless set); ``public_in_test`` keeps them in, as MAP
    does.

    Args:
        steps: of distillation after each merge; at most 10 000 in the paper, which stops early.
        learning_rate: of Adam, cosine-annealed.
        weight_decay: of Adam.
        every: distils in every n-th round (2 in MAP's code).
    """
    distilled = ensemble_distillation(steps, learning_rate, weight_decay, every)
    return chain(average(), distilled, name="feddf")


presets = {
    "paper": {"steps": 10_000, "learning_rate": 1e-3, "every": 1},
    "official": {"steps": 300, "learning_rate": 1e-3, "weight_decay": 1e-6, "every": 2},
}
