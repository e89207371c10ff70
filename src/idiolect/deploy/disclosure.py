"""What must be said of a method before it starts at real sites."""

from __future__ import annotations

from idiolect.core import Method

__all__ = ["individual_uploads"]


def individual_uploads(method: Method) -> str:
    """The sentence about a method whose server looks at single uploads; nothing of one that looks at means alone."""
    parts = [part.name for part in method.parts if part.individual]
    if not parts:
        return ""
    return (
        f"{method.name} looks at each site's upload by itself, not only at their mean ({', '.join(parts)}): the server "
        "keeps and uses what a single site sent"
    )
