"""A network of your own: any torch module, trained by any method.

python examples/own_network.py
"""

from torch import nn

import idiolect


def small_net(input_shape, outputs, width=4):
    """Builds a network for the shape of a row and the number of classes."""
    channels, *_ = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, width, 5, stride=3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * width, outputs),
    )


if __name__ == "__main__":
    idiolect.register_model("small_net", small_net)
    small = {"model": "small_net(width=2)", "clients": 6, "rounds": 2, "local_epochs": 1, "quiet": True}
    print(idiolect.compare(["fedavg", "fedper"], **small))
