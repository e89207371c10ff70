"""The datasets that live in files, by name.

The md5 sums are those their homes or their best-known readers publish.  They guard downloads;
a file that is merely read may be another compression of the same content, so it is parsed, not compared.
"""

from __future__ import annotations

from idiolect.data.classic_sources import CLASSIC
from idiolect.data.federated_sources import FEDERATED
from idiolect.data.source import KnownFile, Source

__all__ = ["SOURCES", "KnownFile", "Source"]

SOURCES: dict[str, Source] = {source.name: source for source in CLASSIC + FEDERATED}
