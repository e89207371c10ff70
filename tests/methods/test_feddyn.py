"""FedDyn (Acar et al., ICLR 2021): duals on the clients, their mean on the server."""

import pytest
import torch

from idiolect.core import broadcast
from idiolect.federation import select

PART = "dynamic_regulariser"
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2}


def uploads(lab, method, part, **settings):
    """What every client sends in the first round."""
    simulation = lab.start(method, **settings)
    program, everyone = simulation.setting.program(0), range(simulation.setting.federation.population)
    sent = broadcast(simulation.setting.method, simulation.server)
    outcomes = simulation.engine.round(program, sent, simulation.store.rows(everyone), False)
    return [outcome.messages[part][0] for outcome in outcomes]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("alpha", [0.001, 2.0])
def test_first_round_trains_as_fedprox(lab, alpha, engine):
    dyn = uploads(lab, f"feddyn(alpha={alpha})", PART, local_epochs=2, engine=engine)
    prox = uploads(lab, f"fedprox(weight={alpha})", "average", local_epochs=2, engine=engine)
    lab.close(dyn, prox)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("alpha", [0.001, 2.0])
def test_first_round_of_everyone_goes_twice_as_far_as_the_mean(lab, alpha, engine):
    """For every alpha: there is none that gives FedAvg."""
    feddyn = lab.run(f"feddyn(alpha={alpha})", local_epochs=2, rounds=1, engine=engine)
    fedprox = lab.run(f"fedprox(weight={alpha})", local_epochs=2, rounds=1, engine=engine)
    first, middle = fedprox.params
    lab.close(feddyn.params[1], {n: 2 * middle[n] - first[n] for n in first})


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_servers_dual_is_the_mean_of_all_clients_under_any_participation(lab, rate, engine):
    settings = {**SCENE, "participation_rate": rate, "weighting": "samples", "engine": engine}
    feddyn = lab.run("feddyn(alpha=0.1)", **settings)
    for t in range(5):
        duals = [feddyn.slot(PART, client, t) for client in range(5)]
        h = feddyn.servers[t]["slots"][PART]
        lab.close(h, {n: sum(dual[n] for dual in duals) / 5 for n in h})
    assert all(leaf.abs().max() > 1e-6 for leaf in h.values())


def test_duals_of_clients_not_selected_stay(lab):
    feddyn = lab.run("feddyn(alpha=0.1)", **SCENE)
    for t in range(4):
        for client in set(range(5)) - set(select(0.6, 5, seed=0, round=t)):
            lab.same(feddyn.slot(PART, client, t + 1), feddyn.slot(PART, client, t))


def test_statistics_are_the_plain_average_without_a_dual(lab):
    settings = {**SCENE, "net": "bn", "rounds": 1}
    feddyn, fedprox = lab.run("feddyn(alpha=0.1)", **settings), lab.run("fedprox(weight=0.1)", **settings)
    server = feddyn.servers[1]
    lab.close(server["buffers"], fedprox.servers[1]["buffers"])
    assert not set(server["buffers"]) & set(server["slots"][PART])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_four_rounds_agrees(lab, plain, engine):
    """The cohort's mean is uniform also where averages go by samples: h counts clients."""
    alpha = 0.3
    scene = {**SCENE, "momentum": 0.5, "weight_decay": 0.01, "weighting": "samples"}
    feddyn = lab.run(f"feddyn(alpha={alpha})", engine=engine, **scene)
    check = plain(feddyn)
    w = feddyn.params[0]
    h = {n: torch.zeros_like(w[n]) for n in w}
    duals = dict.fromkeys(range(5), h)
    for t in range(4):
        cohort, locals_ = select(0.6, 5, seed=check.experiment.seed, round=t), []
        for client in cohort:

            def loss(v, x, y, w=w, g=duals[client]):
                linear = sum((g[n] * v[n]).sum() for n in w)
                near = sum(((v[n] - w[n]) ** 2).sum() for n in w)
                return check.cross_entropy(v, x, y) - linear + alpha / 2 * near

            local = check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)
            duals[client] = {n: duals[client][n] - alpha * (local[n] - w[n]) for n in w}
            locals_.append(local)
        h = {n: h[n] - alpha / 5 * sum(local[n] - w[n] for local in locals_) for n in w}
        w = {n: sum(local[n] for local in locals_) / len(cohort) - h[n] / alpha for n in w}
        lab.close(feddyn.params[t + 1], w)
        lab.close(feddyn.servers[t + 1]["slots"][PART], h)
    for client in range(5):
        lab.close(feddyn.slot(PART, client, 4), duals[client])
