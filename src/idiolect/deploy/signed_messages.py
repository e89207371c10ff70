"""Signed messages between server and sites, and how Flower carries them.

A message is a header, tensors, and its sender's signature over both.  Flower's own signature covers the time of a
request but not its content; with this one, nobody who carries a message can change it or write one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from idiolect.errors import UserError

__all__ = [
    "MESSAGE_TYPE",
    "OpenedMessage",
    "SignedMessage",
    "Tampered",
    "from_record",
    "seal",
    "sign",
    "to_record",
    "verify",
]

DOMAIN = b"idiolect letter 1\n"  # signed with every message; part of the wire format
NOT_OURS = "a message was not made by Idiolect, so it is not read"
MESSAGE_TYPE = "query"  # by which Flower finds the client's handler


class Tampered(UserError):
    """A message that its supposed sender did not write."""


class OpenedMessage(NamedTuple):
    """A message whose signature has been verified."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]


class SignedMessage(NamedTuple):
    """A message as the bytes that travel: JSON header, safetensors body, and the signature over both."""

    header: bytes
    body: bytes
    signature: bytes


def sign(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], key: ec.EllipticCurvePrivateKey
) -> SignedMessage:
    """Returns the message with its signature.

    Tensors are copied first, because safetensors refuses two names for one tensor, such as a client's weight.
    """
    head = json.dumps(header, sort_keys=True).encode()
    body = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    return seal(head, body, key)


def seal(header: bytes, body: bytes, key: ec.EllipticCurvePrivateKey) -> SignedMessage:
    """Returns the message of these bytes with its signature."""
    return SignedMessage(header, body, key.sign(_signed_bytes(header, body), ec.ECDSA(hashes.SHA256())))


def verify(message: SignedMessage, key: ec.EllipticCurvePublicKey, sender: str) -> OpenedMessage:
    """Returns the content of a message that carries the signature of ``sender``.

    Raises:
        Tampered: the signature is another, or the content cannot be read.
    """
    try:
        key.verify(message.signature, _signed_bytes(message.header, message.body), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise Tampered(f"a message does not carry the signature of {sender}, so it is not read") from None
    try:
        header, tensors = json.loads(message.header), load(message.body)
    except (ValueError, KeyError, RuntimeError, SafetensorError) as error:  # deep nesting is a RuntimeError
        raise Tampered(f"a message of {sender} cannot be read: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise Tampered(f"a message of {sender} cannot be read: its header is not an object")
    return OpenedMessage(header, tensors)


def to_record(message: SignedMessage) -> RecordDict:
    """Returns the message as a Flower record; its body is one array of bytes, which Flower sends in pieces."""
    body = Array(dtype="uint8", shape=(len(message.body),), stype="safetensors", data=message.body)
    envelope = ConfigRecord({"header": message.header, "signature": message.signature})
    return RecordDict({"envelope": envelope, "body": ArrayRecord({"tensors": body})})


def from_record(content: RecordDict) -> SignedMessage:
    """Returns the message that a Flower record holds.

    Raises:
        Tampered: the record was not made by ``to_record``.
    """
    try:
        envelope, body = content["envelope"], content["body"]["tensors"]
        header, signature = envelope["header"], envelope["signature"]
    except (KeyError, TypeError):
        raise Tampered(NOT_OURS) from None
    if not (isinstance(header, bytes) and isinstance(body, Array) and isinstance(signature, bytes)):
        raise Tampered(NOT_OURS)
    return SignedMessage(header, body.data, signature)


def _signed_bytes(header: bytes, body: bytes) -> bytes:
    digests = (hashlib.sha256(piece).digest() for piece in (header, body))
    return DOMAIN + b"".join(digests)
