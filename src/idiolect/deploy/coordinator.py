"""The server's loop: selection by seed, letters to sites, aggregation in client-id order, checkpoints.

What is merged and recorded is what a simulation merges and records; only who computes it is elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from idiolect.core import Tree, broadcast, server_round
from idiolect.core.trees import stack, tree_leaves, tree_map
from idiolect.deploy.letters import Letter
from idiolect.deploy.link import Answers, Link
from idiolect.deploy.named import Misfit, named, rebuilt
from idiolect.deploy.plan import Deployment, Member
from idiolect.deploy.private_store import END, JOIN, MERGED, TRAINED, Position
from idiolect.deploy.progress import Progress
from idiolect.errors import UserError
from idiolect.experiments.examine import Arrival, Examined, gather
from idiolect.experiments.merging import served
from idiolect.experiments.recorder import Recorder
from idiolect.experiments.setting import Setting
from idiolect.experiments.traffic import bytes_down, bytes_up
from idiolect.records import RoundBuffer, RowBuffer

__all__ = ["Coordinator"]


@dataclass
class Coordinator:
    """The state of a deployed run between rounds.

    Args:
        round: rounds completed.
        known: by client, the version of its private state that came with what was merged last.
    """

    setting: Setting
    deployment: Deployment
    link: Link
    progress: Progress
    server: Tree
    rows: RowBuffer = field(default_factory=RowBuffer)
    rounds: RoundBuffer = field(default_factory=RoundBuffer)
    round: int = 0
    picks: dict[str, str] = field(default_factory=dict)
    known: dict[int, Position] = field(default_factory=dict)
    ended: bool = False

    @property
    def population(self) -> list[Member]:
        return [m for m in self.deployment.members if m.client < self.setting.federation.population]

    @property
    def newcomers(self) -> list[Member]:
        """Sites that are to join and have not yet."""
        last = self.setting.federation.population
        return [m for m in self.deployment.members if m.client >= last and m.client not in self.known]

    def advance(self) -> None:
        """One round: select, let the sites train, merge, let every site score."""
        began, setting = time.perf_counter(), self.setting
        program, selected = setting.program(self.round), set(setting.cohort(self.round))
        evaluated = setting.experiment.evaluates(self.round + 1)
        observed = evaluated or setting.experiment.observe == "always"
        cohort = [member for member in self.population if member.client in selected]
        sent = broadcast(setting.method, self.server)
        found = self._ask(cohort, sent, "train", observe=observed)
        uploads = self._uploads(found)
        self._refuse_too_few(len(uploads), len(cohort), found)
        took = [member for member in cohort if member.name in uploads]
        messages = stack([uploads[member.name] for member in took])
        merged = server_round(setting.method, self.server, messages, program.clock)
        self.server = served(setting, program, merged, messages)
        for member in took:
            self._took_part(member, found.letters[member.name], Position(self.round, TRAINED))
        headers = [found.letters[member.name].header for member in took]
        if observed:
            for member, header in zip(took, headers, strict=True):
                self._recorder(self.round + 1).cohort([member.client], header["scores"])
        self._follow(self.round, "merged", examine=evaluated)
        losses = [header["loss"] for header in headers]
        self._write_round(sent, losses, [uploads[m.name] for m in took], time.perf_counter() - began)

    def finish(self) -> None:
        """The stages of the end of the run, on every site, and the sites that join then."""
        if not self.ended:
            self._follow(self.round, "end", examine=False)
            self.ended = True
        if self.newcomers:
            self.onboard()

    def onboard(self) -> None:
        """Lets the connected sites that never trained join by the method's rule; what they would upload stays."""
        there = [member for member in self.newcomers if member.name in self.link.roster.places()]
        found = self._ask(there, broadcast(self.setting.method, self.server), "join", enough=0)
        arrivals = []
        for member in there:
            if member.name in found.letters:
                arrivals.append(_arrival(found.letters[member.name].header["arrival"]))
                self._note_accuracies([member], [arrivals[-1].joined])
                self.known[member.client] = Position(self.round, JOIN)
                self.progress.heard(member.name, "has joined")
        if arrivals:
            before = gather(Examined([], one.before, {}) for one in arrivals).test
            self.picks |= self._recorder().newcomers(Arrival(before, gather(one.joined for one in arrivals)))

    def state(self) -> dict[str, Any]:
        """All that the next round depends on; private state is with the sites."""
        picks = {name: torch.tensor(list(member.encode())) for name, member in self.picks.items()}
        known = {str(client): torch.tensor(position) for client, position in self.known.items()}
        return {"server": self.server, "picks": picks, "known": known, "ended": torch.tensor(self.ended)}

    def restore(self, round: int, state: Mapping[str, Any]) -> None:
        """Goes on after the round of a checkpoint."""
        self.round = round
        self.server = tree_map(torch.clone, state["server"])  # rounding depends on how memory is aligned
        self.picks = {name: bytes(letters.tolist()).decode() for name, letters in state["picks"].items()}
        self.known = {int(client): Position(*at.tolist()) for client, at in state["known"].items()}
        self.ended = bool(state["ended"])

    def _ask(
        self, members: list[Member], sent: Tree, kind: str, enough: int | None = None, **facts: Any
    ) -> Answers:
        """Letters to these sites; too few answers are the caller's to refuse.

        Args:
            enough: answers after which sites that are away are not waited for; those that a round needs by default.
        """
        asks = {
            member.name: {"kind": kind, "round": self.round, "known": self.known.get(member.client), **facts}
            for member in members
        }
        options = self.deployment
        found = self.link.ask(
            asks,
            named(sent),
            deadline=options.deadline,
            grace=options.grace,
            enough=min(options.min_sites, len(asks)) if enough is None else enough,
        )
        for name, letter in found.letters.items():
            self._report_gap(name, asks[name]["known"], letter.header)
        return found

    def _uploads(self, found: Answers) -> dict[str, dict[str, Any]]:
        """By site, its messages; what does not have the expected form, or is not finite, leaves ``found``."""
        forms, uploads = [forms.messages for forms in self.setting.forms], {}
        for name, letter in list(found.letters.items()):
            try:
                upload = rebuilt(letter.tensors, forms, f"the upload of {name}")
                if not all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(upload)):
                    raise Misfit(f"the upload of {name} holds numbers that are not finite")
                uploads[name] = upload
            except Misfit as error:
                del found.letters[name]
                found.missing[name] = str(error)
                self.progress.heard(name, f"left out: {error}")
        return uploads

    def _follow(self, round: int, phase: str, examine: bool) -> None:
        """What every site does after a merge, or at the end: the method's own stages, scores, remarks."""
        setting, at_end = self.setting, phase == "end"
        program = setting.program(round)
        settle = bool(getattr(setting.method.plan(program.scene, program.clock), phase))
        remark = at_end and any(part.remarks for part in setting.method.parts)
        examine = settle if at_end else examine
        if not (settle or examine or remark):
            return
        sent = broadcast(setting.method, self.server)
        flags = {"settle": phase if settle else None, "examine": examine, "remark": remark}
        found = self._ask(self.population, sent, "follow", **flags)
        there = [member for member in self.population if member.name in found.letters]
        recorder = self._recorder(round + (not at_end))
        for member in there:
            if settle:
                self.known[member.client] = Position(round, END if at_end else MERGED)
            recorder.remarks(member.client, found.letters[member.name].header.get("remarks", {}))
        if examine and there:
            examined = [_examined(found.letters[member.name].header["examined"]) for member in there]
            self._note_accuracies(there, examined)
            glimpse = recorder.everyone(program, gather(examined), "end" if at_end else "before")
            self.picks = glimpse.picks

    def _took_part(self, member: Member, letter: Letter, position: Position) -> None:
        self.known[member.client] = position
        header = letter.header
        facts = {key: header[key] for key in ("loss", "digest", "base_digest")}
        self.progress.note(member.name, round=self.round + 1, **facts)

    def _report_gap(self, name: str, known: Position | None, header: Mapping[str, Any]) -> None:
        """Says when a site goes on from an earlier state than the server knows, or after rounds without it."""
        if known is None:
            if self.round:
                self.progress.heard(name, "takes part for the first time")
            return
        base = header.get("base")
        if "base" in header and base != list(known):
            since = f"round {base[0] + 1}" if base else "nothing"
            self.progress.heard(name, f"goes on from {since}, where the server knew round {known.round + 1}")
        elif self.round - known.round > 1:
            self.progress.heard(name, f"is back after {self.round - known.round - 1} rounds without it")

    def _note_accuracies(self, members: list[Member], examined: list[Examined]) -> None:
        headline = self.setting.headline
        for member, one in zip(members, examined, strict=True):
            if headline in one.test:
                self.progress.note(member.name, accuracy=one.test[headline]["accuracy"][0])

    def _write_round(self, sent: Tree, losses: list[float], uploads: list[Tree], seconds: float) -> None:
        setting, took = self.setting, len(losses)
        program = setting.program(self.round)
        plan = program.method.plan(program.scene, program.clock)
        population, policy = setting.federation.population, setting.experiment.buffers
        down = bytes_down(sent, plan, self.round, took, population, policy)
        up = bytes_up(setting.method, stack(uploads), took)
        self.round += 1
        self.rounds.add(self.round, seconds, took, down, up, sum(losses) / took)
        self.progress.round = self.round
        self.progress.seconds.append(seconds)
        self.progress.save()

    def _refuse_too_few(self, answered: int, asked: int, found: Answers) -> None:
        needed = min(self.deployment.min_sites, asked)
        if answered < needed:
            reasons = "; ".join(f"{name} {reason}" for name, reason in sorted(found.missing.items()))
            raise UserError(
                f"round {self.round + 1} needs {needed} sites and {answered} answered ({reasons}); bring them back and "
                "go on with idiolect deploy run"
            )

    def _recorder(self, round: int | None = None) -> Recorder:
        return Recorder(self.setting, self.rows, self.round if round is None else round, self.server)


def _examined(found: list[Any]) -> Examined:
    clients, test, valid = found
    return Examined(clients, test, valid)


def _arrival(found: list[Any]) -> Arrival:
    before, joined = found
    return Arrival(before, _examined(joined))
