"""Methods: one published method per file, a chain of parts with defaults that train and presets from the papers."""

from idiolect.methods.cards import (
    PERSONALISES,
    Card,
    Explanation,
    Pair,
    card,
    explain,
    explanation_page,
    method_pairs,
    of_kind,
    page,
    pairs,
    pairs_page,
)
from idiolect.methods.catalogue import label, names, register, without_classes
from idiolect.methods.method_text import method, resolved, shortest

__all__ = [
    "PERSONALISES",
    "Card",
    "Explanation",
    "Pair",
    "card",
    "explain",
    "explanation_page",
    "label",
    "method",
    "method_pairs",
    "names",
    "of_kind",
    "page",
    "pairs",
    "pairs_page",
    "register",
    "resolved",
    "shortest",
    "without_classes",
]
