"""FedCurv (Shoham et al. 2019): a Fisher-weighted penalty by the last round's other participants."""

import pytest
import torch

from idiolect.federation import select

PART = "curvature"
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2, "momentum": 0.5}


def fisher(check, w, client):
    """Mean over the training samples of the squared gradient of each one's own log-likelihood."""
    x, y = check.rows(client, "train")
    total = {n: torch.zeros_like(w[n]) for n in w}
    for row in range(len(y)):
        leaves = {n: w[n].clone().requires_grad_() for n in w}
        log_p = torch.log_softmax(check.forward(leaves, x[row : row + 1])[1], 1)[0, y[row]]
        grads = torch.autograd.grad(log_p, leaves.values())
        total = {n: total[n] + g**2 for n, g in zip(w, grads, strict=True)}
    return {n: total[n] / len(y) for n in w}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_no_weight_is_exactly_fedavg(lab, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "weighting": "samples"}
    fedcurv, fedavg = lab.run("fedcurv(weight=0)", **settings), lab.run("fedavg", **settings)
    for a, b in zip(fedcurv.servers, fedavg.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_first_round_is_exactly_fedavg(lab, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "rounds": 2}
    fedcurv, fedavg = lab.run("fedcurv(weight=0.5)", **settings), lab.run("fedavg", **settings)
    lab.same(fedcurv.params[1], fedavg.params[1])
    lab.same(fedcurv.servers[1]["buffers"], fedavg.servers[1]["buffers"])
    assert lab.differ(fedcurv.params[2], fedavg.params[2])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_single_client_has_no_penalty_and_is_exactly_fedavg(lab, engine):
    settings = {"federation": lab.federation((9,)), "engine": engine, "rounds": 3, "local_epochs": 2}
    fedcurv, fedavg = lab.run("fedcurv(weight=0.5)", **settings), lab.run("fedavg", **settings)
    lab.same(fedcurv.params, fedavg.params)


def test_penalty_covers_no_statistics(lab):
    server = lab.run("fedcurv(weight=0.5)", net="bn", rounds=1).servers[1]
    assert server["buffers"]
    assert set(server["slots"][PART]["importance"]) == set(server["params"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_four_rounds_agrees(lab, plain, engine):
    """A client's own share is left out if it took part in the last round, and only then."""
    weight = 0.4
    fedcurv = lab.run(f"fedcurv(weight={weight})", engine=engine, weighting="samples", **SCENE)
    check = plain(fedcurv)
    w, last, cases = fedcurv.params[0], {}, set()
    for t in range(4):
        cohort, now = select(0.6, 5, seed=check.experiment.seed, round=t), {}
        locals_ = []
        for client in cohort:
            others = [pair for j, pair in last.items() if j != client]
            if t:
                cases.add(client in last)

            def loss(v, x, y, others=others):
                curve = sum(
                    ((f[n] * v[n] ** 2) - 2 * f[n] * at[n] * v[n]).sum() for f, at in others for n in v
                )
                return check.cross_entropy(v, x, y) + weight * curve

            local = check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)
            now[client] = (fisher(check, local, client), local)
            locals_.append(local)
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        w = {n: sum(s * local[n] for s, local in zip(sizes, locals_, strict=True)) / sum(sizes) for n in w}
        lab.close(fedcurv.params[t + 1], w)
        slot = fedcurv.servers[t + 1]["slots"][PART]
        lab.close(slot["importance"], {n: sum(f[n] for f, _ in now.values()) for n in w})
        lab.close(slot["weighted"], {n: sum(f[n] * at[n] for f, at in now.values()) for n in w})
        last = now
    assert cases == {True, False}
