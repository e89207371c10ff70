"""FedEM: federated expectation-maximisation for mixtures of distributions."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import component_mixture

__all__ = ["fedem"]


def fedem(components: int = 3) -> Method:
    """Clients share several models, and each mixes what they predict in the shares in which they explain its data.

    The mixture is one of probabilities; a version that mixes logits is another model.

    Marfoq, Neglia, Bellet, Kameni, Vidal, NeurIPS 2021, https://arxiv.org/abs/2108.10252

    Args:
        components: M >= 1 models.
    """
    return chain(component_mixture(components), name="fedem")


presets = {"paper": {"components": 3}}
