"""The server's connection to its sites over Flower's grid: who is connected, requests out, replies in.

A node says which site it is by signing its answer to a greeting.  Requests go to the sites that are connected, and
again to a site that restarts or whose request Flower lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from torch import Tensor

from idiolect.deploy.answer_schema import Check, greeting_answer
from idiolect.deploy.configuration import DeploymentPlan, SiteEntry
from idiolect.deploy.keys import public_key
from idiolect.deploy.receiving_grid import MessageGrid
from idiolect.deploy.signed_messages import MESSAGE_TYPE, OpenedMessage, from_record, sign, to_record, verify
from idiolect.errors import UserError

__all__ = ["ConnectedSites", "Replies", "SiteConnection"]

POLL_SECONDS = 0.1  # between looks at the grid for replies
RESEND_SECONDS = 2.0  # after which a request that was not delivered goes again
NODES_SECONDS = 1.0  # between looks at which nodes are connected
GREETING_TTL = 120.0
REFUSED_SECONDS = 30.0  # before a site that refused its greeting is greeted again
GREETING = greeting_answer()
MOST_LETTERS = 500  # of a sentence that a site sent


class NodeSession(NamedTuple):
    """A Flower node from one start of it to the next."""

    node: int
    since: str


@dataclass
class ConnectedSites:
    """Which site is behind which Flower node.

    Args:
        sites: the sites of the deployment.
        keys: the folder of their public keys.
        online: since when each connected node is there.
        names: the site behind each node that has answered a greeting.
    """

    sites: tuple[SiteEntry, ...]
    keys: Path
    online: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def key_of(self, name: str) -> ec.EllipticCurvePublicKey:
        return public_key(self.keys / f"{name}.pub")

    def unknown_nodes(self) -> list[int]:
        """Returns the connected nodes whose site is not known yet."""
        return [node for node in self.online if node not in self.names]

    def sessions(self) -> dict[str, NodeSession]:
        """Returns the connected sites by name; where several nodes are one site, the latest counts."""
        found: dict[str, NodeSession] = {}
        for node, since in sorted(self.online.items(), key=lambda item: item[1]):
            if node in self.names:
                found[self.names[node]] = NodeSession(node, since)
        return found


class Replies(NamedTuple):
    """What sites replied to a request.

    Args:
        messages: by site.
        missing: by site, why there is no reply that can be used.
    """

    messages: dict[str, OpenedMessage]
    missing: dict[str, str]


class PendingRequest(NamedTuple):
    """A request without a reply yet; a greeting has no site."""

    site: str
    session: NodeSession
    serial: list[int]


@dataclass
class SiteConnection:
    """Sends signed requests to sites and collects their replies.

    Args:
        key: signs what the server sends.
        heard: is told of each site that replies, refuses, or comes and goes.
        start: is higher than that of every earlier start of the server, so that no request can be replayed; a site
            that has accepted a higher one says so when it is greeted, and is counted from there.
    """

    grid: MessageGrid
    plan: DeploymentPlan
    connected: ConnectedSites
    key: ec.EllipticCurvePrivateKey
    heard: Callable[[str, str], None] = lambda site, what: None
    start: int = 1
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    _count: int = 0
    _looked: float = float("-inf")
    _pending: dict[str, PendingRequest] = field(default_factory=dict)
    # since when sites that were asked are away
    _away: dict[str, float] = field(default_factory=dict)
    # of sites that have accepted a request of a higher start than ours
    _starts: dict[str, int] = field(default_factory=dict)
    # nodes that answered a greeting, as a site of ours or not
    _greeted: set[NodeSession] = field(default_factory=set)
    # when a node refused its greeting, and in which sentence
    _refused: dict[NodeSession, tuple[float, str]] = field(default_factory=dict)

    def wait_for(self, names: list[str], seconds: float) -> None:
        """Waits until these sites are connected, or until the time is over."""
        until = self.now() + seconds
        while not set(names) <= self.connected.sessions().keys() and self.now() < until:
            self._poll({})
            self.sleep(POLL_SECONDS)

    def request(
        self,
        headers: Mapping[str, Mapping[str, Any]],
        tensors: Mapping[str, Mapping[str, Tensor]],
        *,
        deadline: float,
        grace: float,
        enough: int,
        schemas: Mapping[str, Check],
    ) -> Replies:
        """Sends each site its header and tensors, and collects the replies.

        Args:
            headers, tensors: by site.
            deadline: seconds after which no reply is waited for.
            grace: seconds that a site may be away before it is not waited for, if there are ``enough`` replies; a site
                that stays away is waited for once, not in every request.
            schemas: by site, what its reply must be like; one that is not becomes missing.
        """
        found = Replies({}, {})
        sent: dict[str, NodeSession] = {}
        tried: dict[str, float] = {}
        until = self.now() + deadline
        while True:
            for site, reply in self._poll(sent).items():
                self._take(found, site, reply, schemas[site])
            left = [site for site in headers if site not in found.messages and site not in found.missing]
            sessions = self.connected.sessions()
            self._away = {site: since for site, since in self._away.items() if site not in sessions}
            for site in (one for one in left if one in sessions):
                waited = self.now() - tried.get(site, float("-inf"))
                if sent.get(site) != sessions[site] and waited >= RESEND_SECONDS:
                    self.heard(site, "asked again" if site in tried else "asked")
                    tried[site] = self.now()
                    if self._send(site, sessions[site], headers[site], tensors[site], until - self.now()):
                        sent[site] = sessions[site]
            away = [site for site in left if site not in sessions]
            gone = [site for site in away if self.now() - self._away.setdefault(site, self.now()) > grace]
            over = self.now() > until
            if not left or over or (len(gone) == len(left) and len(found.messages) >= enough):
                self._leave_out(
                    left, found, "did not answer before the deadline" if over else "is not connected"
                )
                return found
            self.sleep(POLL_SECONDS)

    def _leave_out(self, left: list[str], found: Replies, reason: str) -> None:
        """Adds sites without a reply to those that are missing, and forgets the requests that wait for them."""
        for site in left:
            found.missing[site] = reason
            self.heard(site, f"left out: {reason}")
        self._pending = {key: one for key, one in self._pending.items() if not one.site}

    def _take(self, found: Replies, site: str, reply: OpenedMessage | str, schema: Check) -> None:
        """Adds a reply, or the refusal of either side, to what was found."""
        refusal = reply if isinstance(reply, str) else _refusal(reply)
        if isinstance(reply, OpenedMessage) and refusal is None:
            try:
                schema(reply.header, "")
            except UserError as error:
                found.missing[site] = f"gave an answer against its schema: {error}"
                self.heard(site, f"left out: its answer is against the schema: {error}")
                return
            found.messages[site] = reply
            self.heard(site, "answered")
        else:
            found.missing[site] = str(refusal)
            self.heard(site, f"refused: {refusal}")

    def _poll(self, sent: dict[str, NodeSession]) -> dict[str, OpenedMessage | str]:
        """Looks once at the grid; returns the replies by site, or the sentence why one is refused.

        A request that Flower lost is removed from ``sent``, so that it goes again.
        """
        if self.now() - self._looked >= NODES_SECONDS:
            self._look_at_nodes()
        found: dict[str, OpenedMessage | str] = {}
        for message in self.grid.pull_messages(list(self._pending)) if self._pending else ():
            pending = self._pending.pop(message.metadata.reply_to_message_id, None)
            if pending is None:
                continue
            if not pending.site:
                self._take_greeting(message, pending)
            elif sent.get(pending.site) == pending.session:
                if message.has_error():
                    sent.pop(pending.site)
                    continue
                try:
                    found[pending.site] = self._read(message, pending, pending.site)
                except UserError as error:
                    found[pending.site] = str(error)
        return found

    def _look_at_nodes(self) -> None:
        """Notes which nodes are connected, and greets those whose site is not known."""
        self._looked = self.now()
        before = self.connected.sessions()
        self.connected.online = {node.node_id: node.last_activated_at for node in self.grid.get_nodes()}
        after = self.connected.sessions()
        for site in before.keys() - after.keys():
            self.heard(site, "went away")
        for site in after.keys() - before.keys():
            self.heard(site, "is back")
        greeted = {pending.session for pending in self._pending.values() if not pending.site} | self._greeted
        for node in self.connected.unknown_nodes():
            session = NodeSession(node, self.connected.online[node])
            refused, _ = self._refused.get(session, (float("-inf"), ""))
            if session not in greeted and self.now() - refused >= REFUSED_SECONDS:
                self._send("", session, {"kind": "hello"}, {}, GREETING_TTL)

    def _take_greeting(self, message: Message, pending: PendingRequest) -> None:
        """Notes the site behind a node; a node without the signature of a site stays unknown."""
        if message.has_error():
            return
        self._greeted.add(pending.session)
        name = _claimed_name(message)
        if name not in {site.name for site in self.connected.sites}:
            self.heard("", f"a node that calls itself {name[:MOST_LETTERS]!r} is no site of this deployment")
            return
        try:
            reply = self._read(message, pending, name)
        except UserError as error:
            self.heard("", str(error))
            return
        if (refusal := _refusal(reply)) is not None:
            self._greeted.remove(pending.session)
            _, before = self._refused.get(pending.session, (0.0, ""))
            self._refused[pending.session] = (self.now(), refusal)
            if refusal != before:
                self.heard(name, f"refused: {refusal}")
            return
        try:
            GREETING(reply.header, "")
        except UserError as error:
            self.heard(name, f"is not connected: its greeting is against the schema: {error}")
            return
        if reply.header["seen"] is not None:
            self._starts[name] = max(self.start, int(reply.header["seen"][0]) + 1)
        self.connected.names[pending.session.node] = name
        self.heard(name, "is connected")

    def _read(self, message: Message, pending: PendingRequest, site: str) -> OpenedMessage:
        reply = verify(from_record(message.content), self.connected.key_of(site), site)
        expected = {"experiment": self.plan.identity, "site": site, "serial": pending.serial}
        if _refusal(reply) is not None:  # also of a site that takes part in something else
            del expected["experiment"]
            if reply.header.get("serial") == []:
                del expected["serial"]  # the site could not read the request's
        for key, value in expected.items():
            if reply.header.get(key) != value:
                raise UserError(f"{site} answers with another {key} than {value}, which was asked")
        return reply

    def _send(
        self,
        site: str,
        session: NodeSession,
        header: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        seconds: float,
    ) -> bool:
        """Gives a request to Flower; returns whether Flower took it."""
        self._count += 1
        serial = [self._starts.get(site, self.start), self._count]
        common = {"experiment": self.plan.identity, "code": self.plan.code, "serial": serial}
        message = Message(
            content=to_record(sign({**common, "site": site, **header}, tensors, self.key)),
            dst_node_id=session.node,
            message_type=MESSAGE_TYPE,
            ttl=max(seconds, 1.0),
            group_id=str(header.get("round", "")),
        )
        identities = [identity for identity in self.grid.push_messages([message]) if identity]
        self._pending |= {identity: PendingRequest(site, session, serial) for identity in identities}
        return bool(identities)


def _refusal(reply: OpenedMessage) -> str | None:
    """Returns the sentence in which a site refuses a request, on one line; None where it answers."""
    if "refused" not in reply.header:
        return None
    said = reply.header["refused"]
    plain = (
        "".join(letter if letter.isprintable() else " " for letter in said) if isinstance(said, str) else ""
    )
    return plain[:MOST_LETTERS].strip() or "without a reason"


def _claimed_name(message: Message) -> str:
    """Returns the name that a reply claims, before its signature is verified."""
    try:
        return str(json.loads(from_record(message.content).header)["site"])
    except (UserError, ValueError, KeyError, TypeError, RecursionError):
        return ""
