"""Method cards, explanations of compositions, and the table of what can be combined with what."""

from idiolect.methods.cards.combinations import Pair, method_pairs, pairs, pairs_page
from idiolect.methods.cards.explanation import Explanation, explain, explanation_page
from idiolect.methods.cards.index_page import index_page
from idiolect.methods.cards.method_card import PERSONALISES, Card, card, of_kind, page

__all__ = [
    "PERSONALISES",
    "Card",
    "Explanation",
    "Pair",
    "card",
    "explain",
    "explanation_page",
    "index_page",
    "method_pairs",
    "of_kind",
    "page",
    "pairs",
    "pairs_page",
]
