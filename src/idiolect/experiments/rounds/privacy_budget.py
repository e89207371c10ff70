"""The privacy budget of a run: what its parts promise, as epsilon at their delta, by the accountant of dp-accounting.

A release is a sum of contributions, each no longer than C, with Gaussian noise of standard deviation z C.  The
accountant composes releases by Renyi differential privacy (Mironov, CSF 2017; subsampled: Wang, Balle,
Kasiviswanathan, AISTATS 2019, and Mironov, Talwar, Zhang 2019).  What it is told depends on how a unit contributes:

- *Poisson selection of clients*: each release holds the client with the probability Q, independently of all else.
  Neighbours differ by one client, which is there or is not; the sensitivity is C.
- *A fixed cohort drawn without replacement*: neighbours differ in the data of one client, which are replaced by others;
  the sensitivity is 2 C.  Sampling is counted only where uploads depend on nothing that clients keep: the round after,
  a client's state would tell who was selected, and thereby, in a cohort of fixed size, who was not.
- *A selection that the observer knows*, as sites and servers do: the rounds are counted in which the client took part.
- *Examples in DP-SGD*: each step holds the example with the probability B / n; neighbours differ by one example, which
  is there or is not, the client's number of examples n being public; the sensitivity is C.

The better of two bounds counts where both hold, and the worst client.

In a deployment each site counts what it has sent, whatever the server says, because it alone knows its examples and how
often it was asked; the server records the most that any site says.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core import Guarantee, Part
from idiolect.core.trees import tree_leaves
from idiolect.errors import UserError
from idiolect.experiments.setting import Setting

__all__ = ["PrivacyBudget", "Release", "Spent", "epsilon_of"]

ADD_OR_REMOVE, REPLACE = "add or remove one", "replace one"
OBSERVERS = {
    "receivers": "all who receive the shared model; the server, which sees every upload, is trusted",
    "server": "the server, and all who receive the shared model",
}
SEEDED = (
    "the seed of the run, by which anybody can draw it again: "
    "a simulation shows what privacy costs, and protects nobody"
)
SECURE = "the operating system's secure source"
MOST = "counted are the rounds of the client that was selected most often"
EXACT = "losses, scores, counts and costs in this record, which are exact: they serve the study of the method"
TIMES = "which sites took part in a round, and when they answer"
SWITCHED_OFF = "losses, scores, counts, remarks and local work of the sites, which stay with them"
OWN = "models and state that stay with their client, without noise: a model that is given away tells of its data"
CHOSEN = "what was chosen on validation data, and settings that were tried on the same data"


class Release(NamedTuple):
    """A sum with Gaussian noise, and how a unit comes to be in it.

    Args:
        noise: the standard deviation in units of the sensitivity.
        rate: the probability that a unit is in it; 1 is always.
        of: the cohort and the population of a fixed cohort, drawn without replacement; None where units are drawn by
            themselves.
    """

    noise: float
    rate: float = 1.0
    of: tuple[int, int] | None = None


Composed = Mapping[Release, int]  # how often each release is made


class Bound(NamedTuple):
    """One way to bound what is told of a unit.

    Args:
        sampling: in words, how a unit comes to be in a release.
        worst: what may be the worst units are in.
    """

    sampling: str
    worst: list[Composed]


class Spent(NamedTuple):
    """The budget that a part has spent.

    Args:
        sampling: in words, of the bound that gives epsilon.
    """

    part: Part
    epsilon: float
    sampling: str

    @property
    def guarantee(self) -> Guarantee:
        assert self.part.guarantee is not None
        return self.part.guarantee

    @property
    def metric(self) -> str:
        """The name of epsilon in the rows of a run."""
        return f"epsilon of one {self.guarantee.unit}"


@dataclass(frozen=True)
class PrivacyBudget:
    """The budget of a run that has parts with a guarantee; without them it is empty and asks for no accountant.

    Args:
        times: by (round, client), how often the client made an update for this round, where it was more than once.
        reported: in a deployment, by site, what it says that it has spent, by parts with noise.
    """

    setting: Setting
    times: Mapping[tuple[int, int], int] = field(default_factory=dict)
    reported: Mapping[Any, Sequence[float]] | None = None

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for part in self.setting.method.parts if part.guarantee)

    def after(self, rounds: int) -> list[Spent]:
        """Returns what has been spent after some rounds, by parts; a part without noise spends without end.

        What examples have spent at sites is NaN at a server that they have told nothing.
        """
        found = [self._spent(part, rounds) for part in self.parts]
        if self.reported is None:
            return found
        most = (max(each, default=0.0) for each in self._reported_by_part())
        return [one._replace(epsilon=next(most)) if one.guarantee.noise else one for one in found]

    def _reported_by_part(self) -> list[list[float]]:
        count = sum(bool(part.guarantee and part.guarantee.noise) for part in self.parts)
        each = (self.reported or {}).values()
        return [[numbers[place] for numbers in each] for place in range(count)]

    def facts(self, rounds: int) -> dict[str, Any]:
        """Returns what the manifest says of privacy after some rounds; nothing where nothing is promised."""
        if not self.parts:
            return {}
        assumed = ["clients bound their own updates as the method says"]
        if self.setting.reads_class_counts and any(
            p.guarantee and p.guarantee.unit == "example" for p in self.parts
        ):
            assumed.append(
                "the number of examples of each class at each client is public, because the method reads it"
            )
        kept = [OWN] if any(tree_leaves(private) for private in self.setting.private_shapes) else []
        stays = self.setting.numbers_stay_at_sites
        return {
            "privacy": {
                "promises": [self._promise(spent, rounds) for spent in self.after(rounds)],
                "noise_source": SECURE if self.setting.work.is_deployed else SEEDED,
                "assumed": assumed,
                "switched_off": [SWITCHED_OFF] if stays else [],
                "not_covered": [TIMES if stays else EXACT, *kept, CHOSEN],
            }
        }

    def sentence(self, rounds: int) -> str:
        """Returns the budget after some rounds in words; empty where no part has a guarantee."""
        found = [self._sentence(spent, rounds) for spent in self.after(rounds)]
        if found and not self.setting.work.is_deployed:
            found.append("noise that follows from a seed protects nobody: this is a simulation")
        return "; ".join(found)

    def _sentence(self, spent: Spent, rounds: int) -> str:
        given = spent.guarantee
        if math.isinf(spent.epsilon):
            return f"{spent.part.written} adds no noise and promises no privacy"
        if math.isnan(spent.epsilon):
            return f"each site says what {spent.part.written} spends there, which depends on its number of examples"
        return (
            f"{spent.part.written} spends epsilon {spent.epsilon:.3g} at delta {given.delta:g} in {rounds} rounds, for "
            f"one {given.unit} ({self._relation(given)}; {spent.sampling}), against {OBSERVERS[given.observer]}"
        )

    def _promise(self, spent: Spent, rounds: int) -> dict[str, Any]:
        given = spent.guarantee
        return {
            "part": spent.part.written,
            "unit": given.unit,
            "against": OBSERVERS[given.observer],
            "epsilon": spent.epsilon if math.isfinite(spent.epsilon) else None,
            "delta": given.delta,
            "rounds": rounds,
            "noise": given.noise,
            "clip": given.clip,
            "relation": f"{self._relation(given)} {given.unit}",
            "sampling": spent.sampling,
            "accountant": f"Renyi differential privacy, dp-accounting {version('dp-accounting')}"
            if given.noise
            else None,
        }

    def _relation(self, given: Guarantee) -> str:
        by_chance = given.unit == "example" or self.setting.experiment.selection == "poisson"
        return ADD_OR_REMOVE if by_chance and not _is_local(given) else REPLACE

    @property
    def _rows_are_elsewhere(self) -> bool:
        return self.setting.work.is_deployed and not self.setting.federation.clients.sizes("train").any()

    @property
    def _rate(self) -> float:
        return self.setting.experiment.participation_rate

    def _spent(self, part: Part, rounds: int) -> Spent:
        given = part.guarantee
        assert given is not None
        bounds = (
            self._of_examples(given, rounds) if given.unit == "example" else self._of_clients(given, rounds)
        )
        if not given.noise:
            return Spent(part, math.inf, bounds[0].sampling)
        if given.unit == "example" and self._rows_are_elsewhere:
            return Spent(part, math.nan, bounds[0].sampling)
        relation = self._relation(given)
        each = [max(epsilon_of(one, relation, given.delta) for one in bound.worst) for bound in bounds]
        return Spent(part, min(each), bounds[each.index(min(each))].sampling)

    def _of_clients(self, given: Guarantee, rounds: int) -> list[Bound]:
        setting, clock = self.setting, self.setting.program(0).clock
        noise = given.noise / (2 if self._relation(given) == REPLACE else 1)
        taken = Counter[int]()
        for (_, client), times in self._took_part(rounds).items():
            taken[client] += times
        why = "" if _is_local(given) or self._rate == 1 else f", {self._why_not(given)}"
        counted = "no sampling" if self._rate == 1 else f"sampling is not counted{why}"
        seen = Bound(f"{counted}; {MOST}", [{Release(noise): max(taken.values(), default=0)}])
        if not self._amplifies(given):
            return [seen]
        if setting.experiment.selection == "poisson":
            text = f"each round takes each client with probability {self._rate:g}"
            return [Bound(text, [{Release(noise, self._rate): rounds}]), seen]
        fixed = Release(noise, of=(clock.expected_cohort, clock.population))
        return [Bound("cohorts of fixed size, drawn without replacement", [{fixed: rounds}]), seen]

    def _why_not(self, given: Guarantee) -> str:
        """Returns why sampling is not counted."""
        if self.setting.work.is_deployed:
            return "because sites can know who is selected"
        if not self._amplifies(given):
            return "because what clients keep tells who was in a cohort of fixed size"
        return "because the bound without it is the smaller one"

    def _amplifies(self, given: Guarantee) -> bool:
        """Whether the observer does not learn who is selected, so that a client hides among all."""
        if _is_local(given) or self.setting.work.is_deployed or self._rate == 1:
            return False
        return self.setting.experiment.selection == "poisson" or not self._uploads_depend_on_state

    @cached_property
    def _uploads_depend_on_state(self) -> bool:
        apart = {part.name for part in self.setting.method.parts if part.apart}
        first = self.setting.forms[0].privates[0]
        slots = {name: slot for name, slot in first["slots"].items() if name not in apart}
        return bool(tree_leaves([first["buffers"], slots]))

    def _of_examples(self, given: Guarantee, rounds: int) -> list[Bound]:
        work = self.setting.work
        made: dict[int, Counter[Release]] = {}
        for (round, client), times in self._took_part(rounds).items():
            program = self.setting.program(round)
            plan = program.method.plan(program.scene, program.clock)
            samples = len(work.at(round).federation.clients[client].train)
            steps = sum(work.steps(program, stage, client) for stage in plan.before)
            release = Release(given.noise, min(1.0, program.scene.batch_size / max(samples, 1)))
            made.setdefault(client, Counter())[release] += times * steps
        text = "each step takes each of a client's n examples with probability min(1, batch_size / n); the worst client"
        return [Bound(text, _undominated(made.values()) or [{}])]

    def _took_part(self, rounds: int) -> dict[tuple[int, int], int]:
        """Returns by (round, client) how often an update was made."""
        once = {(round, client): 1 for round in range(rounds) for client in self.setting.selected(round)}
        return {**once, **self.times}


def _is_local(given: Guarantee) -> bool:
    return given.unit == "client" and given.observer == "server"


def _undominated(each: Iterable[Composed]) -> list[Composed]:
    """Leaves out who makes one kind of release with a lower rate, and no more often, than somebody else."""
    whole = {tuple(sorted(one.items())): one for one in each}
    found: list[Composed] = [one for one in whole.values() if len(one) > 1]
    most = 0
    for ((release, count),) in sorted((key for key in whole if len(key) == 1), key=_by_rate):
        if count > most:
            most = count
            found.append({release: count})
    return found


def _by_rate(one: tuple[tuple[Release, int], ...]) -> tuple[float, int]:
    ((release, count),) = one
    return -release.rate, -count


def epsilon_of(composed: Composed, relation: str, delta: float) -> float:
    """Returns the accountant's epsilon of some releases.

    Raises:
        UserError: dp-accounting is not installed.
    """
    rdp = _accounting("rdp")
    orders = rdp.RdpAccountant().orders
    spent = sum(
        (_curve(release, relation) * count for release, count in composed.items()), np.zeros(len(orders))
    )
    with _quiet():
        return float(rdp.compute_epsilon(orders, spent, delta)[0])


@lru_cache(maxsize=4096)
def _curve(release: Release, relation: str) -> NDArray[np.float64]:
    """Returns the Renyi divergence of one release at the accountant's orders; a composition is a sum of such."""
    events, rdp = _accounting(""), _accounting("rdp")
    event = events.GaussianDpEvent(release.noise)
    if release.of is not None:
        event = events.SampledWithoutReplacementDpEvent(release.of[1], release.of[0], event)
    elif release.rate < 1:
        event = events.PoissonSampledDpEvent(release.rate, event)
    relations = events.NeighboringRelation
    neighbours = relations.REPLACE_ONE if relation == REPLACE else relations.ADD_OR_REMOVE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=neighbours)
    with _quiet():
        accountant.compose(event)
    curve: NDArray[np.float64] = accountant.rdp
    return curve


@cache
def _accounting(module: str) -> Any:
    if find_spec("dp_accounting") is None:
        raise UserError(
            "the budget of differential privacy needs dp-accounting; install it with pip install 'idiolect[privacy]'"
        )
    return import_module(f"dp_accounting.{module}" if module else "dp_accounting")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences what the accountant logs of orders that it leaves out."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
