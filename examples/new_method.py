"""A new method out of known ideas: FedPer's private head, FedProx's anchor and MAP's inherited private model.

python examples/new_method.py
"""

import idiolect
from idiolect.core import Method, chain
from idiolect.parts import average, inherited_model, private_layers, proximal
from idiolect.reports import plain_rows, summarise


def heirs(count: int = 1, weight: float = 0.01) -> Method:
    """Trains private heads on a shared body that stays near the received one, and a private model that inherits."""
    return chain(average(), private_layers(count), proximal(weight), inherited_model(), name="heirs")


if __name__ == "__main__":
    idiolect.register("heirs", heirs, label="Heirs")
    small = {"model": "mlpnet(hidden=16)", "clients": 6, "rounds": 2, "local_epochs": 1, "quiet": True}
    done = idiolect.compare(["fedper", "heirs", "heirs(weight=0.1)"], **small)
    for row in plain_rows(summarise(done.runs)):
        print("  ".join(f"{cell:<20}" for cell in row[:5]))
