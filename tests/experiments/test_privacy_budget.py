"""The privacy budget of a run: epsilon is the accountant's own, of events that are written here from the algorithm."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")

import dp_accounting as accounting
from dp_accounting import rdp

import idiolect
from idiolect.engines import place
from idiolect.experiments import Experiment
from idiolect.experiments.rounds import privacy_budget
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget
from idiolect.experiments.setting import Setting, prepare

ADD = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = accounting.NeighboringRelation.REPLACE_ONE
gaussian, repeated = accounting.GaussianDpEvent, accounting.SelfComposedDpEvent
poisson, without_replacement = accounting.PoissonSampledDpEvent, accounting.SampledWithoutReplacementDpEvent
SMALL = Experiment(
    dataset="synthetic(n_clients=20, samples_per_client=30, n_features=8, n_classes=3)",
    partition="by_id",
    clients=20,
    model="mlpnet(hidden=4)",
    rounds=6,
    participation_rate=0.25,
    batch_size=8,
    evaluate_every=3,
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("absl"), "level", logging.ERROR)


def own(event: Any, relation: Any, delta: float = 1e-5) -> float:
    """The accountant's own answer."""
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def setting_of(method: str, **settings: Any) -> Setting:
    return prepare(replace(SMALL, method=method, **settings), place("loop", "cpu"))


def spent(method: str, rounds: int = 6, deployed: bool = False, **settings: Any) -> float:
    setting = setting_of(method, **settings)
    if deployed:
        setting = replace(setting, work=replace(setting.work, is_deployed=True))
    (found,) = PrivacyBudget(setting).after(rounds)
    return found.epsilon


def most_rounds(setting: Setting, rounds: int = 6) -> int:
    return max(Counter(client for round in range(rounds) for client in setting.selected(round)).values())


def test_poisson_selection_of_clients() -> None:
    expected = own(repeated(poisson(0.25, gaussian(2.0)), 6), ADD)
    for method in ("fedavg", "fedper", "ditto"):
        found = spent(f"{method} + client_dp(noise=2)", selection="poisson")
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("noise", [0.3, 8.0])
def test_fixed_cohorts_replace_a_client_and_double_the_sensitivity(noise: float) -> None:
    setting = setting_of("fedavg")
    amplified = own(repeated(without_replacement(20, 5, gaussian(noise / 2)), 6), REPLACE)
    seen = own(repeated(gaussian(noise / 2), most_rounds(setting)), REPLACE)
    assert spent(f"fedavg + client_dp(noise={noise})") == pytest.approx(min(amplified, seen), rel=1e-9)
    assert (amplified < seen) == (noise == 8.0)


def exact_epsilon(p: Any, q: Any, delta: float = 1e-5) -> float:
    """The smallest epsilon of two densities on the line, whichever comes first, by integration on a grid."""
    grid = np.linspace(-50, 50, 20_001)
    one, other = p(grid), q(grid)
    step = grid[1] - grid[0]

    def within(epsilon: float) -> bool:
        found = (np.maximum(a - np.exp(epsilon) * b, 0).sum() * step for a, b in ((one, other), (other, one)))
        return max(found) <= delta

    low, high = 0.0, 60.0
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def normal(place: float, deviation: float) -> Any:
    return lambda x: np.exp(-(((x - place) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def mixed(rate: float, present: Any, absent: Any) -> Any:
    return lambda x: rate * present(x) + (1 - rate) * absent(x)


@pytest.mark.parametrize("noise", [1.0, 2.0, 4.0])
def test_epsilon_covers_the_worst_clients_on_a_line(noise: float) -> None:
    """One round with C = 1: a client that adds 1, against none, or against one that takes 1 away."""
    absent = normal(0, noise)
    here = mixed(0.25, normal(1, noise), absent)
    other = mixed(0.25, normal(-1, noise), absent)
    for selection, q, most in (
        ("poisson", absent, 2.2),
        ("fixed", other, 3.2),
    ):  # the bound for cohorts is a loose one
        found = spent(f"fedavg + client_dp(noise={noise})", rounds=1, selection=selection)
        assert 1 <= found / exact_epsilon(here, q) < most, selection


@pytest.mark.parametrize("where", ["local", "central"])
def test_epsilon_covers_a_client_that_takes_part_in_every_round(where: str) -> None:
    """Six releases of a known difference of 2 C are one release with noise of z C / sqrt(6)."""
    exact = exact_epsilon(normal(1, 4 / math.sqrt(6)), normal(-1, 4 / math.sqrt(6)))
    found = spent(f"fedavg + client_dp(noise=4, where={where})", participation_rate=1.0)
    assert 1 <= found / exact < 1.2


def test_what_clients_keep_forbids_amplification_by_fixed_cohorts_unless_no_upload_depends_on_it() -> None:
    amplified = own(repeated(without_replacement(20, 5, gaussian(4.0)), 6), REPLACE)
    seen = own(repeated(gaussian(4.0), most_rounds(setting_of("fedavg"))), REPLACE)
    assert spent("ditto + client_dp(noise=8)") == pytest.approx(amplified, rel=1e-9)
    assert spent("fedper + client_dp(noise=8)") == pytest.approx(seen, rel=1e-9)
    assert seen > 1.2 * amplified


def test_everybody_in_every_round_is_the_gaussian_mechanism() -> None:
    expected = own(repeated(gaussian(1.0), 6), REPLACE, delta=1e-3)
    found = spent("fedper + client_dp(noise=2, delta=0.001)", participation_rate=1.0)
    assert found == pytest.approx(expected, rel=1e-9)


def test_noise_of_each_client_and_deployments_count_the_rounds_of_the_client_selected_most_often() -> None:
    expected = own(repeated(gaussian(1.0), most_rounds(setting_of("fedavg"))), REPLACE)
    assert spent("fedavg + client_dp(noise=2, where=local)") == pytest.approx(expected, rel=1e-9)
    drawn = most_rounds(setting_of("fedavg", selection="poisson"))
    found = spent("fedavg + client_dp(noise=2, where=local)", selection="poisson")
    assert found == pytest.approx(own(repeated(gaussian(1.0), drawn), REPLACE), rel=1e-9)
    assert spent("fedavg + client_dp(noise=2)", deployed=True) == pytest.approx(expected, rel=1e-9)
    setting = setting_of("fedavg", selection="poisson")
    added = own(repeated(gaussian(2.0), most_rounds(setting)), ADD)
    found = spent("fedavg + client_dp(noise=2)", deployed=True, selection="poisson")
    assert found == pytest.approx(added, rel=1e-9)


def test_rounds_that_a_deployment_made_again_count_again() -> None:
    setting = setting_of("fedavg + client_dp(noise=2)", participation_rate=1.0)
    budget = PrivacyBudget(
        replace(setting, work=replace(setting.work, is_deployed=True)), {(5, 3): 2, (6, 3): 1}
    )
    assert budget.after(6)[0].epsilon == pytest.approx(own(repeated(gaussian(1.0), 8), REPLACE), rel=1e-9)


def test_examples_are_counted_by_the_steps_of_the_worst_client() -> None:
    settings = {
        "dataset": "fashion-mnist-12k",
        "partition": "dirichlet_client(alpha=0.3)",
        "clients": 60,
        "participation_rate": 0.05,
        "batch_size": 8,
    }
    setting = setting_of("fedavg + dp_sgd(noise=1.3)", **settings)
    steps: Counter[int] = Counter()
    for round in range(3):
        for client in setting.selected(round):
            samples = len(setting.federation.clients[client].train)
            steps[client] += 2 * math.ceil(samples / 8)  # two epochs
    each = []
    for client, count in steps.items():
        rate = min(1, 8 / len(setting.federation.clients[client].train))
        each.append(own(repeated(poisson(rate, gaussian(1.3)), count), ADD))
    assert len(each) > 6
    (found,) = PrivacyBudget(setting).after(3)
    assert found.epsilon == pytest.approx(max(each), rel=1e-9)


def test_steps_that_a_site_made_again_count_again() -> None:
    setting = setting_of("fedavg + dp_sgd(noise=1.3)")
    samples = len(setting.federation.clients[3].train)
    event = poisson(min(1, 8 / samples), gaussian(1.3))
    steps = 2 * math.ceil(samples / 8)  # two epochs
    (found,) = PrivacyBudget(setting, {(0, 3): 4, (1, 3): 1}).after(0)
    assert found.epsilon == pytest.approx(own(repeated(event, 5 * steps), ADD), rel=1e-9)


def test_who_takes_fewer_examples_in_more_steps_may_be_the_worst_client() -> None:
    often, seldom, least = (privacy_budget.Release(1.0, rate) for rate in (0.5, 0.1, 0.05))
    each = [{least: 10}, {often: 2}, {seldom: 900}]
    kept = privacy_budget._undominated(each)
    assert {**kept[0], **kept[1]} == {often: 2, seldom: 900} and len(kept) == 2
    spent = [privacy_budget.epsilon_of(one, privacy_budget.ADD_OR_REMOVE, 1e-5) for one in kept]
    assert spent[1] > spent[0]


def test_a_part_without_noise_promises_nothing_and_needs_no_accountant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(privacy_budget, "version", missing)
    monkeypatch.setattr(privacy_budget, "find_spec", lambda name: None)
    privacy_budget._accounting.cache_clear()
    setting = setting_of("fedavg + client_dp(noise=0)")
    assert math.isinf(spent("fedavg + client_dp(noise=0)"))
    (promise,) = PrivacyBudget(setting).facts(6)["privacy"]["promises"]
    assert promise["epsilon"] is None and promise["accountant"] is None
    assert PrivacyBudget(setting_of("fedavg + client_dp(clip=None, noise=0)")).facts(6) == {}


class Listener:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begin(self, label: str, rounds: int, done: int) -> None: ...
    def advance(self, done: int, numbers: dict[str, float]) -> None: ...
    def end(self) -> None: ...
    def hint(self, sentence: str) -> None: ...
    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def test_the_budget_is_printed_and_recorded_and_grows(tmp_path) -> None:
    listener = Listener()
    text = "fedper + client_dp(noise=2)"
    experiment = replace(SMALL, method=text, selection="poisson")
    done = idiolect.run(experiment, out=tmp_path, engine="loop", watcher=listener)
    expected = {rounds: own(repeated(poisson(0.25, gaussian(2.0)), rounds), ADD) for rounds in (3, 6)}
    rows = done.rows
    found = rows[rows.metric == "epsilon of one client"].set_index("round").value.to_dict()
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[6] > found[3] > 0
    said = next(sentence for sentence in listener.said if "epsilon" in sentence)
    for words in (
        f"{expected[6]:.3g}",
        "delta 1e-05",
        "add or remove one",
        "probability 0.25",
        "protects nobody",
    ):
        assert words in said
    privacy = json.loads((done.folder / "manifest.json").read_text())["privacy"]
    assert privacy["promises"][0]["epsilon"] == pytest.approx(expected[6], rel=1e-9)
    assert privacy["promises"][0]["relation"] == "add or remove one client"
    assert "seed" in privacy["noise_source"]
    assert any("losses" in text for text in privacy["not_covered"])
    assert any("stay with their client" in text for text in privacy["not_covered"])


def test_class_counts_that_a_method_reads_are_assumed_to_be_public() -> None:
    for method, reads in (("fedavg", False), ("map", True), ("fedlc", True), ("ditto", False)):
        facts = PrivacyBudget(setting_of(f"{method} + dp_sgd")).facts(1)["privacy"]
        assert any("each class" in text for text in facts["assumed"]) == reads
