"""A client's rows in a training loop of your own: the same rows that a run would train on.

python examples/own_training_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader

import idiolect

if __name__ == "__main__":
    torch.manual_seed(0)
    scene = {"clients": 10, "partition": "dirichlet_client(alpha=0.3)"}
    train, test = (idiolect.client_dataset(3, split, **scene) for split in ("train", "test"))
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for x, y in DataLoader(train, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
    x, y = test[:]
    print(f"alone, on {len(test)} test rows: {(net(x).argmax(1) == y).float().mean():.1%}")
