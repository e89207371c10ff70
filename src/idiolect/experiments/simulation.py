"""A run: rounds one after the other, evaluated, recorded, and resumed as if never stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from idiolect.core import Context, Program, Tree, broadcast, server_round
from idiolect.core.trees import all_finite, any_nan, stack, tree_leaves, tree_map
from idiolect.engines import Engine, Outcome, serve, server_logits
from idiolect.errors import UserError
from idiolect.evaluation import Scores, choose, score
from idiolect.experiments.setting import Setting
from idiolect.experiments.traffic import bytes_down, bytes_up
from idiolect.federation import Store, select
from idiolect.records import NO_CLIENT, RoundBuffer, RowBuffer

__all__ = ["Simulation"]


@dataclass
class Simulation:
    """The state of a run between rounds.

    Args:
        round: rounds completed.
        selected: clients that have taken part.
        latest: current numbers, for a progress bar.
        picks: what was chosen on validation data, and by the oracle, at the last evaluation.
        ended: the stages of the end of the run are done.
    """

    setting: Setting
    engine: Engine
    server: Tree
    store: Store
    rows: RowBuffer = field(default_factory=RowBuffer)
    rounds: RoundBuffer = field(default_factory=RoundBuffer)
    round: int = 0
    selected: set[int] = field(default_factory=set)
    latest: dict[str, float] = field(default_factory=dict)
    picks: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    @classmethod
    def start(cls, setting: Setting, engine: Engine) -> Simulation:
        return cls(setting, engine, setting.first_server(), Store(setting.first_private))

    def advance(self) -> None:
        """One round: select, train, merge, let every client score, evaluate."""
        began = time.perf_counter()
        setting, experiment = self.setting, self.setting.experiment
        program = setting.program(self.round)
        population = setting.federation.population
        cohort = select(experiment.participation_rate, population, seed=experiment.seed, round=self.round)
        evaluated = self._due(self.round + 1)
        sent = broadcast(setting.method, self.server)
        outcomes = self.engine.round(program, sent, self.store.rows(cohort), evaluated)
        messages = stack([outcome.messages for outcome in outcomes])
        losses = torch.stack([outcome.loss for outcome in outcomes])
        broken, kept = ~all_finite((messages, losses)), [outcome.private for outcome in outcomes]
        broken = broken | any_nan(kept) if tree_leaves(kept[0]) else broken
        down = self._down(program, sent, len(cohort))
        merged = server_round(setting.method, self.server, messages, program.clock)
        self._refuse(cohort, broken, f"in round {self.round + 1}")  # after all that a device can do meanwhile
        self.server = merged
        if program.method.plan(program.scene, program.clock).server:
            self.server = serve(program, setting.work, self.server, messages)
            if not all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(self.server["params"])):
                raise UserError(
                    f"the server's own stage of round {self.round + 1} gave parameters that are not finite; "
                    "lower its learning rate"
                )
        self.store.write({c: outcome.private for c, outcome in zip(cohort, outcomes, strict=True)})
        self._settle("merged", program)
        self.round += 1
        self.selected |= set(cohort)
        loss = float(losses.mean())
        seconds = time.perf_counter() - began
        up = bytes_up(setting.method, [outcome.messages for outcome in outcomes])
        self.rounds.add(self.round, seconds, len(cohort), down, up, loss)
        self.latest["loss"] = loss
        if evaluated:
            self._record_cohort(cohort, outcomes)
            self._record_all(program, "before")

    def finish(self) -> None:
        """The stages of the end of the run, on every client, and what they lead to; once."""
        if self.ended:
            return
        self.ended = True
        program = self.setting.program(self.round)
        if self._settle("end", program):
            self._record_all(program, "end")
        self._record_remarks(program)

    def _settle(self, phase: str, program: Program) -> bool:
        plan = program.method.plan(program.scene, program.clock)
        if not (plan.merged if phase == "merged" else plan.end):
            return False
        everyone = list(range(self.setting.federation.population))
        sent = broadcast(self.setting.method, self.server)
        settled = self.engine.settle(program, phase, sent, self.store.rows(everyone))
        self._refuse(everyone, any_nan(settled), f"after round {self.round}")
        self.store.write(dict(zip(everyone, settled, strict=True)))
        return True

    def _down(self, program: Program, sent: Tree, cohort_size: int) -> int:
        plan = program.method.plan(program.scene, program.clock)
        return bytes_down(sent, plan, self.round, cohort_size, self.setting.federation.population)

    def _due(self, round: int) -> bool:
        experiment = self.setting.experiment
        return round % experiment.evaluate_every == 0 or round == experiment.rounds

    def _refuse(self, clients: list[int], broken: torch.Tensor, when: str) -> None:
        """Stops at the first client that is ``broken``; one look at the device for all of them."""
        found = [client for client, is_broken in zip(clients, broken.tolist(), strict=True) if is_broken]
        if found:
            raise UserError(
                f"client {found[0]} got parameters that are not finite {when}; lower learning_rate or set clip_norm"
            )

    def _record_cohort(self, cohort: list[int], outcomes: list[Outcome]) -> None:
        labels = self._labels(cohort, "test")
        for moment in ("before", "after"):
            scores = score([getattr(outcome, moment) for outcome in outcomes], labels)
            self._record(cohort, "test", moment, "selected", scores)

    def _record_all(self, program: Program, moment: str) -> None:
        """Every predictor on every client's test split, and the shared model on the server's test set."""
        everyone = list(range(self.setting.federation.population))
        sent, privates = broadcast(self.setting.method, self.server), self.store.rows(everyone)
        choices = self.setting.method.choices
        scores = score(self.engine.evaluate(program, sent, privates, "test"), self._labels(everyone, "test"))
        if choices:
            held_out = self.engine.evaluate(program, sent, privates, "valid")
            valid = score(held_out, self._labels(everyone, "valid"))
            self._record(everyone, "valid", moment, "all", valid)
            chosen, self.picks = choose(choices, valid, scores)
            scores |= chosen
        self._record(everyone, "test", moment, "all", scores)
        headline = scores.get(self.setting.method.headline)
        if headline:
            self.latest["personal"] = sum(headline["accuracy"]) / len(everyone)
        if self._has_shared_model() and moment == "before":
            self._record_server(program)

    def _has_shared_model(self) -> bool:
        """Whether the server holds a whole model: every parameter, and statistics that belong to it."""
        structure = self.setting.task.structure
        statistics = not structure.buffers or self.setting.experiment.buffers == "average"
        return statistics and self.setting.method.is_complete(structure)

    def _record_server(self, program: Program) -> None:
        work, federation = self.setting.work, self.setting.federation
        x = torch.from_numpy(federation.server_x).to(work.x)
        labels = torch.from_numpy(federation.server_y).to(work.y)
        logits = server_logits(program, self.server, x)
        scores = score([{"global": logits}], [labels])
        self._record([NO_CLIENT], "server", "before", "all", scores)
        self.latest["global"] = scores["global"]["accuracy"][0]

    def _record_remarks(self, program: Program) -> None:
        """Numbers about each client that a part wants kept, such as the round of its teacher."""
        sent = broadcast(self.setting.method, self.server)
        for client in range(self.setting.federation.population):
            private = self.store.rows([client])[client]
            context = Context(sent, private, self.setting.work.facts(client), {})
            for metric, value in program.remarks(context).items():
                headline = self.setting.method.headline
                self.rows.add(self.round, client, "valid", headline, "end", "all", metric, float(value))

    def _record(self, clients: list[int], split: str, moment: str, population: str, scores: Scores) -> None:
        for predictor, metrics in scores.items():
            for metric, values in metrics.items():
                self.rows.extend(self.round, clients, split, predictor, moment, population, metric, values)

    def _labels(self, clients: list[int], split: str) -> list[torch.Tensor]:
        work = self.setting.work
        rows = [getattr(work.federation.clients[c], split) for c in clients]
        return [work.y[torch.from_numpy(r).to(work.y.device)] for r in rows]

    def state(self) -> dict[str, Any]:
        """All that the next round depends on; randomness is derived from its number."""
        chosen = torch.tensor(sorted(self.selected), dtype=torch.int64)
        picks = {name: torch.tensor(list(member.encode())) for name, member in self.picks.items()}
        return {
            "server": self.server,
            "private": self.store.state(),
            "selected": chosen,
            "picks": picks,
            "ended": torch.tensor(self.ended),
        }

    def restore(self, round: int, state: dict[str, Any], tables: dict[str, Any]) -> None:
        """Goes on from a checkpoint.  Tensors are copied: rounding depends on how memory is aligned."""
        device = self.setting.work.x.device
        self.round, self.server = round, tree_map(lambda t: t.to(device, copy=True), state["server"])
        self.store.restore(tree_map(lambda t: t.to(device, copy=True), state["private"]))
        self.selected = {int(c) for c in state["selected"]}
        self.picks = {name: bytes(letters.tolist()).decode() for name, letters in state["picks"].items()}
        self.ended = bool(state["ended"])
        self.rows, self.rounds = RowBuffer(tables["rows"]), RoundBuffer(tables["rounds"])
