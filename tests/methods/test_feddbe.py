"""FedDBE (Zhang et al., NeurIPS 2023): a private vector in feature space, and a mean feature that all agreed on."""

import pytest
import torch.nn.functional as F

from idiolect.federation import select

PART = "representation_bias"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
TRAINING = {"participation_rate": 0.7, "weight_decay": 0.01, "weighting": "samples"}


@ENGINES
@NETS
def test_first_round_is_fedavg_s_and_leaves_the_vectors_at_zero(lab, net, engine):
    a, b = (lab.run(method, net=net, engine=engine, rounds=2, **TRAINING) for method in ("feddbe", "fedavg"))
    lab.close(a.params[1], b.params[1])
    assert lab.differ(a.params[2], b.params[2])
    for client in range(5):
        assert not a.slot(PART, client, 1)["bias"].any()
    assert any(a.slot(PART, client, 2)["bias"].any() for client in range(5))


def test_mean_is_agreed_on_once(lab):
    trace = lab.run("feddbe", rounds=3)
    slots = [server["slots"][PART] for server in trace.servers]
    assert not slots[0]["mean"].any() and slots[1]["mean"].any()
    lab.same(slots[2:], slots[1:3])


def test_shared_model_is_scored_without_a_vector_and_the_own_one_with_it(lab, plain):
    trace = lab.run("feddbe(weight=2)", rounds=3)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        h, z = check.forward(trace.params[3], check.rows(client, "test")[0])
        lab.close(found["global"], z)
        shifted = h + trace.slot(PART, client, 3)["bias"]
        lab.close(found["composed"], shifted @ trace.params[3]["units.2.linear.weight"].T)


@ENGINES
@pytest.mark.parametrize(("kappa", "mu"), [(5.0, 1.0), (3.0, 0.25), (0.0, 1.0)])
def test_reference_of_three_rounds_agrees(lab, plain, kappa, mu, engine):
    trace = lab.run(f"feddbe(weight={kappa}, momentum={mu})", engine=engine, rounds=3, **TRAINING)
    check, head = plain(trace), "units.2.linear.weight"
    vectors = {client: 0 * trace.slot(PART, client, 0)["bias"] for client in range(5)}
    means, agreed = {}, None

    def local(w, client, t):
        running = 0

        def loss(v, x, y):
            nonlocal running
            h, z = check.forward(v, x)
            mean = (1 - mu) * running + mu * h.mean(0)
            running = mean.detach()
            if t == 0:
                return F.cross_entropy(z, y)
            regulariser = ((mean - agreed) ** 2).sum() / (2 * len(mean))
            return F.cross_entropy((h + v["vector"]) @ v[head].T, y) + kappa * regulariser

        both = {**w, "vector": vectors[client]}
        trained = (lambda n: n != "vector") if t == 0 else (lambda n: True)
        both = check.sgd(both, check.batches(client, t, check.steps(client, 1)), loss, trained=trained)
        vectors[client], means[client] = both["vector"], running
        return {n: both[n] for n in w}

    def federated(w):
        nonlocal agreed
        path = [w]
        for t in range(3):
            cohort = select(0.7, 5, seed=check.experiment.seed, round=t)
            sizes = {k: len(check.federation.clients[k].train) for k in cohort}
            uploads = {k: local(path[-1], k, t) for k in cohort}
            n = sum(sizes.values())
            path.append({name: sum(sizes[k] * uploads[k][name] for k in cohort) / n for name in w})
            agreed = sum(sizes[k] * means[k] for k in cohort) / n if t == 0 else agreed
        return path

    lab.close(trace.params, federated(trace.params[0]))
    for client in range(5):
        lab.close(trace.slot(PART, client, 3)["bias"], vectors[client])
    lab.close(trace.servers[3]["slots"][PART]["mean"], agreed)
