"""FedGen: data-free knowledge distillation by a generator of features."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, feature_generator

__all__ = ["fedgen"]


def fedgen(
    weight: float = 1.0,
    diversity: float = 1.0,
    steps: int = 50,
    learning_rate: float = 3e-3,
    samples: int = 32,
    noise: int = 32,
    width: int = 64,
) -> Method:
    """FedAvg whose clients also train their head on features of a generator, which the server learns from the heads.

    Zhu, Hong, Zhou, ICML 2021, https://arxiv.org/abs/2105.10056.  The code of the authors draws the noise from U(0, 1),
    weighs the ensemble by the clients' counts of each label, and gives clients a second term, the divergence from
    what they predict at generated features of their own labels; here all three are as in the paper's equations.

    On the demo scene it ends with the accuracy of FedAvg, and below Local: it too serves all clients by one model.

    Args:
        weight: alpha >= 0, of the clients' loss on generated features.
        diversity: eta >= 0, of the server's diversity loss.
        steps: >= 0, steps of the generator's training on the server in a round.
        learning_rate: >= 0, of Adam in these steps.
        samples: S >= 2, features generated in each step of a client or the server.
        noise: n >= 1, the length of the noise eps.
        width: >= 1, of the generator's hidden layer.
    """
    part = feature_generator(weight, diversity, steps, learning_rate, samples, noise, width)
    return chain(average(), part, name="fedgen")


presets = {
    "official": {
        "weight": 10.0,
        "diversity": 1.0,
        "steps": 50,
        "learning_rate": 3e-4,
        "samples": 32,
        "noise": 32,
        "width": 256,
    }
}
