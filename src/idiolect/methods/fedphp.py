"""FedPHP: federated personalisation with inherited private models."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, inherited_teacher

__all__ = ["fedphp"]


def fedphp(
    transfer: str = "mmd",
    transfer_weight: float = 0.01,
    temperature: float = 4.0,
    kd_form: str = "kl",
    momentum: float = 0.9,
    schedule: str = "mu_a",
    momentum_max: float = 1.0,
    hpm_init: str = "lazy",
    inference: str = "hpm",
    counter: str = "before",
) -> Method:
    """Each client inherits its own history: a moving average of its local models, which also teaches.

    Li, Zhan, Shao, Li, Song, ECML-PKDD 2021.

    Args:
        transfer: ``mmd`` (default), ``kd``, ``l2`` or ``prox``.
        transfer_weight: lambda in [0, 1]; 0.01 on the CIFAR scenes, 0.1 on FEMNIST.
        temperature: tau > 0 of ``kd``; the paper gives none, 4 is MAP's.
        kd_form: of ``kd``: ``kl`` (the paper), ``teacher_only`` (the authors' code), ``soft_cross_entropy`` or
            ``kl_elements``.
        momentum: mu in [0, 1].
        schedule: ``mu_a`` (default), ``mu_b`` or ``mu_c`` of table 2.
        momentum_max: upper clip of mu_k; 1 in the paper, 0.9 in the authors' code.
        hpm_init: ``lazy`` or ``theta0``; the paper does not say, and its scenes take ``theta0``, as the authors' code
            does.
        inference: ``hpm``, ``personalised`` or ``ensemble`` (figure 8).
        counter: whether ``mu_a`` reads the client's selections ``before`` (algorithm 1, the authors' code) or
            ``after`` (section 3.2) the present one is counted.
    """
    part = inherited_teacher(
        transfer,
        transfer_weight,
        temperature,
        kd_form,
        momentum,
        schedule,
        momentum_max,
        hpm_init,
        inference=inference,
        counter=counter,
    )
    return chain(average(), part, name="fedphp")


presets: dict[str, dict[str, Any]] = {
    "paper": {
        "transfer": "mmd",
        "transfer_weight": 0.01,
        "kd_form": "kl",
        "momentum": 0.9,
        "schedule": "mu_a",
        "momentum_max": 1.0,
        "inference": "hpm",
    },
    "official": {"kd_form": "teacher_only", "momentum_max": 0.9, "hpm_init": "theta0"},
}
