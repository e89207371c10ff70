"""Hostile clients: what reaches the server in their name, and that they keep what they trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from idiolect.core.seeds import derive
from idiolect.engines import LoopEngine
from idiolect.errors import UserError
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.federation import canonical_under
from idiolect.testing.recorder import Passed, Recorder
from idiolect.testing.sameness import assert_exact, privates
from idiolect.testing.tiny_federation import tiny_setting

SMALL = {"model": "mlpnet(hidden=8)", "rounds": 4, "participation_rate": 1.0, "weighting": "uniform"}


def played(
    under: Any, method: str = "fedavg", rounds: int = 1, **settings: Any
) -> tuple[Simulation, list[Passed]]:
    setting = tiny_setting(method, under=under, **{**SMALL, **settings})
    recorder = Recorder(LoopEngine(setting.work))
    run = Simulation.start(setting, recorder)
    for _ in range(rounds):
        run.advance()
    return run, recorder.rounds


def hostile(run: Simulation) -> tuple[int, ...]:
    ((_, clients),) = run.setting.federation.disturbed
    return clients


def updates(passed: Passed, start: dict[str, torch.Tensor]) -> dict[int, np.ndarray]:
    """By client, its trained model less the received one, as one vector."""
    return {
        client: np.concatenate(
            [(outcome.messages["average"][0][n] - start[n]).numpy().ravel() for n in start]
        )
        for client, outcome in passed.outcomes.items()
    }


def moved(run: Simulation, start: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([(run.server["params"][n] - start[n]).numpy().ravel() for n in start])


def noise(run: Simulation, client: int, size: int) -> np.ndarray:
    seed = derive(run.setting.experiment.seed, "under", "upload_noise", 0)
    return np.random.default_rng(derive(seed, "upload", 0, client, "average")).standard_normal(size)


@pytest.mark.parametrize("under", ["sign_flip(factor=3.0)", "scaling(factor=7.0)", "upload_noise(scale=2.0)"])
def test_server_gets_what_hostile_clients_send(under: str) -> None:
    run, (passed,) = played(under.replace("(", "(share=0.4, "))
    start = run.setting.first_server()["params"]
    honest = updates(passed, start)
    sent = []
    for client, update in honest.items():
        if client not in hostile(run):
            sent.append(update)
        elif under.startswith("sign_flip"):
            sent.append(-3 * update)
        elif under.startswith("scaling"):
            sent.append(7 * update)
        else:
            deviation = 2 * np.sqrt(np.mean(update**2))
            sent.append(update + deviation * noise(run, client, len(update)))
    assert len(hostile(run)) == 2 < len(sent)
    np.testing.assert_allclose(moved(run, start), np.mean(sent, axis=0), rtol=1e-9, atol=1e-12)


def test_hostile_clients_keep_what_they_trained() -> None:
    (clean, _), (attacked, _) = played((), "fedper"), played("sign_flip(share=0.5)", "fedper")
    assert_exact(privates(attacked), privates(clean))
    assert not torch.equal(*(next(iter(run.server["params"].values())) for run in (clean, attacked)))


def test_changes_of_controls_are_turned_round_like_models_and_statistics_stay() -> None:
    run, (passed,) = played("sign_flip(share=1.0, factor=2.0)", "scaffold", model="lenet_bn")
    start = run.setting.first_server()
    outcomes = list(passed.outcomes.values())
    for name, control in run.server["slots"]["control_variates"].items():
        mean = torch.stack([o.messages["control_variates"][0][name] for o in outcomes]).mean(0)
        torch.testing.assert_close(control, -2 * mean)
    for name, running in run.server["buffers"].items():
        mean = torch.stack([o.messages["buffers"][0][name] for o in outcomes]).mean(0)
        torch.testing.assert_close(running, mean)
        assert not torch.equal(mean, start["buffers"][name])


def test_places_of_clients_that_are_turned_round_do_not_stop_the_server() -> None:
    run, _ = played("scaling(share=0.5, factor=100.0)", "fedfomo(models=2)", rounds=2)
    assert run.round == 2


def test_attacks_begin_and_happen_as_their_schedule_says() -> None:
    (clean, _), (late, _) = played((), rounds=2), played("sign_flip(at=0.5)", rounds=2)
    assert_exact(late.server, clean.server)
    clean.advance()
    late.advance()
    with pytest.raises(AssertionError):
        assert_exact(late.server, clean.server)
    often, seldom = (played(f"sign_flip(share=1.0, rate={rate})")[0] for rate in (1.0, 0.5))
    start = often.setting.first_server()["params"]
    assert np.linalg.norm(moved(often, start) - moved(seldom, start)) > 0


def test_the_manifest_names_hostile_clients_and_a_larger_share_holds_those_of_a_smaller_one() -> None:
    few, many = (hostile(played(f"scaling(share={share})", rounds=0)[0]) for share in (0.2, 0.6))
    assert set(few) < set(many)
    assert few == hostile(played("scaling(share=0.2, factor=3.0, at=0.5)", rounds=0)[0])


def test_label_flip_reverses_the_classes_for_training_and_validation() -> None:
    clean, flipped = (
        tiny_setting("fedavg", under=under, **SMALL).federation for under in ((), "label_flip(share=0.5)")
    )
    ((_, clients),) = flipped.disturbed
    for client, rows in enumerate(clean.clients):
        for split in ("train", "valid", "test"):
            own = getattr(rows, split)
            wrong = client in clients and split != "test"
            expected = clean.n_classes - 1 - clean.y[own] if wrong else clean.y[own]
            assert np.array_equal(flipped.y[own], expected)


@pytest.mark.parametrize(
    "text", ["sign_flip(share=0)", "sign_flip(at=1.0)", "scaling(factor=-1)", "upload_noise(rate=2)"]
)
def test_impossible_options_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=text.partition("(")[0]):
        canonical_under(text)
