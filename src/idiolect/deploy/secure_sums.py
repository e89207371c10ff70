"""The mathematics of secure sums: numbers of fixed precision, masks that cancel, and shares that unmask a sum.

y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)    mod 2^64

x_u is what site u adds, b_u its own mask's seed, and s_uv a secret that u and v alone can compute.  The pairwise masks
cancel in the sum.  Every site gives the others shares of b_u and of its half of all s_uv, so that ``threshold`` sites
can take away the masks of a sum, whoever is gone by then.  Of a site in the sum b_u is recovered, of any other its half
of the pairwise secrets.  With both, the server would see x_u.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, CCS 2017, figure 4, with the complete graph
https://doi.org/10.1145/3133956.3133982

Shamir's shares are those of Flower.  Its masks are not used: they come from a seed of 32 bits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, reduce
from itertools import combinations, islice
from operator import add
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from numpy.typing import NDArray

from idiolect.errors import UserError

__all__ = [
    "KEY_BYTES",
    "SHARE_BYTES",
    "Field",
    "Layout",
    "Misfit",
    "PublicKeys",
    "Roster",
    "Secrets",
    "Shares",
    "commitment",
    "is_commitment",
    "is_private_half",
    "masked",
    "open_shares",
    "recover",
    "sealed_shares",
    "unmasked",
]

WORD = np.dtype("<u8")  # sums are taken modulo 2^64
SUM_BITS = 62  # of a sum of all sites, beside its sign and a bit that stays free
KEY_BYTES = 32
SHARE_BYTES = 52  # of one secret: its number, and the 48 bytes that Flower makes of 32
MOST_TRIES = 10_000  # sets of shares that are tried where some are wrong
DOMAIN = b"idiolect mask keys 1\n"  # signed with the keys of every sum

Words = NDArray[np.uint64]
Numbers = NDArray[np.float64]


class Misfit(UserError):
    """What somebody sent for a secure sum does not fit: a key, a share, a mask or a number."""


class Field(NamedTuple):
    """Numbers of a sum, as whole multiples of 2^-bits.

    Args:
        bits: after the binary point.
    """

    name: str
    shape: tuple[int, ...]
    bits: int


class Layout(NamedTuple):
    """Where each number lies in the words of a sum of at most ``sites`` summands.

    A summand of a field is at most ``2^(62 - bits) / sites`` large, so that no sum overflows.
    """

    fields: tuple[Field, ...]
    sites: int

    @property
    def length(self) -> int:
        return sum(int(np.prod(field.shape)) for field in self.fields)

    def limit(self, field: Field) -> float:
        """Returns how large a summand of a field may be: a power of two."""
        return 2.0 ** (room(self.sites) - field.bits)

    def pack(self, values: Mapping[str, Numbers]) -> Words:
        """Returns numbers as words, each rounded to the nearest multiple of 2^-bits.

        Raises:
            Misfit: a number is not finite, or larger than its limit; it is not clipped, which would change the sum.
        """
        pieces = []
        for field in self.fields:
            numbers = np.asarray(values[field.name], np.float64).reshape(-1)
            limit = self.limit(field)
            largest = np.abs(numbers).max(initial=0.0)
            if not largest <= limit:
                raise Misfit(
                    f"{field.name} holds {largest:.4g}, and a secure sum takes numbers up to {limit:g}"
                )
            pieces.append(np.rint(np.ldexp(numbers, field.bits)).astype(np.int64).view(WORD))
        return np.concatenate([*pieces, np.zeros(0, WORD)])

    def unpack(self, words: Words, summands: int) -> dict[str, Numbers]:
        """Returns the numbers of a sum.

        Raises:
            Misfit: a number is larger than ``summands`` numbers within their limits can make it.
        """
        found, at = {}, 0
        for field in self.fields:
            size = int(np.prod(field.shape))
            numbers = np.ldexp(words[at : at + size].view(np.int64).astype(np.float64), -field.bits)
            if np.abs(numbers).max(initial=0.0) > summands * self.limit(field):
                raise Misfit(
                    f"the sum of {field.name} is larger than {summands} sites within their limits make it"
                )
            found[field.name] = numbers.reshape(field.shape)
            at += size
        return found


def room(sites: int) -> int:
    """Returns the bits of a summand, before and after the binary point, of which ``sites`` can be added.

    >>> room(3), room(100)
    (60, 55)
    """
    return SUM_BITS - (sites - 1).bit_length()


class PublicKeys(NamedTuple):
    """What a site tells of its secrets of one sum: a key to send it shares, and one to agree on pairwise masks."""

    cipher: bytes
    mask: bytes

    def signed(self, agreed: str, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Returns a site's signature over its keys, for a sum on which sites agree."""
        return key.sign(self._signed_bytes(agreed), ec.ECDSA(hashes.SHA256()))

    def verify(self, agreed: str, signature: bytes, key: ec.EllipticCurvePublicKey, name: str) -> None:
        """Refuses keys that site ``name`` did not sign for this sum."""
        try:
            key.verify(signature, self._signed_bytes(agreed), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise Misfit(
                f"the keys that the server gives as those of {name} are not signed by {name} for this sum "
                "and the same model"
            ) from None

    def _signed_bytes(self, agreed: str) -> bytes:
        return DOMAIN + hashlib.sha256(agreed.encode()).digest() + self.cipher + self.mask


class Secrets(NamedTuple):
    """A site's secrets of one sum: two private keys, and the seed of its own mask."""

    cipher: bytes
    mask: bytes
    own: bytes

    @classmethod
    def new(cls) -> Secrets:
        """Draws secrets from the operating system's secure source."""
        return cls(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES), os.urandom(KEY_BYTES))

    @property
    def public(self) -> PublicKeys:
        return PublicKeys(_public(self.cipher), _public(self.mask))


class Shares(NamedTuple):
    """One site's share of another's two secrets, of which it ever reveals one."""

    mask: bytes
    own: bytes


class Roster:
    """The sites of a sum that have keys, by name in order, and the digest that ties all that follows to these keys."""

    def __init__(self, session: str, keys: Mapping[str, PublicKeys]) -> None:
        self.session = session
        self.keys = dict(sorted(keys.items()))

    @cached_property
    def digest(self) -> bytes:
        listed = [[name, keys.cipher.hex(), keys.mask.hex()] for name, keys in self.keys.items()]
        return hashlib.sha256(json.dumps([self.session, listed]).encode()).digest()

    def number(self, name: str) -> int:
        """Returns the number of the shares that a site holds, from 1."""
        return list(self.keys).index(name) + 1

    def pair(self, purpose: str, secret: bytes, public: bytes, one: str, other: str) -> bytes:
        """Returns what two sites agree on for a purpose; another roster or order of the two gives another key."""
        try:
            agreed = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError:
            raise Misfit(f"the keys of {one} and {other} do not fit together") from None
        info = self.digest + json.dumps([purpose, one, other]).encode()
        return HKDF(hashes.SHA256(), KEY_BYTES, None, info).derive(agreed)


def commitment(own: bytes) -> bytes:
    """Returns the digest by which the server knows the seed of a site's own mask when it is recovered."""
    return hashlib.sha256(DOMAIN + own).digest()


def sealed_shares(
    me: str, secrets: Secrets, roster: Roster, threshold: int
) -> tuple[dict[str, bytes], Shares]:
    """Returns by other site its share of this site's secrets, which it alone can read, and this site's own share."""
    count = len(roster.keys)
    made = [
        Shares(*both)
        for both in zip(
            *(create_shares(one, threshold, count) for one in (secrets.mask, secrets.own)), strict=True
        )
    ]
    sealed = {}
    for (name, keys), shares in zip(roster.keys.items(), made, strict=True):
        if name != me:
            key = roster.pair("shares", secrets.cipher, keys.cipher, me, name)
            sealed[name] = ChaCha20Poly1305(key).encrypt(bytes(12), b"".join(shares), None)
    return sealed, made[roster.number(me) - 1]


def open_shares(me: str, secrets: Secrets, roster: Roster, sender: str, sealed: bytes) -> Shares:
    """Returns the shares that ``sender`` made for this site in this sum.

    Raises:
        Misfit: they were made by somebody else, for somebody else, or in another sum.
    """
    key = roster.pair("shares", secrets.cipher, roster.keys[sender].cipher, sender, me)
    try:
        both = ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise Misfit(
            f"what the server gives as the shares of {sender} is not what {sender} made for this sum"
        ) from None
    if len(both) != 2 * SHARE_BYTES:
        raise Misfit(f"the shares of {sender} have {len(both)} bytes where {2 * SHARE_BYTES} are expected")
    return Shares(both[:SHARE_BYTES], both[SHARE_BYTES:])


def masked(me: str, words: Words, secrets: Secrets, roster: Roster, others: Iterable[str]) -> Words:
    """Returns what a site adds to the sum, with its own mask and one for each other site that has given it shares."""
    total = words + stream(secrets.own, len(words))
    for other in others:
        total = total + _pairwise(me, secrets.mask, roster, other, len(words))
    return total


def unmasked(
    sent: Mapping[str, Words], own: Mapping[str, bytes], gone: Mapping[str, bytes], roster: Roster
) -> Words:
    """Returns the sum of what sites added, from what they sent with masks.

    Args:
        own: by site that sent something, the seed of its own mask.
        gone: by site that made masks with them and then sent nothing, its half of the pairwise secrets.
    """
    total = reduce(add, sent.values())
    for seed in own.values():
        total = total - stream(seed, len(total))
    for name, secret in gone.items():
        for other in sent:  # what ``other`` added for this pair is the negative of what ``name`` would have
            total = total + _pairwise(name, secret, roster, other, len(total))
    return total


def recover(
    shares: Mapping[str, bytes], threshold: int, roster: Roster, is_right: Callable[[bytes], bool]
) -> tuple[bytes, list[str]]:
    """Returns a secret from shares of it, and the sites whose shares are wrong.

    Args:
        shares: by site that holds it.
        is_right: tells the secret from all others.

    Raises:
        Misfit: no ``threshold`` of the shares make the secret.
    """
    numbered = {name: share for name, share in shares.items() if _number(share) == roster.number(name)}
    for tries, tried in enumerate(islice(combinations(sorted(numbered), threshold), MOST_TRIES)):
        secret = _combined(numbered[name] for name in tried)
        if is_right(secret):
            if not tries:  # the others' shares were not needed
                return secret, sorted(set(shares) - set(numbered))
            exchanged = {
                name: _combined(numbered[one] for one in (*tried[1:], name))
                for name in numbered
                if name not in tried
            }
            honest = {*tried, *(name for name, found in exchanged.items() if is_right(found))}
            return secret, sorted(set(shares) - honest)
    raise Misfit(f"the shares of {', '.join(sorted(shares))} do not make a secret")


def is_commitment(expected: bytes) -> Callable[[bytes], bool]:
    """Returns the test for the seed of a site's own mask."""
    return lambda secret: hmac.compare_digest(commitment(secret), expected)


def is_private_half(expected: bytes) -> Callable[[bytes], bool]:
    """Returns the test for a site's half of its pairwise secrets."""
    return lambda secret: len(secret) == KEY_BYTES and hmac.compare_digest(_public(secret), expected)


def stream(seed: bytes, length: int) -> Words:
    """Returns words that nobody can tell from random ones without the seed: AES-256 in counter mode."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), WORD)


def _pairwise(me: str, secret: bytes, roster: Roster, other: str, length: int) -> Words:
    """Returns the mask that ``me`` adds for its pair with ``other``, who adds the negative."""
    keys = roster.keys[other]
    seed = roster.pair("masks", secret, keys.mask, min(me, other), max(me, other))
    return stream(seed, length) if me < other else np.zeros(length, WORD) - stream(seed, length)


def _public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _number(share: bytes) -> int:
    return int.from_bytes(share[:4], "little") if len(share) == SHARE_BYTES else 0


def _combined(shares: Iterable[bytes]) -> bytes:
    """Returns the secret that shares make; empty where Flower sees that they make none."""
    try:
        return bytes(combine_shares(list(shares)))
    except ValueError:
        return b""
