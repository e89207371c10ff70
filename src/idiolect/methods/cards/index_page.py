"""The table of all methods, one row each: idea, what is shared and private, traffic, state, what a round costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from idiolect.methods.cards.elsewhere import ELSEWHERE, elsewhere
from idiolect.methods.cards.method_card import KEPT, Card, card
from idiolect.methods.cards.traffic import SYMBOLS
from idiolect.methods.catalogue import METHODS

__all__ = ["index_page"]

INTRODUCTION = """\
All methods
===========

One row for each method with its default options; its page says more.  [Which method for me](../recommend.md) helps to
choose.  What the columns mean stands [below the table](#the-columns).
"""

EXPLANATIONS = f"""\
## The columns

Down and up: scalars that a selected client receives and sends in a round: {SYMBOLS}.

State is what is kept from round to round beside the shared model, "each" on the server's disk for each client.

What the server learns: of all methods it needs the weighted mean of the uploads; "single uploads" says that it reads
them one by one, so that secure aggregation cannot hide them, and "clients apart" that it also makes something for
each client and knows who is like whom.

Cost of a round: its seconds divided by those of a round of FedAvg, turn by turn in one process: the median, and the
range in brackets.  Local work, both ways of traffic and the work of the server count, scoring and the end of the run do
not.
"""

ELSEWHERE_SEEN = f"""\
Elsewhere: which of {", ".join(ELSEWHERE)} have a method of this name in their files; whether it is the same
method was not tried.
"""

COLUMNS = (
    "Method",
    "Idea",
    "Paper",
    "Shared",
    "Private",
    "Down",
    "Up",
    "State of a client",
    "State of the server",
    "The server learns",
    "Cost of a round",
    "Elsewhere",
)
SHARED = {"all": "all", "body": "all but the last unit", "head": "the last unit", "nothing": "nothing"}


def index_page(costs: Mapping[str, Any]) -> str:
    """Writes the Markdown page.

    Args:
        costs: what ``scripts/measure_costs.py`` wrote: ``ratios`` by method, and how they were measured.
    """
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    rows += [_row(card(name), costs["ratios"].get(name)) for name in METHODS]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([INTRODUCTION, table, "", EXPLANATIONS, *costs["measured"], "", ELSEWHERE_SEEN])


def _row(found: Card, ratio: Mapping[str, float] | None) -> tuple[str, ...]:
    made = METHODS[found.name].make()
    private = [words for part in made.parts if (words := KEPT.get(part.name, ("", ""))[1])]
    if found.up == "0":
        learns = "nothing"
    elif made.downloads:
        learns = "single uploads, clients apart"
    else:
        learns = "single uploads" if made.reads_single_uploads else "the mean"
    each = [f"{count} each" for count in found.kept_of_clients.values()]
    return (
        f"[{found.label}]({found.name}.md)",
        _phrase(found.idea),
        _paper(found.paper),
        SHARED[found.shared],
        "; ".join(dict.fromkeys(private)) or "nothing",
        found.down,
        found.up,
        _counts(found.client_keeps) or "0",
        ", ".join(filter(None, [_counts(found.server_keeps), *each])) or "0",
        learns,
        f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "not measured",
        ", ".join(elsewhere(found.name)) or "-",
    )


def _phrase(idea: str) -> str:
    """Returns the idea without its full stop, and without what a colon or brackets add at its end.

    >>> _phrase("A shared body and private heads, trained in turn: the head first.")
    'A shared body and private heads, trained in turn'
    """
    return re.split(r": | \(", idea)[0].removesuffix(".")


def _counts(kept: Mapping[str, str]) -> str:
    """Returns the numbers at the end of what is kept; words alone are of what comes at the end of the run."""
    found = [text.rpartition(": ")[2] for text in kept.values() if re.search(r"(^|: )[\dPKdn(]", text)]
    return " + ".join(found)


def _paper(text: str) -> str:
    """Returns authors, venue and year of a reference, linked to where it says the paper is.

    >>> _paper("Li et al., ICML 2021, https://arxiv.org/abs/2012.04221. More.")
    '[Li et al., ICML 2021](https://arxiv.org/abs/2012.04221)'
    >>> _paper("Yao, Huang, Sun, VCIP 2018.")
    'Yao, Huang, Sun, VCIP 2018'
    """
    before = re.split(r",? https?://", text)[0]
    named = re.match(r"(.*?\b(?:19|20)\d\d\b)", before)
    name = named[1] if named else before
    address = re.search(r"https?://\S+?(?=[.,;)]?(?:\s|$))", text)
    return f"[{name}]({address[0]})" if address else name
