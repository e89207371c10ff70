"""Which site is behind which node of Flower's: known once a site has signed its answer to a greeting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from idiolect.deploy.keys import public_key
from idiolect.deploy.plan import Member

__all__ = ["Place", "Roster"]


class Place(NamedTuple):
    """Where a site is reached, until it goes or starts again."""

    node: int
    since: str


@dataclass
class Roster:
    """Args:
    members: the sites that the server knows.
    keys: the folder of their public keys.
    online: nodes that are connected, and since when.
    names: the site behind each node that has answered a greeting.
    """

    members: tuple[Member, ...]
    keys: Path
    online: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def key_of(self, name: str) -> ec.EllipticCurvePublicKey:
        return public_key(self.keys / f"{name}.pub")

    def strangers(self) -> list[int]:
        """Nodes that are connected and not known yet."""
        return [node for node in self.online if node not in self.names]

    def places(self) -> dict[str, Place]:
        """The sites that are connected; of several nodes of one site the latest counts."""
        found: dict[str, Place] = {}
        for node, since in sorted(self.online.items(), key=lambda item: item[1]):
            if node in self.names:
                found[self.names[node]] = Place(node, since)
        return found
