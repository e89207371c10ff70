"""The participants of a deployed run: sites that train, settle, score and join over the network.

The rounds are those of a simulation.  Here are only the requests to sites, the checks of what they upload, and what
happens when a site is away, refuses, or comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from idiolect.core import Messages, Program, ServerState
from idiolect.core.trees import stack
from idiolect.deploy.answer_schema import (
    Check,
    follow_up_answer,
    join_answer,
    rows_at_most,
    training_answer,
)
from idiolect.deploy.configuration import Deployment, SiteEntry, read_deployment
from idiolect.deploy.private_store import END, JOIN, MERGED, TRAINED, Position
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.secure_sums import Misfit
from idiolect.deploy.server_sums import NoSum, ServerSums, new_session
from idiolect.deploy.site_requests import Replies, SiteConnection
from idiolect.deploy.spent_budget import note_spent
from idiolect.deploy.summed_answers import (
    LOSS,
    Name,
    Summed,
    follow_up_statements,
    layout_of,
    scores_at,
    scores_of,
    spread,
    training_statements,
    unpack,
    uploads_of,
    work_of_each,
)
from idiolect.deploy.tensor_names import OWN, UnexpectedTensors, flatten
from idiolect.deploy.upload_limits import odd_ones, overlong, overweight, readable_upload
from idiolect.errors import UserError
from idiolect.evaluation import Scores
from idiolect.experiments.rounds.client_scoring import (
    ClientScores,
    NewcomerScores,
    concatenate,
    scores_of_plain,
)
from idiolect.experiments.rounds.client_work import Work
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads, Sent
from idiolect.experiments.rounds.round import FollowUpTasks
from idiolect.experiments.setting import Setting
from idiolect.records import NO_CLIENT

__all__ = ["DeployedSites"]

Header = dict[str, Any]


@dataclass
class DeployedSites:
    """The sites of a deployment as the participants of a run.

    Args:
        downloads: makes what the server sends to single sites.
        known: by client, the version of its private state that came with what was merged last.
        era: names the last rollback, after which sites go back too; empty before the first.
        spent: by site, what it says that it has spent of differential privacy, by parts with noise.
    """

    setting: Setting
    deployment: Deployment
    connection: SiteConnection
    progress: DeploymentProgress
    downloads: PersonalDownloads
    era: str = ""
    known: dict[int, Position] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=dict)

    @property
    def sums(self) -> ServerSums | None:
        """Makes secure sums; None where the server sees single uploads."""
        rules, folder = self.connection.plan.sums, self.deployment.server
        if rules is None:
            return None
        return ServerSums(folder, rules.threshold, self.era, self._ask_step, self.progress)

    @property
    def fewest(self) -> int:
        """Returns the answers that a round needs."""
        rules = self.connection.plan.sums
        return max(self.deployment.min_sites, rules.threshold if rules else 0)

    @property
    def population(self) -> list[SiteEntry]:
        """Returns the sites that train."""
        return [site for site in self.deployment.members if site.client < self.setting.federation.population]

    @property
    def newcomers(self) -> list[SiteEntry]:
        """Returns the sites that are to join and have not yet."""
        last = self.setting.federation.population
        return [
            site for site in self.deployment.members if site.client >= last and site.client not in self.known
        ]

    def train(self, program: Program, sent: Sent, cohort: list[int], observe: bool) -> SiteAnswers:
        """Has the selected sites train; goes on without sites that are away or whose upload is refused.

        Raises:
            UserError: fewer sites answer than a round needs.
        """
        round, selected = program.clock.round, set(cohort)
        self._note_excluded()
        asked = [site for site in self.population if site.client in selected]
        answer = training_answer(self.setting, observe, self.sums is not None)
        header = {"kind": "train", "observe": observe}
        if self.sums is not None:
            return self._train_summed(asked, sent, round, header, answer)
        replies = self._request(asked, sent, round, header, lambda site: answer)
        self._note_spent(replies)
        uploads = self._uploads(replies, asked, sent)
        self._refuse_too_few(round, len(uploads), len(asked), replies)
        sites = [site for site in asked if site.name in uploads]
        messages = stack([uploads[site.name] for site in sites]) if sites else {}
        headers = [replies.messages[site.name].header for site in sites]
        for site, header in zip(sites, headers, strict=True):
            self._report_gap(site, round, header)
        return SiteAnswers([site.client for site in sites], messages, self, round, sites, headers)

    def _train_summed(
        self, asked: list[SiteEntry], sent: Sent, round: int, header: Header, schema: Check
    ) -> SiteAnswers:
        """Has sites train, and learns the sum of their answers alone.

        Raises:
            UserError: there is no sum of enough sites, or no sites within their limits can have made it.
        """
        names, what = training_statements(self.setting, bool(header["observe"])), uploads_of(round)
        header = {**header, "session": new_session()}
        replies = self._request(asked, sent, round, header, lambda site: schema)
        self._note_spent(replies)
        summed, added = self._add_up(what, header["session"], replies, names, uploads=True)
        mean = {"the mean": spread(summed.messages, 1)}
        for reason in overlong(mean, sent.received_by_one(), self.deployment.norm_bound).values():
            raise UserError(
                f"the {what} are not merged: {reason}, and a sum does not tell whose it is; exclude a site that you "
                f"doubt with idiolect deploy exclude, and go back with idiolect deploy rollback --to {round}"
            )
        sites = [site for site in asked if site.name in added]
        headers = [replies.messages[site.name].header for site in sites]
        for site, each in zip(sites, headers, strict=True):
            self._report_gap(site, round, each)
        clients = [site.client for site in sites]
        return SiteAnswers(clients, spread(summed.messages, len(sites)), self, round, sites, headers, summed)

    def _add_up(
        self, what: str, session: str, replies: Replies, names: list[Name], *, uploads: bool
    ) -> tuple[Summed, list[str]]:
        """Returns the sum of what sites announced in their replies, and which sites it holds.

        Raises:
            UserError: there is no sum of enough sites, or no sites within their limits can have made it.
        """
        sums, rules = self.sums, self.connection.plan.sums
        assert sums is not None and rules is not None
        before = sums.members(what)
        there = {name: one for name, one in replies.messages.items() if not before or name in before}
        length = layout_of(self.setting, names, uploads).length
        total = sums.add_up(what, session, Replies(there, dict(replies.missing)), length)
        summed = unpack(self.setting, rules, names, uploads, total.words, len(total.sites))
        self._report_means(summed, len(total.sites))
        return summed, total.sites

    def _ask_step(
        self, kind: str, headers: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Check]
    ) -> Replies:
        """Asks sites for a step of a sum."""
        options = self.deployment
        return self.connection.request(
            {
                name: {**header, "kind": kind, "round": self.progress.round}
                for name, header in headers.items()
            },
            {name: {} for name in headers},
            deadline=options.deadline,
            grace=options.grace,
            enough=min(self.fewest, len(headers)),
            schemas=schemas,
        )

    def _report_means(self, summed: Summed, count: int) -> None:
        """Reports the mean loss and score of the sites, where those of single ones stay with them."""
        headline, metric = self.setting.headline, self.setting.primary_metric
        named = {LOSS: "loss", ("test", headline, metric): metric}
        said = [f"{name} {summed.means[key]:.4g}" for key, name in named.items() if key in summed.means]
        if said:
            self.progress.heard("", f"mean of {count} sites: {', '.join(said)}")

    def follow_up(self, program: Program, server: ServerState, tasks: FollowUpTasks) -> SiteFollowUp:
        """Asks all sites for all of it in one request, because every request costs seconds."""
        if not any(tasks):
            return SiteFollowUp([], [])
        everyone, settles = [site.client for site in self.population], tasks.settle is not None
        round, sent = program.clock.round, self.downloads.for_follow_up(program, server, everyone, settles)
        facts = {
            "settle": tasks.settle,
            "examine": tasks.score,
            "remark": tasks.remark,
            "tally": tasks.tally,
        }
        replies, summed = self._followed(sent, round, {"kind": "follow", **facts}, tasks)
        if tasks.score and self.sums is None:
            self._leave_out_odd(replies, lambda header: _predictors(header["examined"]), "predictors")
        sites = [site for site in self.population if site.name in replies.messages]
        headers = [replies.messages[site.name].header for site in sites]
        for site, header in zip(sites, headers, strict=True):
            self._report_gap(site, round, header)
            if tasks.settle:
                self.known[site.client] = Position(round, END if tasks.settle == "end" else MERGED)
            if "examined" in header:
                self._note_score(site, scores_of_plain(header["examined"]))
        return SiteFollowUp(sites, headers, summed)

    def _followed(
        self, sent: Sent, round: int, header: Header, tasks: FollowUpTasks
    ) -> tuple[Replies, Summed | None]:
        """Returns the replies to a follow-up, and their sum where nothing else is to be seen of them."""
        has_sums = self.sums is not None
        schema = lambda site: follow_up_answer(self.setting, site, tasks, has_sums)  # noqa: E731
        names = follow_up_statements(self.setting, tasks)
        if self.sums is None or not names:
            return self._request(self.population, sent, round, header, schema), None
        session = new_session()
        replies = self._request(self.population, sent, round, {**header, "session": session}, schema)
        try:
            summed, _ = self._add_up(scores_of(round, tasks.settle), session, replies, names, uploads=False)
        except (NoSum, Misfit) as error:
            self.progress.heard("", f"goes on without a sum: {error}")
            return replies, None
        return replies, summed

    def join(self, server: ServerState, round: int) -> NewcomerScores | None:
        """Lets the connected sites that never trained join; what they would upload stays with them."""
        sessions, has_sums = self.connection.connected.sessions(), self.sums is not None
        there = [site for site in self.newcomers if site.name in sessions]
        program = self.setting.program(round, newcomer=True)
        sent = self.downloads.send(program, server, [site.client for site in there])
        replies = self._request(
            there,
            sent,
            round,
            {"kind": "join"},
            lambda site: join_answer(self.setting, site, has_sums),
            enough=0,
        )
        if self.setting.numbers_stay_at_sites:
            for site in (one for one in there if one.name in replies.messages):
                self._note_joined(site, round)
            return None
        if not has_sums:
            self._leave_out_odd(replies, lambda header: _predictors(header["arrival"][1]), "predictors")
        found: list[NewcomerScores] = []
        for site in there:
            if site.name in replies.messages:
                if "arrival" in replies.messages[site.name].header:
                    before, joined, work = replies.messages[site.name].header["arrival"]
                    did = [(site.client, Work(*work))]
                    found.append(NewcomerScores(before, scores_of_plain(joined), did))
                    self._note_score(site, found[-1].joined)
                self._note_joined(site, round)
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

    def _note_excluded(self) -> None:
        """Reads which sites are excluded now, and says which were not before or are no longer."""
        before = set(self.deployment.excluded)
        self.deployment = replace(self.deployment, excluded=read_deployment(self.deployment.folder).excluded)
        after = set(self.deployment.excluded)
        for name in sorted(before ^ after):
            self.progress.heard(name, "is excluded" if name in after else "is included again")

    def _request(
        self,
        sites: list[SiteEntry],
        sent: Sent,
        round: int,
        header: Header,
        schema: Callable[[SiteEntry], Check],
        enough: int | None = None,
    ) -> Replies:
        """Sends a request to these sites; too few replies are the caller's to refuse.

        Args:
            schema: returns what a site's answer must be like.
            enough: replies after which sites that are away are not waited for; by default those that a round needs.
        """
        if not sites:
            return Replies({}, {})
        options, own, shared = self.deployment, sent.by_client(), flatten(sent.shared)
        common = {**header, "round": round, "era": self.era, "keep": options.checkpoints}
        headers = {site.name: {**common, "known": self.known.get(site.client)} for site in sites}
        return self.connection.request(
            headers,
            {site.name: {**shared, **flatten(own[site.client], OWN)} for site in sites},
            deadline=options.deadline,
            grace=options.grace,
            enough=min(self.fewest, len(sites)) if enough is None else enough,
            schemas={site.name: schema(site) for site in sites},
        )

    def _uploads(self, replies: Replies, asked: list[SiteEntry], sent: Sent) -> dict[str, Messages]:
        """Returns the uploads by site; one of another form or out of its limits becomes missing in ``replies``."""
        forms = [forms.messages for forms in self.setting.forms]
        by_samples = self.setting.experiment.weighting == "samples"
        uploads: dict[str, Messages] = {}
        for site in (one for one in asked if one.name in replies.messages):
            try:
                uploads[site.name] = readable_upload(replies.messages[site.name].tensors, forms)
            except UnexpectedTensors as error:
                self._leave_out(replies, site.name, str(error))
        shapes = {name: _shapes(upload) for name, upload in uploads.items()}
        self._leave_out_odd(replies, lambda header: shapes[header["site"]], "tensors")
        uploads = {name: upload for name, upload in uploads.items() if name in replies.messages}
        most = {site.name: float(rows_at_most(site) if by_samples else 1) for site in asked}
        bound = self.deployment.norm_bound
        own = self.setting.method.own_weights
        outside = {
            **overlong(uploads, sent.received_by_one(), bound),
            **overweight(uploads, most, own, bound),
        }
        for name, reason in outside.items():
            self._leave_out(replies, name, reason)
        return {name: upload for name, upload in uploads.items() if name in replies.messages}

    def _leave_out(self, replies: Replies, name: str, reason: str) -> None:
        """Makes a reply missing, and says why."""
        del replies.messages[name]
        replies.missing[name] = reason
        self.progress.heard(name, f"left out: {reason}")

    def _leave_out_odd(self, replies: Replies, kind: Callable[[Header], Hashable], what: str) -> None:
        """Leaves out replies that are fit alone and not beside the others, because ``what`` they hold differs."""
        kinds = {name: kind(message.header) for name, message in replies.messages.items()}
        for name in odd_ones(kinds):
            self._leave_out(replies, name, f"its answer has other {what} than those of the other sites")

    def _refuse_too_few(self, round: int, answered: int, asked: int, replies: Replies) -> None:
        needed = min(self.fewest, asked)
        if answered < needed:
            reasons = "; ".join(f"{name} {reason}" for name, reason in sorted(replies.missing.items()))
            raise UserError(
                f"round {round + 1} needs {needed} sites and {answered} answered ({reasons}); bring them back and "
                "go on with idiolect deploy run"
            )

    def _report_gap(self, site: SiteEntry, round: int, header: Header) -> None:
        """Reports a site that continues from an earlier state than the server knows, or after rounds without it."""
        name, known = site.name, self.known.get(site.client)
        if known is None:
            if round:
                self.progress.heard(name, "takes part for the first time")
            return
        base = header.get("base")
        if "base" in header and base != list(known):
            since = f"round {base[0] + 1}" if base else "nothing"
            self.progress.heard(name, f"goes on from {since}, where the server knew round {known.round + 1}")
        elif round - known.round > 1:
            missed = round - known.round - 1
            self.progress.heard(name, f"is back after {missed} round{'s' * (missed > 1)} without it")

    def _note_joined(self, site: SiteEntry, round: int) -> None:
        self.known[site.client] = Position(round, JOIN)
        self.progress.heard(site.name, "has joined")

    def _note_spent(self, replies: Replies) -> None:
        """Notes what sites say that they have spent, of every upload that came, merged or not."""
        said = {name: m.header["spent"] for name, m in replies.messages.items() if "spent" in m.header}
        for name, numbers in said.items():
            self.progress.note(name, epsilon=max(numbers))
        note_spent(self.deployment.server, self.spent, said)

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
        summed: what is known of them where secure aggregation shows sums alone; their messages are then the mean.
    """

    clients: list[int]
    messages: Messages
    participants: DeployedSites
    round: int
    sites: list[SiteEntry]
    headers: list[Header]
    summed: Summed | None = None

    @property
    def downloaded(self) -> list[int]:
        return self.clients

    def check(self) -> None:
        """Has nothing to do: uploads are checked one by one as they arrive, and bad ones left out."""

    def keep(self) -> None:
        """Notes the version of each site's private state that is merged now; the state is with the site."""
        for site, header in zip(self.sites, self.headers, strict=True):
            self.participants.known[site.client] = Position(self.round, TRAINED)
            facts = {key: header[key] for key in ("loss", "digest", "base_digest") if key in header}
            self.participants.progress.note(site.name, round=self.round + 1, **facts)

    def mean_loss(self) -> float:
        if self.summed:
            return self.summed.means.get(LOSS, math.nan)
        losses = [header["loss"] for header in self.headers if "loss" in header]
        return float(sum(losses) / len(losses)) if losses else math.nan

    def work(self) -> Iterable[tuple[int, Work]]:
        if self.summed:
            return work_of_each(self.clients, self.summed.work)
        return _reported_work(self.sites, self.headers)

    def scores(self) -> Iterator[tuple[list[int], Mapping[str, Scores]]]:
        if self.summed and not all("scores" in header for header in self.headers):
            yield [NO_CLIENT], {when: scores_at(self.summed.means, when) for when in ("before", "after")}
            return
        for site, header in zip(self.sites, self.headers, strict=True):
            yield [site.client], header["scores"]


@dataclass(frozen=True)
class SiteFollowUp:
    """Scores and remarks that sites have replied with.

    Args:
        sites: those that replied.
        headers: of the replies, in the order of ``sites``.
        summed: what is known of them where secure aggregation shows sums alone.
    """

    sites: list[SiteEntry]
    headers: list[Header]
    summed: Summed | None = None

    def scores(self) -> ClientScores | None:
        told = [header for header in self.headers if "examined" in header]
        if len(told) < len(self.headers):
            means = self.summed.means if self.summed else {}
            test, valid = (scores_at(means, split) for split in ("test", "valid"))
            return ClientScores([NO_CLIENT], test, valid) if test else None
        if not told:
            return None
        return concatenate(scores_of_plain(header["examined"]) for header in self.headers)

    def remarks(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        for site, header in zip(self.sites, self.headers, strict=True):
            yield site.client, header.get("remarks", {})

    def work(self) -> Iterable[tuple[int, Work]]:
        if self.summed:
            return work_of_each([site.client for site in self.sites], self.summed.work)
        return _reported_work(self.sites, self.headers)


def _shapes(upload: Messages) -> Hashable:
    return tuple((name, leaf.shape, leaf.dtype) for name, leaf in sorted(flatten(upload).items()))


def _predictors(plain: list[Any]) -> Hashable:
    """Returns of what predictors there are scores, of both splits, and counts."""
    return tuple(frozenset(found) for found in plain[1:])


def _reported_work(sites: list[SiteEntry], headers: list[Header]) -> Iterator[tuple[int, Work]]:
    """Yields by client the work that its site says it did for a request; some requests need none."""
    for site, header in zip(sites, headers, strict=True):
        if "work" in header:
            yield site.client, Work(*header["work"])
