"""FedGen (Zhu, Hong, Zhou, ICML 2021): a generator of features, learnt from the clients' heads, teaches their heads."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from idiolect.core import derive
from idiolect.federation import select
from idiolect.parts.feature_generator import diversity_loss, labels_and_noise

PART = "feature_generator"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
OPTIONS = "samples=6, noise=3, width=4, steps=3, learning_rate=0.05"
TRAINING = {"participation_rate": 0.7, "rounds": 3, "momentum": 0.5}


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_weight_zero_and_the_first_round_are_exactly_fedavg(lab, net, engine):
    settings = {"net": net, "engine": engine, **TRAINING}
    fedavg, alone = lab.run("fedavg", **settings), lab.run("fedgen(weight=0)", **settings)
    taught = lab.run(f"fedgen({OPTIONS})", **settings)
    lab.same(alone.params, fedavg.params)
    lab.same(taught.params[1], fedavg.params[1])
    assert lab.differ(taught.params[2], fedavg.params[2])


@pytest.mark.parametrize("options", ["steps=0", "learning_rate=0"])
def test_generator_that_is_not_trained_stays(lab, options):
    trace = lab.run(f"fedgen({options})")
    for server in trace.servers:
        lab.same(server["slots"][PART]["generator"], trace.servers[0]["slots"][PART]["generator"])


def test_labels_are_those_of_the_last_round_s_clients(lab):
    trace = lab.run("fedgen", weighting="samples", **TRAINING)
    held = trace.simulation.setting.federation
    for t in range(3):
        rows = [held.y[held.clients[k].train] for k in select(0.7, 5, seed=0, round=t)]
        counts = np.bincount(np.concatenate(rows), minlength=4)
        found = trace.servers[t + 1]["slots"][PART]["labels"]
        lab.close(found / found.sum(), torch.from_numpy(counts / counts.sum()))


def test_labels_come_in_proportion_to_counts_and_noise_is_normal():
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    labels, noise = labels_and_noise(torch.cat([grid, grid]), torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0]), 4000)
    assert torch.bincount(labels, minlength=5).tolist() == [1000, 0, 2000, 1000, 0]
    within = [((noise.abs() < z).double().mean().item(), math.erf(z / math.sqrt(2))) for z in (1, 2)]
    assert all(found == pytest.approx(expected, abs=1e-3) for found, expected in within)


def test_generator_learns_features_of_its_labels_and_diversity_spreads_them(lab):
    """What the ensemble makes of generated features is their label; with diversity, they move apart."""

    def features(trace):
        g = trace.servers[-1]["slots"][PART]["generator"]
        random = np.random.default_rng(1)
        eps = torch.from_numpy(random.standard_normal((40, 3)))
        labels = torch.arange(4).repeat(10)
        return eps, made(g, labels, eps), labels

    options = "samples=16, noise=3, width=16, weight=0"
    sharp = lab.run(f"fedgen({options}, steps=200, learning_rate=0.02, diversity=0)", rounds=1)
    _, z, labels = features(sharp)
    assert ((z @ sharp.params[-1][HEAD].T).argmax(1) == labels).double().mean() > 0.9
    near, far = (
        diversity_loss(*features(lab.run(f"fedgen({options}, steps=20, diversity={eta})", rounds=1))[:2])
        for eta in (0, 50)
    )
    assert far < 0.9 * near


def made(g, labels, eps):
    """The generator, one sample after the other."""
    rows = []
    for y, e in zip(labels, eps, strict=True):
        hidden = g["generator.noise"] @ e + g["generator.label"][y] + g["generator.shift"]
        rows.append(g["generator.weight"] @ hidden.clamp(min=0) + g["generator.bias"])
    return torch.stack(rows)


def drawn(stage, steps, *position):
    """Labels' uniform numbers [6] and standard normal noise [6, 3] of each step, from the run's own draws."""
    random = np.random.default_rng(derive(0, "draws", PART, stage, *position))
    for row in torch.from_numpy(random.random((steps, 6 * 4))):
        yield row[:6], torch.distributions.Normal(0.0, 1.0).icdf(row[6:]).reshape(6, 3)


def labelled(uniform, counts):
    """The class in whose share of [0, 1) each number lies."""
    edges = np.cumsum(counts / counts.sum())
    return torch.tensor([next(c for c in range(4) if u < edges[c]) for u in uniform.tolist()])


def adam(w, gradients, rate):
    """Adam as in its paper, over gradients that are functions of the parameters."""
    m, v = ({n: torch.zeros_like(p) for n, p in w.items()} for _ in range(2))
    for t, gradient in enumerate(gradients, 1):
        g = gradient(w)
        for n in w:
            m[n], v[n] = 0.9 * m[n] + 0.1 * g[n], 0.999 * v[n] + 0.001 * g[n] ** 2
            w = w | {n: w[n] - rate * (m[n] / (1 - 0.9**t)) / ((v[n] / (1 - 0.999**t)).sqrt() + 1e-8)}
    return w


@ENGINES
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_reference_of_three_rounds_agrees(lab, plain, weighting, engine):
    """Clients on batches and generated features, the mean of models, and the generator's own Adam steps."""
    trace = lab.run(
        f"fedgen(weight=0.6, diversity=0.3, {OPTIONS})", engine=engine, weighting=weighting, **TRAINING
    )
    check, w = plain(trace), trace.params[0]
    generator, counts = trace.servers[0]["slots"][PART]["generator"], None
    for t in range(3):
        cohort, uploads = select(0.7, 5, seed=0, round=t), []
        for k in cohort:
            steps = check.steps(k, 1)
            draws = drawn("main", steps, "main", t, k)

            def loss(v, x, y, draws=draws, generator=generator, counts=counts):
                uniform, eps = next(draws)
                total = check.cross_entropy(v, x, y)
                if counts is None:
                    return total
                labels = labelled(uniform, counts)
                return total + 0.6 * F.cross_entropy(made(generator, labels, eps) @ v[HEAD].T, labels)

            uploads.append(check.sgd(w, check.batches(k, t, steps), loss))
        sizes = [len(check.rows(k, "train")[0]) if weighting == "samples" else 1 for k in cohort]
        w = {n: sum(s * u[n] for s, u in zip(sizes, uploads, strict=True)) / sum(sizes) for n in w}
        lab.close(trace.params[t + 1], w)
        counts = sum(check.counts(k) for k in cohort).numpy()

        def gradient_at(uniform, eps, counts=counts, uploads=uploads):
            labels = labelled(uniform, counts)

            def gradient(g):
                leaves = {n: p.clone().requires_grad_() for n, p in g.items()}
                z = made(leaves, labels, eps)
                ensemble = sum(z @ upload[HEAD].T for upload in uploads) / len(uploads)
                apart = sum(
                    ((eps[i] - eps[j]) ** 2).mean() * (z[i] - z[j]).abs().mean()
                    for i in range(6)
                    for j in range(6)
                )
                value = F.cross_entropy(ensemble, labels) + 0.3 * torch.exp(-apart / 36)
                return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))

            return gradient

        steps = drawn("generator", 3, "server", t)
        generator = adam(generator, [gradient_at(u, e) for u, e in steps], 0.05)
        lab.close(trace.servers[t + 1]["slots"][PART]["generator"], generator, rtol=1e-7)
