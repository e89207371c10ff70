"""Deadlines: who is cut off, and how long rounds take in simulated time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from idiolect.core.seeds import derive
from idiolect.engines import LoopEngine
from idiolect.errors import UserError
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.federation import canonical_under
from idiolect.testing.sameness import assert_exact, states
from idiolect.testing.tiny_federation import tiny_setting

ROUNDS = 4


def played(under: Any, method: str = "fedavg") -> Simulation:
    setting = tiny_setting(method, under=under, model="mlpnet(hidden=8)", rounds=ROUNDS)
    run = Simulation.start(setting, LoopEngine(setting.work))
    for _ in range(ROUNDS):
        run.advance()
    return run


def expected_times(run: Simulation, round: int, spread: float, jitter: float) -> dict[int, float]:
    """Epochs times batches of each selected client, over its speed of two steps a second and its luck."""
    experiment, seed = run.setting.experiment, derive(run.setting.experiment.seed, "under", "deadline", 0)
    found = {}
    for client in run.setting.selected(round):
        rows = len(run.setting.federation.clients[client].train)
        steps = math.ceil(experiment.local_epochs * math.ceil(rows / experiment.batch_size))
        normal = [
            np.random.default_rng(derive(seed, *what)).standard_normal()
            for what in (("speed", client), ("round", round, client))
        ]
        found[client] = steps / (2 * math.exp(spread * normal[0] + jitter * normal[1]))
    return found


def test_slow_clients_are_cut_off_and_rounds_last_until_the_deadline() -> None:
    run = played("deadline(seconds=0.92, speed=2.0, spread=0.7, jitter=0.3)")
    cut = 0
    for round, row in enumerate(run.rounds.table().to_pylist()):
        times = expected_times(run, round, 0.7, 0.3)
        in_time = [client for client, time in times.items() if time <= 0.92]
        assert run.setting.cohort(round) == in_time
        assert row["cohort"] == len(in_time)
        missed = len(in_time) < len(times)
        assert row["simulated_seconds"] == pytest.approx(0.92 if missed else max(times.values()), rel=1e-12)
        assert row["bytes_down"] == row["bytes_up"] / max(len(in_time), 1) * len(times) or not in_time
        cut += missed
    assert 0 < cut < ROUNDS, "some rounds miss a client, and some do not"


@pytest.mark.parametrize("option", ["spread", "jitter"])
def test_deviations_beyond_all_floats_are_refused(option: str) -> None:
    with pytest.raises(UserError, match=rf"{option} of deadline must be in \[0, 40\], got 1000"):
        canonical_under(f"deadline({option}=1000)")
    assert canonical_under(f"deadline({option}=40)")


def test_waiting_for_everybody_is_the_plain_run_with_the_time_of_the_slowest() -> None:
    plain, waited = played((), "fedper"), played("deadline(seconds=None, speed=2.0, spread=0.7)", "fedper")
    assert_exact(states(waited), states(plain))
    seconds = [row["simulated_seconds"] for row in waited.rounds.table().to_pylist()]
    slowest = [max(expected_times(waited, round, 0.7, 0.0).values()) for round in range(ROUNDS)]
    assert seconds == pytest.approx(slowest, rel=1e-12)
    assert all(row["simulated_seconds"] is None for row in plain.rounds.table().to_pylist())


def test_a_server_that_misses_a_failed_client_waits_until_the_deadline() -> None:
    run = played(["deadline(seconds=1000.0)", "dropout(rate=1.0)"])
    assert [row["simulated_seconds"] for row in run.rounds.table().to_pylist()] == [1000.0] * ROUNDS


@pytest.mark.parametrize(
    "text", ["deadline(seconds=0)", "deadline(speed=0)", "deadline(spread=-1)", "deadline(jitter=-1)"]
)
def test_impossible_options_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="of deadline"):
        canonical_under(text)
