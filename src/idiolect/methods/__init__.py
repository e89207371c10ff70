"""Methods: one published method per file, a chain of parts with defaults that train and presets from the papers."""

from idiolect.methods.cards import (
    PERSONALISES,
    Card,
    Explanation,
    Pair,
    card,
    explain,
    explanation_page,
    index_page,
    method_pairs,
    of_kind,
    page,
    pairs,
    pairs_page,
)
from idiolect.methods.catalogue import label, names, register, register_part, without_classes
from idiolect.methods.method_text import method, own_sources, resolved, shortest

__all__ = [
    "PERSONALISES",
    "Card",
    "Explanation",
    "Pair",
    "card",
    "explain",
    "explanation_page",
    "index_page",
    "label",
    "method",
    "method_pairs",
    "names",
    "of_kind",
    "own_sources",
    "page",
    "pairs",
    "pairs_page",
    "register",
    "register_part",
    "resolved",
    "shortest",
    "without_classes",
]
