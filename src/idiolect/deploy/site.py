"""A site: answers the server's requests for one client, with its own rows and its private state on its own disk."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from torch import Tensor

from idiolect.core import Messages, ServerState, Tree, released, without_replaced
from idiolect.core.trees import any_nan, stack, tree_map
from idiolect.deploy.answer_schema import OWN_NUMBERS
from idiolect.deploy.code_digest import code_digest
from idiolect.deploy.configuration import (
    MOST_CHECKPOINTS,
    SITE,
    DeploymentPlan,
    SiteConfig,
    read_plan,
    read_site,
)
from idiolect.deploy.keys import keep_to_owner, private_key, public_key
from idiolect.deploy.private_store import END, JOIN, MERGED, TRAINED, Position, PrivateStore
from idiolect.deploy.signed_messages import OpenedMessage, SignedMessage, sign, verify
from idiolect.deploy.site_data import site_federation
from idiolect.deploy.site_sums import PEERS, SiteSums
from idiolect.deploy.site_sums import STEPS as SUM_STEPS
from idiolect.deploy.spent_budget import SiteBudget
from idiolect.deploy.summed_answers import (
    LOSS,
    Name,
    Statements,
    follow_up_statements,
    pack,
    scores_of,
    stated_scores,
    stated_work,
    training_statements,
    uploads_of,
)
from idiolect.deploy.tensor_names import flatten, tree_digest, unflatten
from idiolect.engines import EngineChoice, LoopEngine
from idiolect.errors import UserError
from idiolect.experiments.rounds.client_scoring import (
    ClientScores,
    plain_scores,
    remarks_of,
    score_clients,
    score_newcomers,
    score_outcomes,
    scores_of_plain,
)
from idiolect.experiments.rounds.client_work import Work, WorkCounter
from idiolect.experiments.rounds.divergence import broken_rows, refuse_broken, settle_moment
from idiolect.experiments.rounds.newcomers import join
from idiolect.experiments.rounds.personal_downloads import Sent
from idiolect.experiments.rounds.round import FollowUpTasks
from idiolect.experiments.setting import Setting, assemble

__all__ = ["Site", "private_store"]

STEPS = {"merged": MERGED, "end": END}

Answer = tuple[dict[str, Any], dict[str, Tensor]]


@dataclass(frozen=True)
class Site:
    """Answers the server's requests on the engine ``loop`` for its one client.

    Args:
        say: is told what the site is asked and what it refuses; no number of a model or of the data.
    """

    config: SiteConfig
    plan: DeploymentPlan
    setting: Setting
    store: PrivateStore
    say: Callable[[str], None]

    @classmethod
    def open(cls, folder: Path, say: Callable[[str], None] = lambda sentence: None) -> Site:
        """Opens a site's folder and checks all that its work needs.

        Raises:
            UserError: the experiment or the code is not what the site agreed to, or its data or store are unusable.
        """
        config = read_site(folder)
        keep_to_owner(config.folder)
        plan = read_plan(config.folder)
        _refuse_other(config, plan.identity, code_digest(config.folder)[:16])
        if config.share_scores is not None and plan.sums is None:
            raise UserError(
                f"share_scores in {config.folder / SITE} is for secure aggregation, which this deployment has not; "
                "take the line out"
            )
        federation = site_federation(plan, config)
        setting = assemble(
            plan.experiment,
            EngineChoice("loop", "cpu", "a site"),
            federation,
            plan.inputs,
            held=[config.client],
            is_deployed=True,
        )
        store = private_store(config, plan, setting.private_shapes)
        store.check()
        private_key(config.folder / "key")
        site = cls(config, plan, setting, store, say)
        site.budget.spent()
        site.counter.count_steps()
        return site

    @property
    def client(self) -> int:
        return self.config.client

    @cached_property
    def budget(self) -> SiteBudget:
        return SiteBudget(self.setting, self.client, self.store.folder, self.config.most_epsilon)

    @cached_property
    def counter(self) -> WorkCounter:
        return WorkCounter(self.setting)

    @cached_property
    def sums(self) -> SiteSums | None:
        """The site's part in secure sums; None where the server sees single uploads."""
        rules, folder = self.plan.sums, self.config.folder
        if rules is None:
            return None
        era = lambda: self.store.seen().era  # noqa: E731
        most = self.setting.federation.population
        key, peers = private_key(folder / "key"), folder / PEERS
        return SiteSums(self.store.folder, peers, self.config.name, key, rules.threshold, most, era)

    def reply(self, message: SignedMessage) -> SignedMessage:
        """Returns the signed answer to a request, or a signed refusal in one sentence."""
        header: dict[str, Any] = {}
        tensors: dict[str, Tensor] = {}
        serial: Sequence[int] = ()
        try:
            request = verify(message, public_key(self.config.folder / "server.pub"), "the server")
            serial = request.header["serial"]
            header, tensors = self.answer(request)
        except UserError as error:
            header = {"refused": str(error)}
            self.say(f"refused: {error}")
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or "its private state cannot be written"
            header = {
                "refused": f"the folder of {self.config.name} cannot be used: {reason}; its log says more"
            }
            self.say(f"failed: {''.join(traceback.format_exception(error))}")
        except Exception as error:
            header = {"refused": f"{type(error).__name__} at {self.config.name}, whose log says more"}
            self.say(f"failed: {''.join(traceback.format_exception(error))}")
        own = {"experiment": self.plan.identity, "site": self.config.name, "serial": list(serial)}
        return sign({**header, **own}, tensors, private_key(self.config.folder / "key"))

    def answer(self, request: OpenedMessage) -> Answer:
        """Does what a request asks for; returns the header and the tensors of the reply.

        Raises:
            UserError: the request is of another experiment, method or site, or is a repetition.
        """
        header = request.header
        _refuse_other(self.config, header["experiment"], header["code"])
        if header["site"] != self.config.name and header["kind"] != "hello":
            raise UserError(f"a message for {header['site']} came to {self.config.name}")
        if sentence := self.store.mend_seen():
            self.say(sentence)
        if header["kind"] != "hello":
            self.store.accept(header["serial"])
        self.say(f"{header['kind']}, round {header.get('round', -1) + 1}")
        if header["kind"] == "hello":  # changes nothing, so that a repetition does no harm
            return {"position": self.store.newest(), "seen": self.store.seen().serial or None}, {}
        if self.sums and header["kind"] in SUM_STEPS:
            return self.sums.answer(header)
        sent = self._sent(request.tensors)
        known = Position(*header["known"]) if header["known"] is not None else None
        if aside := self.store.go_back(header["era"], known):
            self.say(
                f"goes back with the server: private state from round {aside[0].round + 1} on is put aside"
            )
        work = {"train": self._train, "follow": self._follow, "join": self._join}[header["kind"]]
        return work(header, sent, known)

    def _sent(self, tensors: Mapping[str, Tensor]) -> Sent:
        """Returns what the server sends: the shared model, and what it made for this site alone."""
        forms: list[Tree] = []
        for each in self.setting.forms:
            for shared in each.broadcasts:
                forms.append(shared)
                if each.download:
                    own = {"own": each.download}
                    forms += [{**shared, **own}, {**without_replaced(shared, each.download), **own}]
        found = dict(cast("dict[str, Any]", unflatten(tensors, forms, "the shared model")))
        alone = tree_map(lambda leaf: leaf[None], found.pop("own", {}))
        return Sent(cast("ServerState", found), [self.client], alone)

    def _train(self, header: dict[str, Any], sent: Sent, known: Position | None) -> Answer:
        """Trains a round of the method, and uploads what the method shares; the numbers of a private one stay here."""
        round, told = header["round"], not self.setting.numbers_stay_at_sites
        self._refuse_to_tell(header["observe"])
        self.budget.allow(round)
        program = self.setting.program(round)
        private, facts = self._private(known, Position(round, TRAINED))
        (outcome,) = LoopEngine(self.setting.work).round(
            program, sent.shared, sent.with_own({self.client: private}), header["observe"]
        )
        method, noise = self.setting.method, self.setting.work.noise
        made = stack([outcome.messages])
        leaving = released(method, sent.shared, sent.own, [self.client], made, program.clock, noise)
        upload = tree_map(lambda leaf: leaf[0], leaving)
        broken = broken_rows(leaving, outcome.loss[None], [outcome.private])
        sent_and_kept = {"upload": upload, "loss": outcome.loss, "private": outcome.private}
        self._refuse_broken("training", round + 1, broken, sent_and_kept)
        self.store.write(Position(round, TRAINED), outcome.private, known, _rounds_kept(header))
        scores = score_outcomes(self.setting, round, [self.client], [outcome]) if header["observe"] else {}
        facts["digest"] = self.store.digest(outcome.private)
        if not told:
            facts["spent"] = self.budget.count(round)
            self.say(self.budget.sentence())
        said: Statements = {}
        if told:
            (work,) = self.counter.of(program, "round", [self.client])
            said = {LOSS: float(outcome.loss), **stated_scores(scores), **stated_work(work)}
        if self.sums is not None:
            names = training_statements(self.setting, header["observe"])
            facts["keys"] = self._add(header, sent, uploads_of(round), names, said, upload)
            return facts | ({"scores": scores} if self.config.share_scores else {}), {}
        facts |= {"scores": scores, **({"loss": said[LOSS], "work": work} if told else {})}
        return facts, flatten(upload)

    def _add(
        self,
        header: dict[str, Any],
        sent: Sent,
        what: str,
        names: list[Name],
        said: Statements,
        upload: Messages | None,
    ) -> dict[str, str]:
        """Announces what the site adds to a sum; returns its signed keys."""
        assert self.sums is not None and self.plan.sums is not None
        words = pack(self.setting, self.plan.sums, names, said, upload)
        return self.sums.begin(header["session"], what, tree_digest(sent.shared, b""), words)

    def _follow(self, header: dict[str, Any], sent: Sent, known: Position | None) -> Answer:
        """Runs the method's stages after a merge or at the end, then scores and remarks where they are asked for."""
        round, phase = header["round"], header["settle"]
        program = self.setting.program(round)
        self._refuse_to_tell(header["examine"] or header["remark"])
        position = Position(round, STEPS[phase or "merged"])
        private, facts = self._private(known, position)
        if phase:
            given = sent.with_own({self.client: private})
            (private,) = LoopEngine(self.setting.work).settle(program, phase, sent.shared, given)
            self._refuse_broken(*settle_moment(phase, round), any_nan([private]), {"private": private})
            self.store.write(position, private, known, _rounds_kept(header))
            facts["digest"] = self.store.digest(private)
            if not self.setting.numbers_stay_at_sites:
                (facts["work"],) = self.counter.of(program, phase, [self.client])
        row: Mapping[int, Tree] = {self.client: private}
        given = sent.with_own(row) if self.setting.method.scored_with_download else row
        if header["examine"]:
            engine = LoopEngine(self.setting.work)
            scores = score_clients(self.setting, engine, program, sent.shared, [given], header["tally"])
            facts["examined"] = plain_scores(scores)
        if header["remark"]:
            facts["remarks"] = remarks_of(self.setting, program, sent.shared, self.client, given[self.client])
        return (facts if self.sums is None else self._summed_follow_up(header, sent, facts)), {}

    def _summed_follow_up(self, header: dict[str, Any], sent: Sent, facts: dict[str, Any]) -> dict[str, Any]:
        """Returns what the server may see of the answer to a follow-up, and announces what it sees in a sum."""
        tasks = FollowUpTasks(header["settle"], header["examine"], header["remark"], header["tally"])
        work = facts.pop("work", Work(0, 0.0))
        own = {key: facts.pop(key) for key in OWN_NUMBERS if key in facts}
        if names := follow_up_statements(self.setting, tasks):
            scores = scores_of_plain(own["examined"]) if tasks.score else ClientScores([], {}, {})
            said = {**stated_scores({"test": scores.test, "valid": scores.valid}), **stated_work(work)}
            what = scores_of(header["round"], header["settle"])
            facts["keys"] = self._add(header, sent, what, names, said, None)
        return {**facts, **own} if self.config.share_scores else facts

    def _refuse_to_tell(self, asked: bool) -> None:
        """Refuses numbers that the noise of the method does not cover."""
        if asked and self.setting.numbers_stay_at_sites:
            raise UserError(
                f"{self.config.name} tells no scores and no numbers of parts, which the noise of "
                f"{self.setting.experiment.method} does not cover"
            )

    def _refuse_broken(self, moment: str, round: int, broken: Tensor, tree: Tree) -> None:
        method = self.setting.experiment.method
        refuse_broken(method, moment, round, [self.client], broken, lambda place: tree)

    def _join(self, header: dict[str, Any], sent: Sent, known: Position | None) -> Answer:
        """Joins after the last round by the method's rule for newcomers; uploads nothing."""
        round, engine = header["round"], LoopEngine(self.setting.work)
        joined = join(self.setting, engine, sent, round)
        self.store.write(Position(round, JOIN), joined.privates[self.client], known, _rounds_kept(header))
        facts = {"digest": self.store.digest(joined.privates[self.client])}
        if self.setting.numbers_stay_at_sites:
            return facts, {}
        scores = score_newcomers(self.setting, joined)
        (work,) = self.counter.of_joining(joined.program, [self.client])
        arrival = {"arrival": [scores.before, plain_scores(scores.joined), work]}
        return {**(arrival if self.sums is None or self.config.share_scores else {}), **facts}, {}

    def _private(self, known: Position | None, asked: Position) -> tuple[Tree, dict[str, Any]]:
        """Returns the private state that work starts from, and what the server is told of it."""
        base = self.store.base(known, asked)
        private = self.setting.first_private(self.client) if base is None else self.store.read(base)
        return private, {"base": base, "base_digest": self.store.digest(private)}


def private_store(config: SiteConfig, plan: DeploymentPlan, forms: Sequence[Tree]) -> PrivateStore:
    """Returns the store of one experiment and site, which its folder and every file in it name."""
    folder = config.folder / config.private / f"{plan.identity}-{config.name}"
    return PrivateStore(folder, {"experiment": plan.identity, "site": config.name}, forms)


def _rounds_kept(header: dict[str, Any]) -> int:
    """Returns of how many rounds private state is kept, as many as the server can go back, within reason."""
    return min(int(header["keep"]), MOST_CHECKPOINTS)


def _refuse_other(config: SiteConfig, experiment: str, code: str) -> None:
    """Refuses an experiment or code that the site did not agree to."""
    if experiment != config.experiment:
        raise UserError(
            f"{config.name} knows the experiment {config.experiment} and not {experiment}, so it takes no part in it"
        )
    if code != config.code:
        raise UserError(
            f"the method's code is {code} where {config.name} agreed to {config.code}; install the version that the "
            "deployment was made with, or agree to the new one with idiolect deploy init"
        )
