"""Methods: one published method per file, a chain of parts with the paper's defaults."""

from idiolect.methods.catalogue import Description, describe, label, method, names

__all__ = ["Description", "describe", "label", "method", "names"]
