"""The participants of a deployed run: sites that train, settle, score and join over the network.

The rounds are those of a simulation.  Here are only the requests to sites, the checks of what they upload, and what
happens when a site is away, refuses, or comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from idiolect.core import Messages, Program, ServerState, broadcast
from idiolect.core.trees import stack, tree_leaves
from idiolect.deploy.configuration import Deployment, SiteEntry
from idiolect.deploy.private_store import END, JOIN, MERGED, TRAINED, Position
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.site_requests import Replies, SiteConnection
from idiolect.deploy.tensor_names import UnexpectedTensors, flatten, unflatten
from idiolect.errors import UserError
from idiolect.evaluation import Scores
from idiolect.experiments.client_scoring import ClientScores, NewcomerScores, concatenate, scores_of_plain
from idiolect.experiments.client_work import Work
from idiolect.experiments.round import FollowUpTasks
from idiolect.experiments.setting import Setting

__all__ = ["DeployedSites"]

Header = dict[str, Any]


@dataclass
class DeployedSites:
    """The sites of a deployment as the participants of a run.

    Args:
        known: by client, the version of its private state that came with what was merged last.
    """

    setting: Setting
    deployment: Deployment
    connection: SiteConnection
    progress: DeploymentProgress
    known: dict[int, Position] = field(default_factory=dict)

    @property
    def population(self) -> list[SiteEntry]:
        """Returns the sites that train."""
        return [site for site in self.deployment.sites if site.client < self.setting.federation.population]

    @property
    def newcomers(self) -> list[SiteEntry]:
        """Returns the sites that are to join and have not yet."""
        last = self.setting.federation.population
        return [
            site for site in self.deployment.sites if site.client >= last and site.client not in self.known
        ]

    def train(self, program: Program, sent: ServerState, cohort: list[int], observe: bool) -> SiteAnswers:
        """Has the selected sites train; goes on without sites that are away or whose upload is refused.

        Raises:
            UserError: fewer sites answer than a round needs.
        """
        round, selected = program.clock.round, set(cohort)
        asked = [site for site in self.population if site.client in selected]
        replies = self._request(asked, sent, round, {"kind": "train", "observe": observe})
        uploads = self._uploads(replies)
        self._refuse_too_few(round, len(uploads), len(asked), replies)
        sites = [site for site in asked if site.name in uploads]
        messages = stack([uploads[site.name] for site in sites])
        headers = [replies.messages[site.name].header for site in sites]
        return SiteAnswers([site.client for site in sites], messages, self, round, sites, headers)

    def follow_up(self, program: Program, server: ServerState, tasks: FollowUpTasks) -> SiteFollowUp:
        """Asks all sites for all of it in one request, because every request costs seconds."""
        if not any(tasks):
            return SiteFollowUp([], [])
        round, sent = program.clock.round, broadcast(self.setting.method, server)
        facts = {
            "settle": tasks.settle,
            "examine": tasks.score,
            "remark": tasks.remark,
            "tally": tasks.tally,
        }
        replies = self._request(self.population, sent, round, {"kind": "follow", **facts})
        sites = [site for site in self.population if site.name in replies.messages]
        headers = [replies.messages[site.name].header for site in sites]
        for site, header in zip(sites, headers, strict=True):
            if tasks.settle:
                self.known[site.client] = Position(round, END if tasks.settle == "end" else MERGED)
            if tasks.score:
                self._note_score(site, scores_of_plain(header["examined"]))
        return SiteFollowUp(sites, headers)

    def join(self, server: ServerState, round: int) -> NewcomerScores | None:
        """Lets the connected sites that never trained join; what they would upload stays with them."""
        sessions = self.connection.connected.sessions()
        there = [site for site in self.newcomers if site.name in sessions]
        sent = broadcast(self.setting.method, server)
        replies = self._request(there, sent, round, {"kind": "join"}, enough=0)
        found: list[NewcomerScores] = []
        for site in there:
            if site.name in replies.messages:
                before, joined, work = replies.messages[site.name].header["arrival"]
                did = [(site.client, Work(*work))]
                found.append(NewcomerScores(before, scores_of_plain(joined), did))
                self._note_score(site, found[-1].joined)
                self.known[site.client] = Position(round, JOIN)
                self.progress.heard(site.name, "has joined")
        if not found:
            return None
        before = concatenate(ClientScores([], one.before, {}) for one in found).test
        work = [did for one in found for did in one.work]
        return NewcomerScores(before, concatenate(one.joined for one in found), work)

    def state(self) -> dict[str, Any]:
        """Returns the versions that the server knows; private state is with the sites."""
        return {"known": {str(client): torch.tensor(position) for client, position in self.known.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.known = {
            int(client): Position(*position.tolist()) for client, position in state["known"].items()
        }

    def _request(
        self, sites: list[SiteEntry], sent: ServerState, round: int, header: Header, enough: int | None = None
    ) -> Replies:
        """Sends a request to these sites; too few replies are the caller's to refuse.

        Args:
            enough: replies after which sites that are away are not waited for; by default those that a round needs.
        """
        if not sites:
            return Replies({}, {})
        headers = {
            site.name: {**header, "round": round, "known": self.known.get(site.client)} for site in sites
        }
        options = self.deployment
        replies = self.connection.request(
            headers,
            flatten(sent),
            deadline=options.deadline,
            grace=options.grace,
            enough=min(options.min_sites, len(sites)) if enough is None else enough,
        )
        for name, message in replies.messages.items():
            self._report_gap(name, round, headers[name]["known"], message.header)
        return replies

    def _uploads(self, replies: Replies) -> dict[str, Messages]:
        """Returns the uploads by site; one of another form or that is not finite becomes missing in ``replies``."""
        forms = [forms.messages for forms in self.setting.forms]
        uploads: dict[str, Messages] = {}
        for name, message in list(replies.messages.items()):
            try:
                upload = unflatten(message.tensors, forms, f"the upload of {name}")
                if not all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(upload)):
                    raise UnexpectedTensors(f"the upload of {name} holds numbers that are not finite")
                uploads[name] = cast("Messages", upload)
            except UnexpectedTensors as error:
                del replies.messages[name]
                replies.missing[name] = str(error)
                self.progress.heard(name, f"left out: {error}")
        return uploads

    def _refuse_too_few(self, round: int, answered: int, asked: int, replies: Replies) -> None:
        needed = min(self.deployment.min_sites, asked)
        if answered < needed:
            reasons = "; ".join(f"{name} {reason}" for name, reason in sorted(replies.missing.items()))
            raise UserError(
                f"round {round + 1} needs {needed} sites and {answered} answered ({reasons}); bring them back and "
                "go on with idiolect deploy run"
            )

    def _report_gap(self, name: str, round: int, known: Position | None, header: Header) -> None:
        """Reports a site that continues from an earlier state than the server knows, or after rounds without it."""
        if known is None:
            if round:
                self.progress.heard(name, "takes part for the first time")
            return
        base = header.get("base")
        if "base" in header and base != list(known):
            since = f"round {base[0] + 1}" if base else "nothing"
            self.progress.heard(name, f"goes on from {since}, where the server knew round {known.round + 1}")
        elif round - known.round > 1:
            self.progress.heard(name, f"is back after {round - known.round - 1} rounds without it")

    def _note_score(self, site: SiteEntry, scores: ClientScores) -> None:
        headline = self.setting.headline
        if headline in scores.test:
            metric = self.setting.primary_metric
            self.progress.note(site.name, judged_by=metric, **{metric: scores.test[headline][metric][0]})


@dataclass
class SiteAnswers:
    """What the sites of a round uploaded, already checked.

    Args:
        headers: of the replies, in the order of ``sites``.
    """

    clients: list[int]
    messages: Messages
    participants: DeployedSites
    round: int
    sites: list[SiteEntry]
    headers: list[Header]

    @property
    def downloaded(self) -> list[int]:
        return self.clients

    def check(self) -> None:
        """Has nothing to do: uploads are checked one by one as they arrive, and bad ones left out."""

    def keep(self) -> None:
        """Notes the version of each site's private state that is merged now; the state is with the site."""
        for site, header in zip(self.sites, self.headers, strict=True):
            self.participants.known[site.client] = Position(self.round, TRAINED)
            facts = {key: header[key] for key in ("loss", "digest", "base_digest")}
            self.participants.progress.note(site.name, round=self.round + 1, **facts)

    def mean_loss(self) -> float:
        return float(sum(header["loss"] for header in self.headers) / len(self.headers))

    def work(self) -> Iterator[tuple[int, Work]]:
        return _reported_work(self.sites, self.headers)

    def scores(self) -> Iterator[tuple[list[int], Mapping[str, Scores]]]:
        for site, header in zip(self.sites, self.headers, strict=True):
            yield [site.client], header["scores"]


@dataclass(frozen=True)
class SiteFollowUp:
    """Scores and remarks that sites have replied with.

    Args:
        sites: those that replied.
        headers: of the replies, in the order of ``sites``.
    """

    sites: list[SiteEntry]
    headers: list[Header]

    def scores(self) -> ClientScores | None:
        if not self.headers:
            return None
        return concatenate(scores_of_plain(header["examined"]) for header in self.headers)

    def remarks(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        for site, header in zip(self.sites, self.headers, strict=True):
            yield site.client, header.get("remarks", {})

    def work(self) -> Iterator[tuple[int, Work]]:
        return _reported_work(self.sites, self.headers)


def _reported_work(sites: list[SiteEntry], headers: list[Header]) -> Iterator[tuple[int, Work]]:
    """Yields by client the work that its site says it did for a request; some requests need none."""
    for site, header in zip(sites, headers, strict=True):
        if "work" in header:
            yield site.client, Work(*header["work"])
