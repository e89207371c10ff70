"""The server's side of a secure sum: passes keys and shares between sites, adds up, and takes the masks away.

A site that fails in a step is left out by name, and the sum goes on while enough sites are left.  Otherwise there is
no sum, nothing of any site has become known, and the next attempt begins anew.  Which sites a sum holds is noted before
its masks are taken away, because a round that is repeated must be the sum of the same sites.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.deploy.answer_schema import Check, answer, share_answer, unmask_answer
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.secure_sums import (
    WORD,
    Misfit,
    PublicKeys,
    Roster,
    Words,
    is_commitment,
    is_private_half,
    recover,
    unmasked,
)
from idiolect.deploy.site_requests import Replies
from idiolect.deploy.site_sums import MASKED
from idiolect.errors import UserError
from idiolect.records import read_json_object, write_atomically

__all__ = ["NoSum", "ServerSums", "Total", "new_session"]

MEMORY = "sums.json"  # the sums of the round under way

# (kind of request, header by site, schema by site) -> replies
Ask = Callable[[str, Mapping[str, Mapping[str, Any]], Mapping[str, Check]], Replies]


class NoSum(UserError):
    """A sum that could not be made; the sentence says of what and why."""


class Total(NamedTuple):
    """The sum of the words of some sites."""

    words: Words
    sites: list[str]


def new_session() -> str:
    """Returns a new name for a sum."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class ServerSums:
    """Makes secure sums with the sites.

    Args:
        folder: the server's.
        threshold: the fewest sites in a sum.
        era: names the last rollback, after which sites take part in another sum of a round again.
    """

    folder: Path
    threshold: int
    era: str
    ask: Ask
    progress: DeploymentProgress

    def members(self, what: str) -> list[str]:
        """Returns the sites of an earlier sum of the same, which alone can be made again; empty where there is none."""
        return self._noted().get(what, [])

    def add_up(self, what: str, session: str, replies: Replies, length: int) -> Total:
        """Returns the sum of the words that sites announced in their replies.

        Args:
            what: names what is added up.
            replies: with the sites' keys; sites that fail become missing.
            length: of the words.

        Raises:
            NoSum: too few sites are left, or not those of an earlier sum of the same.
            Misfit: what sites sent cannot be put together.
        """
        headers = {name: message.header["keys"] for name, message in replies.messages.items()}
        self._refuse_too_few(what, headers, replies)
        roster = Roster(
            session,
            {
                name: PublicKeys(bytes.fromhex(said["cipher"]), bytes.fromhex(said["mask"]))
                for name, said in headers.items()
            },
        )
        names = list(roster.keys)
        shared = self._step(
            what,
            "share",
            session,
            {name: {"keys": headers} for name in names},
            replies,
            {name: share_answer([one for one in names if one != name]) for name in names},
        )
        given = {name: header["shares"] for name, header in shared.items()}
        passed_on = {
            name: {"shares": {one: given[one][name] for one in given if one != name}} for name in given
        }
        masked = self._masked(what, session, passed_on, replies, length)
        self._note(what, list(masked))
        present = {"present": sorted(masked)}
        gone = sorted(shared.keys() - masked.keys())
        revealed = self._step(
            what,
            "unmask",
            session,
            dict.fromkeys(masked, present),
            replies,
            dict.fromkeys(masked, unmask_answer(sorted(masked), gone)),
        )
        own = {name: self._recover(name, "own", revealed, roster, shared) for name in masked}
        pairs = {name: self._recover(name, "pairs", revealed, roster, shared) for name in gone}
        return Total(unmasked(masked, own, pairs, roster), sorted(masked))

    def _masked(
        self, what: str, session: str, headers: Mapping[str, Mapping[str, Any]], replies: Replies, length: int
    ) -> dict[str, Words]:
        """Returns by site the words with masks."""
        schemas = dict.fromkeys(headers, answer({}))
        found = self.ask(
            "mask", {name: {"session": session, **header} for name, header in headers.items()}, schemas
        )
        masked: dict[str, Words] = {}
        for name, message in found.messages.items():
            tensor = message.tensors.get(MASKED)
            if tensor is None or str(tensor.dtype) != "torch.int64" or tensor.shape != (length,):
                found.missing[name] = f"sent other words than the {length} of this sum"
                self.progress.heard(name, f"left out: it sent other words than the {length} of this sum")
            else:
                masked[name] = tensor.numpy().view(WORD)
        self._leave_out(replies, headers, masked, found)
        self._refuse_too_few(what, masked, replies)
        return masked

    def _step(
        self,
        what: str,
        kind: str,
        session: str,
        headers: Mapping[str, Mapping[str, Any]],
        replies: Replies,
        schemas: Mapping[str, Check],
    ) -> dict[str, Mapping[str, Any]]:
        """Asks sites for a step; returns the headers of their answers."""
        found = self.ask(
            kind, {name: {"session": session, **header} for name, header in headers.items()}, schemas
        )
        if kind != "unmask":  # a site that sent its words is in the sum, whatever becomes of it
            self._leave_out(replies, headers, found.messages, found)
        else:
            replies.missing.update(found.missing)
        self._refuse_too_few(what, found.messages, replies, helping=kind == "unmask")
        return {name: message.header for name, message in found.messages.items()}

    def _leave_out(
        self, replies: Replies, asked: Collection[str], there: Collection[str], found: Replies
    ) -> None:
        for name in sorted(set(asked) - set(there)):
            replies.messages.pop(name, None)
            replies.missing[name] = found.missing.get(name, "did not answer")

    def _recover(
        self,
        name: str,
        kind: str,
        revealed: Mapping[str, Mapping[str, Any]],
        roster: Roster,
        shared: Mapping[str, Mapping[str, Any]],
    ) -> bytes:
        """Returns a secret of a site from the shares that others revealed; says whose share was wrong."""
        shares = {holder: bytes.fromhex(header[kind][name]) for holder, header in revealed.items()}
        is_right = (
            is_commitment(bytes.fromhex(shared[name]["commitment"]))
            if kind == "own"
            else is_private_half(roster.keys[name].mask)
        )
        try:
            secret, wrong = recover(shares, self.threshold, roster, is_right)
        except Misfit as error:
            raise Misfit(f"the mask of {name} cannot be taken away: {error}") from None
        for liar in wrong:
            self.progress.heard(liar, f"gave a wrong share of a secret of {name}")
        return secret

    def _refuse_too_few(
        self, what: str, left: Collection[str], replies: Replies, helping: bool = False
    ) -> None:
        """Refuses a sum of too few sites, or of others than an earlier one of the same.

        Args:
            helping: the sum is made, and these are the sites that help to take its masks away.
        """
        reasons = "; ".join(f"{name} {reason}" for name, reason in sorted(replies.missing.items()))
        because = f" ({reasons})" if reasons else ""
        if len(left) < self.threshold:
            raise NoSum(
                f"a sum of the {what} needs {self.threshold} sites and {len(left)} answered{because}; bring them back "
                "and go on with idiolect deploy run"
            )
        before = [] if helping else self.members(what)
        if not set(before) <= set(left):
            raise NoSum(
                f"the {what} were added up of {', '.join(before)} before the server stopped, and a sum without one of "
                f"them would tell what it sent{because}; bring it back and go on with idiolect deploy run, or go back "
                "with idiolect deploy rollback"
            )

    def _noted(self) -> dict[str, list[str]]:
        try:
            found = read_json_object(self.folder / MEMORY)
            return dict(found["sums"]) if found["era"] == self.era else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _note(self, what: str, names: list[str]) -> None:
        """Notes which sites a sum holds; of earlier rounds nothing needs to be known."""
        round = what.rpartition(" ")[2]
        kept = {key: value for key, value in self._noted().items() if key.rpartition(" ")[2] == round}
        noted = {"era": self.era, "sums": {**kept, what: sorted(names)}}
        write_atomically(self.folder / MEMORY, json.dumps(noted))
