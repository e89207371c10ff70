"""A site's side of a secure sum: keys, shares, the masked upload, and the shares that take a sum's masks away.

All that a site must remember lies in a file, so that a restart changes nothing.  It answers each step of a sum for one
request only: a repetition gets the same answer, another request for the same step a refusal.  No site thus ever gives
away both shares of a neighbour.  And it helps to make one sum of a round: a second one over other sites would tell the
difference, which may be the upload of one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from torch import Tensor

from idiolect.deploy.keys import public_key
from idiolect.deploy.secure_sums import (
    KEY_BYTES,
    WORD,
    Misfit,
    PublicKeys,
    Roster,
    Secrets,
    Shares,
    Words,
    commitment,
    masked,
    open_shares,
    sealed_shares,
)
from idiolect.errors import UserError
from idiolect.records import read_json_object, write_atomically
from idiolect.records.tensor_files import DamagedFile, read_tensors, write_tensors

__all__ = ["MASKED", "PEERS", "STEPS", "SiteSums"]

PEERS = "peers"  # the folder of the other sites' public keys, in the site's own
STEPS = ("share", "mask", "unmask")  # the kinds of requests for a sum, in order
MASKED = "masked"  # the tensor that a site adds to a sum
SUM, DONE = "sum.safetensors", "sums.json"

Answer = tuple[dict[str, Any], dict[str, Tensor]]


@dataclass(frozen=True)
class SiteSums:
    """One site's part in secure sums.

    Args:
        folder: where it remembers the sum under way, and which sums it has helped to make.
        peers: the folder of the other sites' public keys.
        key: signs the keys of each sum.
        threshold: the fewest sites in a sum.
        most: the most sites in a sum.
        era: returns the name of the last rollback that the site has followed.
    """

    folder: Path
    peers: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    threshold: int
    most: int
    era: Callable[[], str]

    def begin(self, session: str, what: str, received: str, words: Words) -> dict[str, str]:
        """Draws new secrets for a sum to which the site adds ``words``; returns its public keys, signed.

        Args:
            session: names the sum; the server draws it.
            what: names what is added up, such as the uploads of a round.
            received: digest of the model that the server has sent.  The keys are signed with it, and the sites of a sum
                refuse each other's where they received different models, by which a server that lies can have all
                sites but one send nothing.
        """
        secrets = Secrets.new()
        agreed = json.dumps([session, what, received])
        facts = {
            "session": session,
            "what": what,
            "agreed": agreed,
            "secrets": [one.hex() for one in secrets],
        }
        self._remember(facts, words)
        public = secrets.public
        signature = public.signed(agreed, self.key)
        return {"cipher": public.cipher.hex(), "mask": public.mask.hex(), "signature": signature.hex()}

    def answer(self, header: Mapping[str, Any]) -> Answer:
        """Does the next step of the sum under way.

        Raises:
            UserError: the request is of another sum, not of this step, or holds what its supposed sender did not make.
        """
        step = header["kind"]
        facts, words = self._remembered()
        if not facts or facts["session"] != header["session"]:
            raise UserError(f"{self.name} takes no part in the sum that the server asks for")
        asked = {key: value for key, value in header.items() if key != "serial"}
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        before = facts.get(step)
        if before is not None and before["asked"] != digest:
            raise UserError(
                f"{self.name} has answered another request for the same step of this sum; it answers one"
            )
        if "secrets" not in facts and step != "unmask":
            raise UserError(f"{self.name} has helped to make this sum already, and has forgotten its secrets")
        if before is None:
            if any(done not in facts for done in STEPS[: STEPS.index(step)]):
                raise UserError(f"{self.name} was asked for a step of a sum before the ones that come first")
            work: Callable[..., dict[str, Any]] = {
                "share": self._share,
                "mask": self._mask,
                "unmask": self._unmask,
            }[step]
            said = work(facts, header)
            facts[step] = {"asked": digest, "said": said}
            if step == "unmask":  # nothing of this sum is secret any more that this site may still tell
                facts, words = {key: facts[key] for key in ("session", *STEPS)}, words[:0]
            self._remember(facts, words)
        if step == "mask":
            return {}, {MASKED: torch.from_numpy(self._masked(facts, words).view(np.int64))}
        return facts[step]["said"], {}

    def _share(self, facts: dict[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
        """Checks that the keys are those of the sites, and gives each of them its shares."""
        session, secrets = facts["session"], _secrets(facts)
        keys = {}
        for name, said in header["keys"].items():
            keys[name] = PublicKeys(_bytes(said["cipher"], KEY_BYTES), _bytes(said["mask"], KEY_BYTES))
            if name != self.name:
                keys[name].verify(facts["agreed"], _bytes(said["signature"]), self._key_of(name), name)
        if keys.get(self.name) != secrets.public:
            raise Misfit(f"the server passes on other keys of {self.name} than {self.name} has made")
        self._refuse_too_few(keys)
        roster = Roster(session, keys)
        sealed, mine = sealed_shares(self.name, secrets, roster, self.threshold)
        facts["keys"] = {name: [one.hex() for one in each] for name, each in keys.items()}
        facts["shares"] = {self.name: [one.hex() for one in mine]}
        return {
            "shares": {name: one.hex() for name, one in sealed.items()},
            "commitment": commitment(secrets.own).hex(),
        }

    def _mask(self, facts: dict[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
        """Takes the others' shares; from now on the masks of this sum are fixed."""
        roster, secrets = _roster(facts), _secrets(facts)
        for name, sealed in header["shares"].items():
            if name not in roster.keys or name == self.name:
                raise Misfit(f"the server gives shares of {name!r}, which has no keys in this sum")
            shares = open_shares(self.name, secrets, roster, name, _bytes(sealed))
            facts["shares"][name] = [one.hex() for one in shares]
        self._refuse_too_few(facts["shares"])
        return {}

    def _unmask(self, facts: dict[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
        """Gives of each site in the sum the share of its own mask, of every other that of its pairwise secrets."""
        present = set(header["present"])
        if not present <= facts["shares"].keys() or self.name not in present:
            raise Misfit(
                f"the server names sites that have no part in this sum, or leaves {self.name} out of it"
            )
        self._refuse_too_few(present)
        self._refuse_second_sum(facts["what"], present)
        held = {name: Shares(*map(bytes.fromhex, shares)) for name, shares in facts["shares"].items()}
        return {
            "own": {name: held[name].own.hex() for name in sorted(present)},
            "pairs": {name: held[name].mask.hex() for name in sorted(held.keys() - present)},
        }

    def _masked(self, facts: Mapping[str, Any], words: Words) -> Words:
        others = facts["shares"].keys() - {self.name}
        return masked(self.name, words, _secrets(facts), _roster(facts), others)

    def _refuse_too_few(self, names: Any) -> None:
        if not self.threshold <= len(names) <= self.most:
            raise UserError(
                f"a sum of {len(names)} sites is not one that {self.name} agreed to; it takes part in sums of "
                f"{self.threshold} to {self.most}"
            )

    def _refuse_second_sum(self, what: str, present: set[str]) -> None:
        """Refuses a second sum of the same round over other sites, and remembers the first; a rollback allows one."""
        path, era = self.folder / DONE, self.era()
        try:
            done = read_json_object(path)
        except FileNotFoundError:
            done = {}
        except (OSError, ValueError):
            raise UserError(
                f"{path} is damaged, so {self.name} does not know which sums it has helped to make; put it back, or go "
                "back with idiolect deploy rollback after removing it"
            ) from None
        sums = dict(done["sums"]) if done and done["era"] == era else {}
        if sums.setdefault(what, sorted(present)) != sorted(present):
            raise UserError(
                f"{self.name} has helped to add up {', '.join(sums[what])} for the {what}, and a second sum of other "
                "sites would tell the difference"
            )
        write_atomically(path, json.dumps({"era": era, "sums": sums})).chmod(0o600)

    def _key_of(self, name: str) -> ec.EllipticCurvePublicKey:
        path = self.peers / f"{name}.pub"
        if Path(name).name != name or not path.exists():
            raise UserError(
                f"{self.name} does not know the key of {name!r}; give it {path.name} with idiolect deploy register"
            )
        return public_key(path)

    def _remember(self, facts: Mapping[str, Any], words: Words) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / SUM
        write_tensors(path, {"words": torch.from_numpy(words.view(np.int64))}, {"facts": json.dumps(facts)})
        path.chmod(0o600)

    def _remembered(self) -> tuple[dict[str, Any], Words]:
        """Returns the sum under way; nothing where there is none, or its file is damaged."""
        try:
            tensors, facts = read_tensors(self.folder / SUM)
        except (DamagedFile, OSError):
            return {}, np.zeros(0, WORD)
        return dict(json.loads(facts["facts"])), tensors["words"].numpy().view(WORD)


def _secrets(facts: Mapping[str, Any]) -> Secrets:
    return Secrets(*map(bytes.fromhex, facts["secrets"]))


def _roster(facts: Mapping[str, Any]) -> Roster:
    keys = {name: PublicKeys(*map(bytes.fromhex, each)) for name, each in facts["keys"].items()}
    return Roster(facts["session"], keys)


def _bytes(said: Any, size: int | None = None) -> bytes:
    """Returns bytes that somebody wrote as hexadecimal digits."""
    try:
        found = bytes.fromhex(said)
    except (TypeError, ValueError):
        raise Misfit("the server gives something that is no key, share or signature") from None
    if size is not None and len(found) != size:
        raise Misfit(f"the server gives a key of {len(found)} bytes where {size} are expected")
    return found
