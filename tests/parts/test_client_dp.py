"""Client-level differential privacy against direct computations in numpy from the paper's algorithm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from idiolect.core import Clock, Messages, released, server_round
from idiolect.core.noise import SeededNoise
from idiolect.engines import LoopEngine
from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.testing import tiny_run, tiny_setting
from idiolect.testing.sameness import assert_exact, copied, privates, states

SHAPES = {"body": (4, 3), "head": (5,)}
PLAIN = "client_dp(clip=None, noise=0) + dp_sgd(clip=None, noise=0)"
CLOCK = Clock(round=2, rounds=5, participation_rate=0.5, cohort_size=10, population=20, learning_rate=0.1)
NOBODY = SeededNoise(0)


def some_messages(count: int, seed: int = 0) -> tuple[dict, Messages, np.ndarray, np.ndarray]:
    """A server with two slots, messages of two parts and statistics, and all updates and origins as rows of numbers."""
    random = np.random.default_rng(seed)
    start = {name: random.normal(size=shape) for name, shape in SHAPES.items()}
    sent = {name: start[name] + random.normal(size=(count, *shape)) for name, shape in SHAPES.items()}
    control = {name: random.normal(size=(count, *shape)) for name, shape in SHAPES.items()}  # from zero
    weight = torch.from_numpy(random.uniform(1, 9, size=count))
    messages = {
        "average": ({n: torch.from_numpy(a) for n, a in sent.items()}, weight),
        "control_variates": ({n: torch.from_numpy(a) for n, a in control.items()}, torch.ones_like(weight)),
    }
    params = {name: torch.from_numpy(array) for name, array in start.items()}
    zeros = {name: torch.zeros_like(leaf) for name, leaf in params.items()}
    server = {"params": params, "buffers": {}, "slots": {"control_variates": zeros}}
    updates = [
        *((sent[n] - start[n]).reshape(count, -1) for n in SHAPES),
        *(control[n].reshape(count, -1) for n in SHAPES),
    ]
    origin = np.concatenate(
        [start[n].reshape(-1) for n in SHAPES] + [0 * start[n].reshape(-1) for n in SHAPES]
    )
    return server, messages, np.concatenate(updates, 1), origin


def as_rows(messages: Messages) -> np.ndarray:
    leaves = [value[name] for value, _ in messages.values() for name in SHAPES]
    return torch.cat([leaf.reshape(len(leaf), -1) for leaf in leaves], 1).numpy()


def of_server(server: dict) -> np.ndarray:
    leaves = [tree[n] for tree in (server["params"], server["slots"]["control_variates"]) for n in SHAPES]
    return torch.cat([leaf.reshape(-1) for leaf in leaves]).numpy()


@pytest.mark.parametrize("clip", [0.5, 4.0, 100.0])
def test_an_update_is_bounded_over_all_messages_together(clip: float) -> None:
    server, messages, updates, origin = some_messages(6)
    made = method(f"scaffold + client_dp(clip={clip}, noise=0)")
    found = released(made, server, {}, range(6), messages, CLOCK, NOBODY)
    norms = np.linalg.norm(updates, axis=1)
    assert norms.min() > 4 and norms.max() < 100
    expected = origin + updates * np.minimum(1, clip / norms)[:, None]
    assert as_rows(found) == pytest.approx(expected, abs=1e-12)
    assert all((weight == 1).all() for _, weight in found.values())


def test_the_mean_divides_by_the_expected_cohort_whoever_answers() -> None:
    server, messages, updates, origin = some_messages(6)
    made = method("scaffold(control_rate=cohort) + client_dp(clip=3.0, noise=0)")
    sent = released(made, server, {}, range(6), messages, CLOCK, NOBODY)
    found = of_server(server_round(made, server, sent, CLOCK._replace(cohort_size=6), NOBODY))
    bounded = updates * np.minimum(1, 3.0 / np.linalg.norm(updates, axis=1))[:, None]
    assert found == pytest.approx(
        origin + bounded.sum(0) / 10, abs=1e-12
    )  # 0.5 of 20 clients, of whom 6 answer


def test_the_server_does_not_make_use_of_how_many_took_part() -> None:
    server, messages, _, _ = some_messages(6)
    made = method("scaffold + client_dp(clip=3.0, noise=1.0)")
    sent = released(made, server, {}, range(6), messages, CLOCK, NOBODY)
    few, many = (
        of_server(server_round(made, server, sent, CLOCK._replace(cohort_size=n), NOBODY)) for n in (1, 9)
    )
    assert (few == many).all()


def unit_noise(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in the place of N(0, 1), known from the size alone."""
    return np.linspace(-2, 2, int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("where", ["central", "local"])
@pytest.mark.parametrize("name", ["fedavg", "fedper", "map", "ditto", "persfl(epochs=1)"])
def test_a_round_of_a_method_is_that_of_the_algorithm(name: str, where: str, monkeypatch) -> None:
    """From what the clients of the plain method upload, in numpy: bound, noise, sum, division by the cohort."""
    monkeypatch.setattr(SeededNoise, "normal", lambda self, shape, *position: unit_noise(shape))
    bound, z = 0.1, 0.7
    setting = tiny_setting(name, rounds=1, model="mlpnet(hidden=8)")
    server, cohort = setting.first_server(), setting.selected(0)
    privates = {client: setting.first_private(client) for client in cohort}
    outcomes = LoopEngine(setting.work).round(setting.program(0), server, privates, False)
    assert all(outcome.messages.keys() == {"average"} for outcome in outcomes)
    uploads = [
        {n: leaf.numpy() for n, leaf in outcome.messages["average"][0].items()} for outcome in outcomes
    ]
    origin = {n: server["params"][n].numpy() for n in uploads[0]}
    total = {n: np.zeros_like(origin[n]) for n in origin}
    factors = []
    for upload in uploads:
        update = {n: upload[n] - origin[n] for n in origin}
        factors.append(min(1.0, bound / np.sqrt(sum((u**2).sum() for u in update.values()))))
        for n, u in update.items():
            total[n] += factors[-1] * u + (z * bound * unit_noise(u.shape) if where == "local" else 0)
    assert min(factors) < 1
    run = tiny_run(
        f"{name} + client_dp(clip={bound}, noise={z}, where={where})", rounds=1, model="mlpnet(hidden=8)"
    )
    for n, begun in origin.items():
        spread = z * bound * unit_noise(begun.shape) if where == "central" else 0
        expected = begun + (total[n] + spread) / len(cohort)
        assert run.server["params"][n].numpy() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    kept = {n for n in server["params"] if n not in origin}
    assert all(torch.equal(run.server["params"][n], server["params"][n]) for n in kept)


def big_round(text: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What leaves clients whose update is nothing, and the server's change, with many parameters; the model itself."""
    made = method(text)
    params = {"body": torch.randn(100, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}
    server = {"params": params, "buffers": {}, "slots": {}}
    value = {"body": params["body"].expand(count, 100, 300).clone()}
    messages = {"average": (value, torch.ones(count, dtype=torch.float64))}
    noise = SeededNoise(seed)
    sent = released(made, server, {}, range(count), messages, CLOCK, noise) if count else messages
    merged = server_round(made, server, sent, CLOCK, noise)
    origin = params["body"].numpy()
    return sent["average"][0]["body"].numpy() - origin, merged["params"]["body"].numpy() - origin, origin


@pytest.mark.parametrize("count", [0, 1, 7])
def test_central_noise_has_the_variance_of_the_algorithm(count: int) -> None:
    left, change, _ = big_round("fedavg + client_dp(clip=0.5, noise=3.0)", count)
    assert not left.any()  # the noise is the server's
    # 30,000 numbers: the standard deviation of their variance is sqrt(2 / 30000) of it
    assert change.var() == pytest.approx((3.0 * 0.5 / 10) ** 2, rel=5 * np.sqrt(2 / 30_000))
    assert abs(change.mean()) < 5 * 0.15 / np.sqrt(30_000)


def test_local_noise_is_each_clients_own() -> None:
    left, change, _ = big_round("fedavg + client_dp(clip=0.5, noise=3.0, where=local)", 4)
    rows = left.reshape(4, -1)
    assert rows.var(1) == pytest.approx([(3.0 * 0.5) ** 2] * 4, rel=5 * np.sqrt(2 / 30_000))
    assert abs(np.corrcoef(rows) - np.eye(4)).max() < 5 / np.sqrt(30_000)
    assert change == pytest.approx(left.mean(0), abs=1e-12)


def test_noise_differs_by_seed_and_round_and_follows_from_them() -> None:
    first, again, other = (big_round("fedavg + client_dp", 3, seed)[1] for seed in (0, 0, 1))
    assert (first == again).all()
    assert not (first == other).any()


@pytest.mark.parametrize("name", ["fedavg", "fedper", "scaffold"])
def test_without_bound_and_noise_a_run_is_the_plain_run_bit_for_bit(name: str) -> None:
    assert_exact(states(tiny_run(f"{name} + {PLAIN}")), states(tiny_run(name)))


def test_private_layers_carry_no_noise() -> None:
    settings = {"rounds": 1, "model": "mlpnet(hidden=8)"}
    noisy, plain = (
        tiny_run(f"fedper{more}", **settings) for more in ("", " + client_dp(where=local, noise=9)")
    )
    assert_exact(copied(privates(noisy)), copied(privates(plain)))
    assert not torch.equal(*(next(iter(run.server["params"].values())) for run in (noisy, plain)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("feddf + client_dp", "ensemble_distillation makes use of single uploads"),
        ("fedamp + client_dp", "attentive_mixture makes use of single uploads"),
        ("fedfomo + client_dp(where=local)", "first_order_mixture sends what the server must read exactly"),
        (
            "fedas + client_dp(where=local)",
            "informed_average weighs uploads by numbers that it takes from the data",
        ),
        ("fedavg + median + client_dp", "each puts another mean"),
        ("fedavg + norm_bound + client_dp", "norm_bound lets one upload change what becomes of the others"),
    ],
)
def test_what_the_noise_does_not_cover_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        method(text)


def test_noise_of_each_client_goes_with_robust_means_and_single_uploads() -> None:
    for text in ("fedavg + median + client_dp(where=local)", "feddf + client_dp(where=local)"):
        assert method(text).reads_single_uploads
    assert not method("fedavg + client_dp").reads_single_uploads


def test_running_statistics_and_late_uploads_are_refused() -> None:
    small = {"rounds": 1, "model": "mlpnet(hidden=8)"}
    with pytest.raises(UserError, match="noise to running statistics"):
        tiny_run("fedavg + client_dp", **(small | {"model": "lenet_bn"}))
    with pytest.raises(UserError, match="two uploads of one client can arrive in one round"):
        tiny_run("fedavg + client_dp", under=("late",), **small)
    with pytest.raises(UserError, match="no bound; set clip, or noise to 0"):
        method("fedavg + client_dp(clip=None)")


def test_a_round_in_which_nobody_takes_part_gets_noise_too() -> None:
    settings = {"rounds": 2, "model": "mlpnet(hidden=8)", "selection": "poisson", "participation_rate": 0.05}
    run = tiny_run("fedavg + client_dp(noise=2)", **settings)
    assert not any(run.setting.selected(round) for round in range(2))
    before = run.setting.first_server()["params"]
    change = torch.cat([(leaf - before[name]).reshape(-1) for name, leaf in run.server["params"].items()])
    assert change.var().item() == pytest.approx(2 * 2.0**2, rel=5 * np.sqrt(2 / len(change)))
