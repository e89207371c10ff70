"""Letters as Flower carries them."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from idiolect.deploy.letters import Sealed, Tampered

__all__ = ["MESSAGE_TYPE", "record_of", "sealed_of"]

MESSAGE_TYPE = "query"


def record_of(letter: Sealed) -> RecordDict:
    """The body goes as one array of bytes, which Flower sends in pieces."""
    body = Array(dtype="uint8", shape=(len(letter.body),), stype="safetensors", data=letter.body)
    envelope = ConfigRecord({"header": letter.header, "signature": letter.signature})
    return RecordDict({"envelope": envelope, "body": ArrayRecord({"tensors": body})})


def sealed_of(content: RecordDict) -> Sealed:
    """Raises:
    Tampered: the message is none of ours.
    """
    try:
        envelope, body = content["envelope"], content["body"]["tensors"]
        return Sealed(envelope["header"], body.data, envelope["signature"])
    except (KeyError, TypeError, AttributeError):
        raise Tampered("a message is no letter of Idiolect's, so it is not read") from None
