"""The FedOpt family: FedAvgM, FedAdagrad, FedAdam and FedYogi."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import server_optimiser

__all__ = ["fedadagrad", "fedadam", "fedavgm", "fedyogi"]


def fedavgm(learning_rate: float = 1.0, momentum: float = 0.9, nesterov: bool = False) -> Method:
    """FedAvg with momentum on the server.

    Hsu, Qi, Brown 2019, https://arxiv.org/abs/1909.06335

    Args:
        learning_rate: eta_s of the server.
        momentum: beta in [0, 1); 0 with rate 1 is FedAvg.
        nesterov: looks ahead along the momentum.
    """
    part = server_optimiser("momentum", learning_rate, momentum, nesterov=nesterov)
    return chain(part, name="fedavgm")


def fedadagrad(learning_rate: float = 0.03, tau: float = 1e-3) -> Method:
    """FedAvg with Adagrad on the server.

    Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295

    Args:
        learning_rate: eta_s; the paper searches powers of ten.
        tau: degree of adaptivity.
    """
    return chain(server_optimiser("adagrad", learning_rate, 0.0, tau=tau), name="fedadagrad")


def fedadam(
    learning_rate: float = 0.03, beta_one: float = 0.9, beta_two: float = 0.99, tau: float = 1e-3
) -> Method:
    """FedAvg with Adam on the server, without bias correction.

    Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295

    Args:
        learning_rate: eta_s; the paper searches powers of ten.
        beta_one, beta_two: of the moments.
        tau: degree of adaptivity.
    """
    return chain(server_optimiser("adam", learning_rate, beta_one, beta_two, tau), name="fedadam")


def fedyogi(
    learning_rate: float = 0.03, beta_one: float = 0.9, beta_two: float = 0.99, tau: float = 1e-3
) -> Method:
    """FedAvg with Yogi on the server.

    Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295

    Args:
        learning_rate: eta_s; the paper searches powers of ten.
        beta_one, beta_two: of the moments.
        tau: degree of adaptivity.
    """
    return chain(server_optimiser("yogi", learning_rate, beta_one, beta_two, tau), name="fedyogi")


fedavgm_presets = {"paper": {"learning_rate": 1.0, "momentum": 0.9}}
fedadagrad_presets = {"paper": {"tau": 1e-3}}
moments_presets = {"paper": {"beta_one": 0.9, "beta_two": 0.99, "tau": 1e-3}}
