"""Private normalisation: the layers of batch normalisation never leave the client (FedBN).

theta_{t+1} = sum_k p_k theta_t^k  over all layers but those of batch normalisation, whose scale, shift and running
statistics stay on client k                                    Li et al., ICLR 2021, algorithm 1
https://arxiv.org/abs/2102.07623
"""

from __future__ import annotations

from idiolect.core import Part, Structure
from idiolect.core.part import keeps_options
from idiolect.parts.private_layers import kept_layers

__all__ = ["private_normalisation"]


def normalises(name: str, structure: Structure) -> bool:
    return name in structure.batch_normalisation


@keeps_options
def private_normalisation() -> Part:
    """Every client has batch normalisation of its own, trained jointly with the layers that are shared.

    Deviations: none.  All clients start from the initial model's layers, as in the paper.  Group, layer and instance
    normalisation are shared like any other layer.  Without batch normalisation the part does nothing.  A newcomer
    trains its own normalisation alone, with the shared layers frozen.
    """
    return kept_layers(normalises, head_init="shared")._replace(name="private_normalisation")
