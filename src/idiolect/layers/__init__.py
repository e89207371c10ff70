"""Layers in forms that batch over clients, each beside its plain meaning."""

from idiolect.layers.forms import BatchedLayers
from idiolect.layers.warm_up import warm_up

__all__ = ["BatchedLayers", "warm_up"]
