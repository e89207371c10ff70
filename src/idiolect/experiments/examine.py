"""Scores of clients, made where their labels are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from idiolect.core import Context, Program, Tree, broadcast
from idiolect.engines import Engine, Logits, Outcome
from idiolect.evaluation import Scores, score
from idiolect.experiments.newcomers import Joined
from idiolect.experiments.setting import Setting

__all__ = ["Arrival", "Examined", "examine", "examine_joined", "examine_outcomes", "gather", "remarks_of"]


class Examined(NamedTuple):
    """Some clients at one moment.

    Args:
        test, valid: every predictor on the clients' splits; validation stays empty unless it is looked at.
    """

    clients: list[int]
    test: Scores
    valid: Scores


class Arrival(NamedTuple):
    """Newcomers as they arrive, and when they have joined."""

    before: Scores
    joined: Examined


def examine(
    setting: Setting, engine: Engine, program: Program, server: Tree, chunks: Iterable[dict[int, Tree]]
) -> Examined:
    """Every predictor on every client's test split, and on validation data where something is chosen there.

    Args:
        chunks: private state of some clients at a time; how many changes no number.
    """
    sent = broadcast(setting.method, server)
    held_out = (setting.validates and bool(setting.method.choices)) or setting.experiment.score_valid
    found = Examined([], {}, {})
    for privates in chunks:
        clients = list(privates)
        scored: dict[str, Scores] = {"test": {}, "valid": {}}
        for split in ("test", "valid") if held_out else ("test",):
            logits = engine.evaluate(program, sent, privates, split)
            scored[split] = _score(setting, logits, clients, split)
        found = gather([found, Examined(clients, **scored)])
    return found


def examine_outcomes(setting: Setting, cohort: list[int], outcomes: list[Outcome]) -> dict[str, Scores]:
    """The selected clients before and after their local training."""
    return {
        moment: _score(setting, [getattr(outcome, moment) for outcome in outcomes], cohort, "test")
        for moment in ("before", "after")
    }


def examine_joined(setting: Setting, joined: Joined) -> Arrival:
    """Newcomers on their test splits, and on validation data where something is chosen there."""
    clients = list(joined.privates)
    valid = _score(setting, joined.valid, clients, "valid")
    before, after = (_score(setting, logits, clients, "test") for logits in (joined.before, joined.after))
    return Arrival(before, Examined(clients, after, valid))


def remarks_of(
    setting: Setting, program: Program, server: Tree, client: int, private: Tree
) -> dict[str, float]:
    """Numbers about a client that a part wants kept, such as the round of its teacher."""
    sent = broadcast(setting.method, server)
    context = Context(sent, private, setting.work.facts(client), {})
    return {metric: float(value) for metric, value in program.remarks(context).items()}


def gather(examined: Iterable[Examined]) -> Examined:
    """Those of several groups of clients, one after the other."""
    whole = Examined([], {}, {})
    for some in examined:
        whole.clients.extend(some.clients)
        for scores, more in ((whole.test, some.test), (whole.valid, some.valid)):
            for predictor, metrics in more.items():
                for metric, values in metrics.items():
                    scores.setdefault(predictor, {}).setdefault(metric, []).extend(values)
    return whole


def _score(setting: Setting, logits: list[Logits], clients: list[int], split: str) -> Scores:
    labels = [setting.work.labels(client, split) for client in clients]
    return score(logits, labels, setting.metrics)
