"""A hook of MkDocs: marks short code within text, such as ``--quick``, which the stylesheet then keeps on one line."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 30  # characters that fit beside the margins of a narrow screen
SHORT = re.compile(rf"<code>(?=[^<\n]{{1,{LONGEST}}}</code>)")


def on_page_content(html: str, **_: Any) -> str:
    return SHORT.sub('<code class="short">', html)
