"""Letters between server and sites: a header, tensors, and a signature over both from end to end.

Flower's own signature covers the time of a request and nothing of its content; whoever carries a letter can neither
change it nor write one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from idiolect.errors import UserError

__all__ = ["Letter", "Sealed", "Tampered", "opened", "sealed"]

DOMAIN = b"idiolect letter 1\n"


class Tampered(UserError):
    """A letter that its sender did not write."""


class Letter(NamedTuple):
    header: dict[str, Any]
    tensors: dict[str, Tensor]


class Sealed(NamedTuple):
    """A letter as bytes."""

    header: bytes
    body: bytes
    signature: bytes


def sealed(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], key: ec.EllipticCurvePrivateKey
) -> Sealed:
    """Two messages may hold the same tensor, such as a client's weight; each is written by itself."""
    head = json.dumps(header, sort_keys=True).encode()
    body = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    return Sealed(head, body, key.sign(_signed(head, body), ec.ECDSA(hashes.SHA256())))


def opened(letter: Sealed, key: ec.EllipticCurvePublicKey, sender: str) -> Letter:
    """The letter, once its signature is found to be that of ``sender``.

    Raises:
        Tampered: it is not.
    """
    try:
        key.verify(letter.signature, _signed(letter.header, letter.body), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise Tampered(f"a message does not carry the signature of {sender}, so it is not read") from None
    try:
        return Letter(json.loads(letter.header), load(letter.body))
    except (ValueError, SafetensorError) as error:
        raise Tampered(f"a message of {sender} cannot be read: {error}") from None


def _signed(header: bytes, body: bytes) -> bytes:
    digests = (hashlib.sha256(piece).digest() for piece in (header, body))
    return DOMAIN + b"".join(digests)
