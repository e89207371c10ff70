"""Method cards: what a method is, made from its signature, its docstrings and a round without steps."""

from idiolect.methods.cards.combinations import Pair, pairs, pairs_page
from idiolect.methods.cards.facts import PERSONALISES, Card, card, of_kind
from idiolect.methods.cards.pages import page

__all__ = ["PERSONALISES", "Card", "Pair", "card", "of_kind", "page", "pairs", "pairs_page"]
