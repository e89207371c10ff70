"""The tiny federation with some of its data replaced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from idiolect.experiments.setting import Setting

__all__ = ["with_data", "with_other_test_data"]


def with_data(setting: Setting, x: np.ndarray, y: np.ndarray) -> Setting:
    """The same clients and rows over other examples."""
    federation = replace(setting.federation, x=x, y=y)
    work = replace(
        setting.work, federation=federation, x=torch.from_numpy(x).to(setting.work.x), y=torch.from_numpy(y)
    )
    return replace(setting, federation=federation, work=work)


def with_other_test_data(setting: Setting, shift: int) -> Setting:
    """Every client's test rows become noise with other labels, and so does the server's test set."""
    federation, random = setting.federation, np.random.default_rng(shift)
    x, y = federation.x.copy(), federation.y.copy()
    for client in federation.clients:
        x[client.test] = random.normal(size=x[client.test].shape)
        y[client.test] = (y[client.test] + shift) % federation.n_classes
    other = with_data(setting, x, y)
    noise = random.normal(size=federation.server_x.shape).astype(np.float32)
    labels = (federation.server_y + shift) % federation.n_classes
    return replace(other, federation=replace(other.federation, server_x=noise, server_y=labels))
