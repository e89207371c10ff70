"""Layers in forms that batch over clients, each beside its plain meaning."""

from idiolect.layers.forms import BatchedLayers

__all__ = ["BatchedLayers"]
