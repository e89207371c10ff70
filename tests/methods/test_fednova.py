"""FedNova (Wang et al., NeurIPS 2020): directions are averaged, so that steps do not count as weight."""

from itertools import product

import pytest
import torch

from idiolect.core import Part, broadcast, chain
from idiolect.federation import select
from idiolect.parts import average, normalised_average

PART = "normalised_average"
ETA = 0.125


def norms(lab, method, **settings):
    """||a_k||_1 as every client uploads it in the first round."""
    simulation = lab.start(method, **settings)
    program, everyone = simulation.setting.program(0), range(simulation.setting.federation.population)
    sent = broadcast(simulation.setting.method, simulation.server)
    outcomes = simulation.engine.round(program, sent, simulation.store.rows(everyone), False)
    return [float(outcome.messages[PART][0]["norm"]) for outcome in outcomes]


def carried(steps, rho, mu):
    """How far torch's own optimiser carries a constant gradient of one, in learning rates."""
    w = torch.zeros((), dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=ETA, momentum=rho)
    for _ in range(steps):
        w.grad = 1 + mu * w.detach()
        sgd.step()
    return -float(w.detach()) / ETA


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.5)])
def test_equal_steps_are_the_average(lab, rho, mu, weighting, engine):
    """Two steps an epoch for everyone, though sizes differ; with mu it is FedProx's average."""
    settings = {"momentum": rho, "weighting": weighting, "engine": engine, "local_epochs": 2}
    settings["federation"] = lab.federation((8, 5, 7))
    fednova = lab.run(f"fednova(proximal_weight={mu})", **settings)
    fedprox = lab.run(f"fedprox(weight={mu})", **settings)
    lab.close(fednova.params, fedprox.params)
    assert lab.differ(fednova.params[3], fednova.params[0])


def test_unequal_steps_are_not_the_average(lab):
    fednova, fedavg = lab.run("fednova", rounds=1), lab.run("fedavg", rounds=1)
    assert lab.differ(fednova.params[1], fedavg.params[1])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_normaliser_of_momentum_is_its_closed_form(lab, rho, engine):
    found = norms(lab, "fednova", momentum=rho, local_epochs=2, engine=engine)
    steps = [6, 2, 8, 4, 4]
    expected = [(tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho) for tau in steps]
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mu", [0.01, 1.0, 7.0])
def test_normaliser_of_a_proximal_term_is_its_closed_form(lab, mu):
    found = norms(lab, f"fednova(proximal_weight={mu})", momentum=0, local_epochs=2)
    expected = [(1 - (1 - ETA * mu) ** tau) / (ETA * mu) for tau in (6, 2, 8, 4, 4)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_normaliser_is_what_the_optimiser_does_to_a_constant_gradient(lab):
    for rho, mu in product((0.0, 0.5, 0.9), (0.0, 0.01, 2.0)):
        found = norms(lab, f"fednova(proximal_weight={mu})", momentum=rho, local_epochs=2)
        assert found == pytest.approx([carried(tau, rho, mu) for tau in (6, 2, 8, 4, 4)], rel=1e-12)


def test_normaliser_uses_the_rate_of_the_round(lab):
    found = norms(lab, "fednova(proximal_weight=1)", momentum=0, local_epochs=2, warmup_rounds=2)
    rate = ETA / 2
    assert found == pytest.approx([(1 - (1 - rate) ** tau) / rate for tau in (6, 2, 8, 4, 4)], rel=1e-12)


def constant_gradient():
    """A loss that is linear in the parameters, with a slope of each client's own."""

    def loss(inner, view):
        holds = (view.facts.class_counts > 0).to(view.facts.samples)
        slope = 1 + (holds * torch.arange(1, len(holds) + 1).to(holds)).sum()

        def total(params, batch, out):
            weights = params["model"].values()
            return sum(
                (torch.sin(slope * (1 + torch.arange(w.numel()).to(w))) * w.flatten()).sum() for w in weights
            )

        return total

    return Part("constant_gradient", loss=loss)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_more_steps_at_a_constant_gradient_keep_the_direction(lab, rho, engine):
    """The length is that of tau_eff, the mean of the normalisers; the plain average turns."""

    def moved(part, sizes):
        held = [(0, 1), (1, 2, 3)]
        run = lab.run(
            chain(part, constant_gradient()),
            federation=lab.federation(sizes, held),
            rounds=1,
            momentum=rho,
            engine=engine,
        )
        return torch.cat([(run.params[1][n] - run.params[0][n]).flatten() for n in run.params[0]])

    few, many = moved(normalised_average(), (8, 8)), moved(normalised_average(), (8, 40))
    growth = (carried(2, rho, 0) + carried(10, rho, 0)) / (2 * carried(2, rho, 0))
    lab.close(many, growth * few)
    turned = moved(average(), (8, 40))
    assert torch.nn.functional.cosine_similarity(turned, few, dim=0) < 0.95


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(("mu", "gmf"), [(0.0, 0.0), (0.6, 0.4)])
def test_reference_of_four_rounds_agrees(lab, plain, mu, gmf, engine):
    fednova = lab.run(
        f"fednova(proximal_weight={mu}, global_momentum={gmf})",
        rounds=4,
        participation_rate=0.6,
        local_epochs=2,
        momentum=0.5,
        weighting="samples",
        engine=engine,
    )
    check = plain(fednova)
    w = fednova.params[0]
    buffer = {n: torch.zeros_like(w[n]) for n in w}
    for t in range(4):
        cohort = select(0.6, 5, seed=check.experiment.seed, round=t)
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        directions, lengths = [], []
        for client in cohort:

            def loss(v, x, y, w=w):
                return check.cross_entropy(v, x, y) + mu / 2 * sum(((v[n] - w[n]) ** 2).sum() for n in w)

            tau = check.steps(client, 2)
            local = check.sgd(w, check.batches(client, t, tau), loss)
            lengths.append(carried(tau, 0.5, mu))
            directions.append({n: (w[n] - local[n]) / lengths[-1] for n in w})
        shares = [n / sum(sizes) for n in sizes]
        effective = sum(p * a for p, a in zip(shares, lengths, strict=True))
        step = {n: effective * sum(p * d[n] for p, d in zip(shares, directions, strict=True)) for n in w}
        buffer = {n: gmf * buffer[n] + step[n] for n in w}
        w = {n: w[n] - buffer[n] for n in w}
        lab.close(fednova.params[t + 1], w)
