"""The mathematics of secure sums against direct computations that share no code with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idiolect.deploy.secure_sums import (
    SHARE_BYTES,
    WORD,
    Field,
    Layout,
    Misfit,
    Roster,
    Secrets,
    Shares,
    commitment,
    is_commitment,
    is_private_half,
    masked,
    open_shares,
    recover,
    sealed_shares,
    unmasked,
)

NAMES = ["a", "b", "c", "d", "e"]
LENGTH = 5


class Sum:
    """The sites of one sum, with all of their secrets."""

    def __init__(self, names: list[str] = NAMES, threshold: int = 3, session: str = "one") -> None:
        self.secrets = {name: Secrets.new() for name in names}
        self.roster = Roster(session, {name: one.public for name, one in self.secrets.items()})
        self.threshold = threshold
        made = {name: sealed_shares(name, one, self.roster, threshold) for name, one in self.secrets.items()}
        self.sealed = {name: sealed for name, (sealed, _) in made.items()}
        self.own = {name: shares for name, (_, shares) in made.items()}
        self.words = {
            name: np.random.default_rng(ord(name)).integers(0, 2**64, LENGTH, WORD) for name in names
        }

    def held(self, holder: str, owner: str) -> Shares:
        """The shares of ``owner`` that ``holder`` has."""
        if holder == owner:
            return self.own[owner]
        return open_shares(holder, self.secrets[holder], self.roster, owner, self.sealed[owner][holder])

    def sent(self, name: str, sharing: Iterable[str] = NAMES) -> np.ndarray:
        return masked(name, self.words[name], self.secrets[name], self.roster, set(sharing) - {name})


@pytest.mark.parametrize("threshold", [2, 3, 5])
@pytest.mark.parametrize("gone", ["", "c", "ae", "bcd"])
def test_sum_is_that_of_the_sites_that_sent_words(gone: str, threshold: int) -> None:
    """The masks of a sum are recovered from any ``threshold`` sites, here the last ones; five take part."""
    made = Sum(threshold=threshold)
    sent = {name: made.sent(name) for name in NAMES if name not in gone}
    helpers = NAMES[-threshold:]
    own, pairs = {}, {}
    for name in NAMES:
        shares = {one: made.held(one, name) for one in helpers}
        if name in sent:
            is_right = is_commitment(commitment(made.secrets[name].own))
            own[name], wrong = recover(
                {k: s.own for k, s in shares.items()}, threshold, made.roster, is_right
            )
        else:
            is_right = is_private_half(made.roster.keys[name].mask)
            pairs[name], wrong = recover(
                {k: s.mask for k, s in shares.items()}, threshold, made.roster, is_right
            )
        assert wrong == []
    expected = [sum(int(made.words[name][place]) for name in sent) % 2**64 for place in range(LENGTH)]
    assert [int(word) for word in unmasked(sent, own, pairs, made.roster)] == expected


def test_masks_are_those_of_the_paper() -> None:
    """y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv), with a PRG made block by block."""
    made = Sum()

    def prg(seed: bytes) -> list[int]:
        encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
        blocks = b"".join(encryptor.update(counter.to_bytes(16, "big")) for counter in range(LENGTH))
        return [int.from_bytes(blocks[8 * place : 8 * place + 8], "little") for place in range(LENGTH)]

    keys = {name: one.public for name, one in made.secrets.items()}
    listed = json.dumps(["one", [[name, keys[name].cipher.hex(), keys[name].mask.hex()] for name in NAMES]])
    for u in NAMES:
        expected = [
            int(word) + own for word, own in zip(made.words[u], prg(made.secrets[u].own), strict=True)
        ]
        for v in NAMES:
            if v == u:
                continue
            secret = X25519PrivateKey.from_private_bytes(made.secrets[u].mask)
            agreed = secret.exchange(X25519PublicKey.from_public_bytes(keys[v].mask))
            info = (
                hashlib.sha256(listed.encode()).digest()
                + json.dumps(["masks", min(u, v), max(u, v)]).encode()
            )
            s_uv = prg(HKDF(hashes.SHA256(), 32, None, info).derive(agreed))
            expected = [y + (s if u < v else -s) for y, s in zip(expected, s_uv, strict=True)]
        assert [int(word) for word in made.sent(u)] == [y % 2**64 for y in expected]


def test_secrets_and_masks_are_new_each_time() -> None:
    secrets = {secret for _ in range(20) for secret in Secrets.new()}
    assert len(secrets) == 60 and all(len(secret) == 32 for secret in secrets)
    one, other = Sum(session="one"), Sum(session="other")
    assert not set(map(int, one.sent("a"))) & set(map(int, other.sent("a")))


def test_what_is_sent_needs_both_masks_taken_away() -> None:
    made = Sum()
    sent = {"a": made.sent("a")}
    without_pairs = unmasked(sent, {"a": made.secrets["a"].own}, {}, made.roster)
    others = {name: made.secrets[name].mask for name in NAMES if name != "a"}
    without_own = unmasked(sent, {}, others, made.roster)
    for found in (without_pairs, without_own):
        assert not set(map(int, found)) & set(map(int, made.words["a"]))
    both = unmasked(sent, {"a": made.secrets["a"].own}, others, made.roster)
    assert (both == made.words["a"]).all()


def test_shares_are_those_of_this_sum_and_of_this_pair_alone() -> None:
    made, other = Sum(), Sum()
    assert len(made.held("b", "a").own) == len(made.held("a", "a").mask) == SHARE_BYTES
    sealed = made.sealed["a"]["b"]
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    strangers = [
        (made.roster, "b", "a", changed),
        (made.roster, "b", "a", sealed[:-1]),
        (made.roster, "b", "a", other.sealed["a"]["b"]),
        (made.roster, "b", "a", made.sealed["b"]["a"]),
        (made.roster, "b", "c", sealed),
        (made.roster, "c", "a", sealed),
        (Roster("two", made.roster.keys), "b", "a", sealed),
    ]
    for roster, me, sender, content in strangers:
        with pytest.raises(Misfit, match=r"not what .* made for this sum"):
            open_shares(me, made.secrets[me], roster, sender, content)


@pytest.mark.parametrize("liars", ["", "a", "ab"])
def test_wrong_shares_are_found_and_named(liars: str) -> None:
    made = Sum(threshold=3)
    shares = {name: made.held(name, "c").own for name in NAMES}
    for name in liars:
        shares[name] = shares[name][:9] + bytes([shares[name][9] ^ ord(name)]) + shares[name][10:]
    is_right = is_commitment(commitment(made.secrets["c"].own))
    assert recover(shares, 3, made.roster, is_right) == (made.secrets["c"].own, list(liars))


def test_share_of_another_number_is_wrong() -> None:
    made = Sum(threshold=3)
    shares = {name: made.held(name, "c").own for name in NAMES}
    shares["a"] = shares["b"]
    is_right = is_commitment(commitment(made.secrets["c"].own))
    assert recover(shares, 3, made.roster, is_right) == (made.secrets["c"].own, ["a"])


def test_too_few_right_shares_make_no_secret() -> None:
    made = Sum(threshold=3)
    shares = {name: made.held(name, "c").own for name in "ab"}
    with pytest.raises(Misfit, match="do not make a secret"):
        recover(
            {**shares, "d": bytes(SHARE_BYTES)},
            3,
            made.roster,
            is_commitment(commitment(made.secrets["c"].own)),
        )


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 64, 65, 1000])
@pytest.mark.parametrize("bits", [0, 20, 36])
def test_no_sum_within_the_limits_overflows(sites: int, bits: int) -> None:
    layout = Layout((Field("x", (2,), bits),), sites)
    limit = layout.limit(layout.fields[0])
    words = layout.pack({"x": np.array([limit, -limit])})
    total = words * WORD.type(sites)
    assert layout.unpack(total, sites)["x"].tolist() == [sites * limit, -sites * limit]


@pytest.mark.parametrize("bits", [8, 30, 44])
def test_rounding_is_at_most_half_a_multiple(bits: int) -> None:
    layout = Layout((Field("x", (200,), bits),), 3)
    numbers = np.random.default_rng(bits).normal(0, 100, 200)
    found = layout.unpack(layout.pack({"x": numbers}), 1)["x"]
    errors = [abs(Fraction(a) - Fraction(b)) for a, b in zip(found.tolist(), numbers.tolist(), strict=True)]
    assert 0 < max(errors) <= Fraction(1, 2 ** (bits + 1)) if bits < 44 else max(errors) <= Fraction(1, 2**45)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2.0**40 * 1.01, -(2.0**40) * 1.01])
def test_number_beyond_the_limit_is_refused_and_not_clipped(number: float) -> None:
    layout = Layout((Field("x", (2,), 20),), 3)
    with pytest.raises(Misfit, match=r"x holds .* takes numbers up to"):
        layout.pack({"x": np.array([0.0, number])})


def test_sum_beyond_what_sites_can_send_is_refused() -> None:
    layout = Layout((Field("x", (1,), 20),), 3)
    limit = int(layout.limit(layout.fields[0]))
    assert layout.unpack(np.array([2 * limit << 20], WORD), 2)["x"] == 2 * limit
    with pytest.raises(Misfit, match="larger than 2 sites"):
        layout.unpack(np.array([(2 * limit << 20) + 1 << 1], WORD), 2)
