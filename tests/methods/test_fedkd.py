"""FedKD (Wu et al. 2022): mentor and mentee teach each other; the mentee's updates travel as factors of low rank."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from idiolect.core import Batch, Out
from idiolect.federation import select
from idiolect.parts.adaptive_companion import adaptive_companion
from idiolect.parts.low_rank_average import low_rank

AVERAGE, COMPANION = "low_rank_average", "adaptive_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"rounds": 3, "momentum": 0.5, "weight_decay": 0.01}


def reduced(update, energy):
    """The nearest matrix of the least rank that keeps more than the energy, and the scalars of its factors."""
    if update.dim() < 2:
        return update, update.numel()
    u, s, v = np.linalg.svd(update.numpy(), full_matrices=False)
    rank = next((k for k in range(1, len(s)) if (s[:k] ** 2).sum() > energy * (s**2).sum()), len(s))
    if rank * (sum(update.shape) + 1) >= update.numel():
        return update, update.numel()
    return torch.from_numpy(u[:, :rank] @ np.diag(s[:rank]) @ v[:rank]), rank * (sum(update.shape) + 1)


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_whole_energy_is_exactly_fedavg(lab, net, engine):
    """With everyone in a round the server's mean is reduced too; factors that are no smaller travel whole."""
    for rate in (0.7, 1.0):
        settings = {"net": net, "engine": engine, "participation_rate": rate, "rounds": 2}
        fedavg = lab.run("fedavg", **settings)
        trace = lab.run("low_rank_average(energy_start=1, energy_end=1)", **settings)
        lab.same(trace.params, fedavg.params)


def test_less_energy_gives_lower_ranks_and_fewer_bytes(lab):
    rows = {}
    for energy in (0.0, 0.9, 1.0):
        part = f"low_rank_average(energy_start={energy}, energy_end={energy})"
        trace = lab.run(part, net="dropout", participation_rate=1.0)
        rows[energy] = trace.simulation.rounds.table().to_pylist()
        ranks = [int(rank) for rank in trace.servers[-1]["slots"][AVERAGE].values()]
        assert all(1 <= rank <= 5 for rank in ranks) and (energy or set(ranks) == {1})
    sent = {energy: [row["bytes_up"] for row in found] for energy, found in rows.items()}
    size = 4 * sum(p.numel() for p in trace.params[0].values())
    assert all(a < b <= c for a, b, c in zip(sent[0.0], sent[0.9], sent[1.0], strict=True))
    assert sent[1.0] == [5 * size] * 3
    assert [row["bytes_down"] for row in rows[1.0]] == [5 * size] * 3
    assert rows[0.0][0]["bytes_down"] == 5 * size  # the initial model
    assert all(row["bytes_down"] < 5 * size for row in rows[0.0][1:])


def test_update_of_nothing_sends_vectors_alone():
    origin = {"weight": torch.rand(4, 5), "kernel": torch.rand(4, 2, 3, 3), "bias": torch.rand(4)}
    found = low_rank(origin, origin, 0.95)
    assert {name: int(rank) for name, rank in found["rank"].items()} == {"weight": 0, "kernel": 0}
    torch.testing.assert_close(found["model"], origin, rtol=0, atol=0)


def test_convolution_is_the_matrix_of_its_outputs():
    random = torch.Generator().manual_seed(0)
    kernel = torch.randn(6, 2, 3, 3, generator=random, dtype=torch.float64)
    found = low_rank({"kernel": kernel}, {"kernel": torch.zeros_like(kernel)}, 0.5)
    expected, _ = reduced(kernel.reshape(6, 18), 0.5)
    torch.testing.assert_close(found["model"]["kernel"].reshape(6, 18), expected)
    assert torch.linalg.matrix_rank(expected) == found["rank"]["kernel"]


@ENGINES
@pytest.mark.parametrize("rate", [0.7, 1.0])
def test_low_ranks_of_three_rounds_agree(lab, plain, rate, engine):
    """Uploads, and with everyone in a round the server's mean; the energy grows from round to round."""
    options = "energy_start=0.3, energy_end=0.9"
    trace = lab.run(f"low_rank_average({options})", engine=engine, participation_rate=rate, **TRAINING)
    check, w, down = plain(trace), trace.params[0], None
    rows = trace.simulation.rounds.table().to_pylist()
    size = sum(p.numel() for p in w.values())
    for t in range(3):
        energy, cohort, up, uploads = 0.3 + 0.6 * (t + 1) / 3, select(rate, 5, seed=0, round=t), 0, []
        for k in cohort:
            new = check.sgd(w, check.batches(k, t, check.steps(k, 1)), check.cross_entropy)
            found = {n: reduced(new[n] - w[n], energy) for n in w}
            uploads.append({n: update for n, (update, _) in found.items()})
            up += sum(count for _, count in found.values())
        assert rows[t]["bytes_up"] == 4 * up
        assert rows[t]["bytes_down"] == 4 * len(cohort) * (down or size)
        mean = {n: sum(upload[n] for upload in uploads) / len(uploads) for n in w}
        if rate == 1:
            found = {n: reduced(mean[n], energy) for n in w}
            mean, down = {n: u for n, (u, _) in found.items()}, sum(count for _, count in found.values())
        w = {n: w[n] + mean[n] for n in w}
        lab.close(trace.params[t + 1], w)
    assert up < len(cohort) * size


@ENGINES
def test_mentor_and_mentee_of_three_rounds_agree(lab, plain, engine):
    trace = lab.run(
        "fedkd(energy_start=1, energy_end=1, hidden_weight=0.7)",
        engine=engine,
        participation_rate=0.7,
        **TRAINING,
    )
    check, w = plain(trace), trace.params[0]
    own = {k: trace.slot(COMPANION, k, 0) for k in range(5)}
    for t in range(3):
        uploads = []
        for k in select(0.7, 5, seed=0, round=t):
            both = {f"s {n}": p for n, p in w.items()} | {f"t {n}": p for n, p in own[k]["params"].items()}
            both["map"] = own[k]["feature map"]["map.weight"]

            def loss(v, x, y):
                mentee = {n[2:]: p for n, p in v.items() if n.startswith("s ")}
                mentor = {n[2:]: p for n, p in v.items() if n.startswith("t ")}
                (h_s, z_s), (h_t, z_t) = check.forward(mentee, x), check.forward(mentor, x)
                task_s, task_t = F.cross_entropy(z_s, y), F.cross_entropy(z_t, y)
                both_right = (task_s + task_t).item()
                p_s, p_t = torch.softmax(z_s, 1), torch.softmax(z_t, 1)
                kl_t = (p_s.detach() * (p_s.detach().log() - p_t.log())).sum(1).mean()
                kl_s = (p_t.detach() * (p_t.detach().log() - p_s.log())).sum(1).mean()
                hidden = F.mse_loss(h_t, torch.stack([v["map"] @ h for h in h_s]))
                return task_s + task_t + (kl_s + kl_t + 0.7 * hidden) / both_right

            trained = check.sgd(both, check.batches(k, t, check.steps(k, 1)), loss)
            uploads.append({n: trained[f"s {n}"] for n in w})
            own[k] = {
                "params": {n: trained[f"t {n}"] for n in w},
                "feature map": {"map.weight": trained["map"]},
            }
        w = {n: sum(upload[n] for upload in uploads) / len(uploads) for n in w}
        lab.close(trace.params[t + 1], w)
    for k, found in enumerate(trace.logits()):
        for tree in ("params", "feature map"):
            lab.close(trace.slot(COMPANION, k, 3)[tree], own[k][tree])
        expected = check.forward(own[k]["params"], check.rows(k, "test")[0])[1]
        lab.close(found["companion"], expected)


def test_companion_begins_as_that_of_feddml(lab):
    fedkd, feddml = lab.run("fedkd", rounds=1), lab.run("feddml", rounds=1)
    for k in range(5):
        lab.same(fedkd.slot(COMPANION, k, 0)["params"], feddml.slot("mutual_companion", k, 0)["params"])


def test_feature_map_begins_as_a_linear_layer_the_same_for_everyone(lab):
    """From U(-1 / sqrt(d), 1 / sqrt(d)), drawn by the seed of the run."""
    maps = [
        lab.run("fedkd", rounds=1, seed=s).slot(COMPANION, k, 0)["feature map"]
        for s in (0, 1)
        for k in (0, 4)
    ]
    one, same, other, _ = (found["map.weight"] for found in maps)
    assert one.shape == (5, 5)
    lab.same(one, same)
    assert lab.differ(one, other)
    for weight in (one, other):
        assert 0.8 / 5**0.5 < weight.abs().max() <= 1 / 5**0.5
        assert weight.min() < 0 < weight.max()


@pytest.mark.parametrize("right", [True, False])
def test_losses_that_are_zero_divide_nothing(right):
    """Where both models are sure and right, what sets them apart is divided by the least sum, not by zero."""
    part = adaptive_companion(hidden_weight=2.0)
    x = torch.tensor([[1.0, -1.0], [0.5, 2.0]], dtype=torch.float64)
    y = torch.tensor([0, 1] if right else [1, 0])
    batch = Batch(x, y, torch.ones(2, dtype=torch.float64), y, {})
    sure = 1e3 * torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    mapped = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    mine = {"adaptive_companion logits": sure, "adaptive_companion features": 3 * x}
    out = Out(x, sure, extra=mine)

    def criterion(params, batch, out):
        return F.cross_entropy(out.logits, batch.y)

    view = SimpleNamespace(task=SimpleNamespace(criterion=criterion))
    total = part.loss(criterion, view)({"feature map": {"map.weight": mapped}}, batch, out)
    hidden = 2.0 * F.mse_loss(x @ mapped.T, 3 * x)
    each = 0.0 if right else 1e3
    torch.testing.assert_close(total, 2 * each + hidden / max(2 * each, 1e-6))
    (slope,) = torch.autograd.grad(total, mapped)
    assert slope.isfinite().all() and (slope != 0).all()
