"""FedPAC: feature alignment and classifier collaboration."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import alternating_layers, average, class_prototypes, classifier_collaboration

__all__ = ["fedpac"]


def fedpac(weight: float = 1.0, head_epochs: float = 1, head_lr_scale: float = 1.0) -> Method:
    """A shared body whose features all clients align class by class, under classifiers mixed for each client.

    A client trains its classifier with the body frozen, then the body with the classifier frozen, for the scene's local
    epochs; there its features are pulled towards the shared mean feature of their class.

    A version that shuffles the cohort between its statistics and its classifiers gives clients the weights of others;
    here both travel in one message.  Another averages the features of a class without counting the samples behind them.

    Xu, Tong, Huang, ICLR 2023, https://arxiv.org/abs/2306.11867

    Args:
        weight: lambda >= 0 of the squared distance, by dimension, to the mean feature of the class.
        head_epochs: >= 0 of the classifier in a round.
        head_lr_scale: >= 0 of the classifier's learning rate, times the scene's.
    """
    return chain(
        average(),
        alternating_layers(1, head_epochs, None, "shared", head_lr_scale),
        class_prototypes(weight),
        classifier_collaboration(),
        name="fedpac",
    )


presets = {"paper": {"weight": 1.0, "head_epochs": 1}}
