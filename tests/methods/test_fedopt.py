"""The FedOpt family (Reddi et al., ICLR 2021; Hsu et al. 2019): optimisers on the mean of the clients' changes."""

import numpy as np
import pytest

from idiolect.federation import select

PART = "server_optimiser"
SCENE = {"rounds": 4, "participation_rate": 0.6, "weighting": "samples", "momentum": 0.5}
FAMILY = ["fedavgm(momentum=0.7)", "fedadagrad", "fedadam", "fedyogi"]
TAU = 0.05


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_plain_server_step_is_fedavg(lab, nesterov, net, engine):
    settings = {**SCENE, "net": net, "engine": engine}
    fedavgm = lab.run(f"fedavgm(learning_rate=1, momentum=0, nesterov={nesterov})", **settings)
    fedavg = lab.run("fedavg", **settings)
    for a, b in zip(fedavgm.servers, fedavg.servers, strict=True):
        lab.close(a["params"], b["params"])
        lab.close(a["buffers"], b["buffers"])
    assert lab.differ(fedavg.params[4], fedavg.params[0])


@pytest.mark.parametrize("momentum", [0.3, 0.9])
def test_first_round_with_momentum_is_fedavg(lab, momentum):
    fedavgm, fedavg = lab.run(f"fedavgm(momentum={momentum})", **SCENE), lab.run("fedavg", **SCENE)
    lab.close(fedavgm.params[1], fedavg.params[1])
    assert lab.differ(fedavgm.params[2], fedavg.params[2])


@pytest.mark.parametrize("method", FAMILY)
def test_statistics_are_the_plain_average(lab, method):
    settings = {**SCENE, "net": "bn", "rounds": 1}
    server, fedavg = lab.run(method, **settings).servers[1], lab.run("fedavg", **settings).servers[1]
    lab.same(server["buffers"], fedavg["buffers"])
    assert server["buffers"]
    assert not set(server["buffers"]) & set(server["slots"][PART]["m"])


def second_moment(rule, v, d, b2):
    if rule == "fedadagrad":
        return v + d * d
    if rule == "fedadam":
        return b2 * v + (1 - b2) * d * d
    return v - (1 - b2) * d * d * np.sign(v - d * d)


def server_path(method, theta, changes_of, rounds):
    """numpy: changes_of(theta, t) gives D; returns the path and the signs of v - D^2 met on the way."""
    m = {n: np.zeros_like(p) for n, p in theta.items()}
    v = {n: np.full_like(p, TAU**2) for n, p in theta.items()}
    path, signs = [theta], set()
    for t in range(rounds):
        d = changes_of(path[-1], t)
        now = path[-1]
        if method.startswith("fedavgm"):
            m = {n: 0.8 * m[n] + d[n] for n in m}
            step = {n: d[n] + 0.8 * m[n] for n in m} if method == "fedavgm nesterov" else m
            path.append({n: now[n] + 0.3 * step[n] for n in now})
            continue
        keep = 0.0 if method == "fedadagrad" else 0.6
        signs |= {s for n in v for s in np.unique(np.sign(v[n] - d[n] ** 2))}
        m = {n: keep * m[n] + (1 - keep) * d[n] for n in m}
        v = {n: second_moment(method, v[n], d[n], 0.8) for n in v}
        path.append({n: now[n] + 0.3 * m[n] / (np.sqrt(v[n]) + TAU) for n in now})
    return path, signs


CALLS = {
    "fedavgm": "fedavgm(learning_rate=0.3, momentum=0.8)",
    "fedavgm nesterov": "fedavgm(learning_rate=0.3, momentum=0.8, nesterov=True)",
    "fedadagrad": f"fedadagrad(learning_rate=0.3, tau={TAU})",
    "fedadam": f"fedadam(learning_rate=0.3, beta_one=0.6, beta_two=0.8, tau={TAU})",
    "fedyogi": f"fedyogi(learning_rate=0.3, beta_one=0.6, beta_two=0.8, tau={TAU})",
}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("method", CALLS)
def test_reference_in_numpy_of_four_rounds_agrees(lab, plain, method, engine):
    run = lab.run(CALLS[method], engine=engine, **SCENE)
    check = plain(run)

    def changes(theta, t):
        w = {n: check.x.new_tensor(p) for n, p in theta.items()}
        cohort = select(0.6, 5, seed=check.experiment.seed, round=t)
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        locals_ = [check.sgd(w, check.batches(k, t, check.steps(k, 1)), check.cross_entropy) for k in cohort]
        shares = np.array(sizes) / sum(sizes)
        return {
            n: sum(p * (local[n].numpy() - theta[n]) for p, local in zip(shares, locals_, strict=True))
            for n in theta
        }

    path, signs = server_path(method, {n: p.numpy() for n, p in run.params[0].items()}, changes, 4)
    for a, b in zip(run.params, path, strict=True):
        lab.close({n: p.numpy() for n, p in a.items()}, b)
    if method == "fedyogi":
        assert {-1.0, 1.0} <= signs
