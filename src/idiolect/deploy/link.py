"""The server's letters over Flower's Grid: sent to sites that are there, again to those that start again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor

from idiolect.deploy.carrier import MESSAGE_TYPE, record_of, sealed_of
from idiolect.deploy.letters import Letter, opened, sealed
from idiolect.deploy.plan import Plan
from idiolect.deploy.roster import Place, Roster
from idiolect.errors import UserError

__all__ = ["Answers", "Link"]

TURN = 0.1  # seconds between looks at the grid
AGAIN = 2.0  # seconds after which a lost letter goes again
LOOK_AROUND = 1.0  # seconds between looks at who is connected
GREETING_TTL = 120.0


class Answers(NamedTuple):
    """Args:
    letters: by site.
    missing: by site, why there is none.
    """

    letters: dict[str, Letter]
    missing: dict[str, str]


class Pending(NamedTuple):
    """A letter on its way; a greeting has no site."""

    site: str
    place: Place
    serial: list[int]


@dataclass
class Link:
    """Args:
    key: signs what the server sends.
    heard: is told of each site that answers, refuses or comes and goes.
    session: above that of every earlier start of the server, so that no letter can be repeated.
    """

    grid: Grid
    plan: Plan
    roster: Roster
    key: ec.EllipticCurvePrivateKey
    heard: Callable[[str, str], None] = lambda site, what: None
    session: int = field(default_factory=time.time_ns)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    _count: int = 0
    _looked: float = float("-inf")
    _pending: dict[str, Pending] = field(default_factory=dict)
    _shunned: set[Place] = field(default_factory=set)  # what answered a greeting and is no site of ours

    def wait_for(self, names: list[str], seconds: float) -> None:
        """Waits until these sites are connected, or until the time is over."""
        until = self.now() + seconds
        while not set(names) <= self.roster.places().keys() and self.now() < until:
            self._turn({})
            self.sleep(TURN)

    def ask(
        self,
        asks: Mapping[str, Mapping[str, Any]],
        tensors: Mapping[str, Tensor],
        *,
        deadline: float,
        grace: float,
        enough: int,
    ) -> Answers:
        """Sends each site its header with the same tensors and collects the answers.

        Args:
            deadline: seconds after which no answer is waited for.
            grace: seconds that a site may be away before it is not waited for, if there are ``enough`` answers.
        """
        found, sent, away = Answers({}, {}), {}, dict.fromkeys(asks, self.now())
        tried: dict[str, float] = {}
        until = self.now() + deadline
        while True:
            for site, letter in self._turn(sent).items():
                self._take(found, site, letter)
            left = [site for site in asks if site not in found.letters and site not in found.missing]
            places = self.roster.places()
            for site in left:
                if site in places:
                    away[site] = self.now()
                    waited = self.now() - tried.get(site, float("-inf"))
                    if sent.get(site) != places[site] and waited >= AGAIN:
                        self.heard(site, "asked again" if site in tried else "asked")
                        tried[site] = self.now()
                        if self._send(site, places[site], asks[site], tensors, until - self.now()):
                            sent[site] = places[site]
            gone = [site for site in left if self.now() - away[site] > grace]
            over = self.now() > until
            if not left or over or (len(gone) == len(left) and len(found.letters) >= enough):
                reason = "did not answer before the deadline" if over else "is not connected"
                for site in left:
                    found.missing[site] = reason
                    self.heard(site, f"left out: {reason}")
                self._pending = {key: one for key, one in self._pending.items() if not one.site}
                return found
            self.sleep(TURN)

    def _take(self, found: Answers, site: str, letter: Letter | str) -> None:
        """Adds what a site sent: an answer, or a refusal of either side."""
        refusal = letter if isinstance(letter, str) else letter.header.get("refused")
        if isinstance(letter, Letter) and not refusal:
            found.letters[site] = letter
            self.heard(site, "answered")
        else:
            found.missing[site] = str(refusal)
            self.heard(site, f"refused: {refusal}")

    def _turn(self, sent: dict[str, Place]) -> dict[str, Letter | str]:
        """Looks once at who is there and at what has come; gives the answers, or the sentence why one is not read.

        A letter that Flower lost is taken out of ``sent``, so that it goes again.
        """
        if self.now() - self._looked >= LOOK_AROUND:
            self._look_around()
        found: dict[str, Letter | str] = {}
        for message in self.grid.pull_messages(list(self._pending)) if self._pending else ():
            pending = self._pending.pop(message.metadata.reply_to_message_id, None)
            if pending is None:
                continue
            if not pending.site:
                self._greeted(message, pending)
            elif sent.get(pending.site) == pending.place:
                if message.has_error():
                    sent.pop(pending.site)
                    continue
                try:
                    found[pending.site] = self._read(message, pending, pending.site)
                except UserError as error:
                    found[pending.site] = str(error)
        return found

    def _look_around(self) -> None:
        self._looked = self.now()
        before = self.roster.places()
        self.roster.online = {node.node_id: node.last_activated_at for node in self.grid.get_nodes()}
        after = self.roster.places()
        for site in before.keys() - after.keys():
            self.heard(site, "went away")
        for site in after.keys() - before.keys():
            self.heard(site, "is back")
        greeted = {pending.place for pending in self._pending.values() if not pending.site} | self._shunned
        for node in self.roster.strangers():
            place = Place(node, self.roster.online[node])
            if place not in greeted:
                self._send("", place, {"kind": "hello"}, {}, GREETING_TTL)

    def _greeted(self, message: Message, pending: Pending) -> None:
        """A node told its name; one whose signature is no member's stays a stranger."""
        if message.has_error():
            return
        self._shunned.add(pending.place)
        name = _claimed(message)
        if name not in {member.name for member in self.roster.members}:
            self.heard("", f"a node that calls itself {name!r} is no site of this deployment")
            return
        try:
            letter = self._read(message, pending, name)
        except UserError as error:
            self.heard("", str(error))
            return
        if "refused" in letter.header:
            self.heard(name, f"refused: {letter.header['refused']}")
            return
        self.roster.names[pending.place.node] = name
        self.heard(name, "is connected")

    def _read(self, message: Message, pending: Pending, site: str) -> Letter:
        letter = opened(sealed_of(message.content), self.roster.key_of(site), site)
        if "refused" in letter.header:  # also of a letter that the site could not read the number of
            return letter
        mine = {"experiment": self.plan.identity, "site": site, "serial": pending.serial}
        for key, value in mine.items():
            if letter.header.get(key) != value:
                raise UserError(
                    f"{site} answers with the {key} {letter.header.get(key)} where {value} was asked"
                )
        return letter

    def _send(
        self,
        site: str,
        place: Place,
        header: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        seconds: float,
    ) -> bool:
        """Hands a letter to Flower; whether it took it."""
        self._count += 1
        serial = [self.session, self._count]
        common = {"experiment": self.plan.identity, "code": self.plan.code, "serial": serial}
        letter = sealed({**common, "site": site, **header}, tensors, self.key)
        message = Message(
            content=record_of(letter),
            dst_node_id=place.node,
            message_type=MESSAGE_TYPE,
            ttl=max(seconds, 1.0),
            group_id=str(header.get("round", "")),
        )
        identities = [identity for identity in self.grid.push_messages([message]) if identity]
        self._pending |= {identity: Pending(site, place, serial) for identity in identities}
        return bool(identities)


def _claimed(message: Message) -> str:
    """The name that an answer claims, before its signature is looked at."""
    try:
        return str(json.loads(sealed_of(message.content).header)["site"])
    except (UserError, ValueError, KeyError, TypeError):
        return ""
