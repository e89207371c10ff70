"""FedEM (Marfoq et al., NeurIPS 2021): components that all clients share, mixed in each client's own shares."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

PART = "component_mixture"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "weighting": "samples"}


def components(server):
    return [server["params"], *(other["params"] for other in server["slots"][PART].values())]


def expectation(check, models, shares, x, y):
    """q_i(m) of each row, straight from the density of every component."""
    chances = [
        pi * F.softmax(check.forward(w, x)[1], 1)[range(len(y)), y]
        for pi, w in zip(shares, models, strict=True)
    ]
    return [chance / sum(chances) for chance in chances]


@ENGINES
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    trace = lab.run("fedem(components=3)", engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    models = components(trace.servers[0])
    shares = {k: [1 / 3] * 3 for k in range(5)}
    for t in range(3):
        cohort, new = setting.cohort(t), [[], [], []]
        for k in cohort:
            for m in range(3):

                def loss(w, x, y, m=m, k=k, models=models):
                    q = expectation(check, models, shares[k], x, y)[m].detach()
                    return (q * F.cross_entropy(check.forward(w, x)[1], y, reduction="none")).mean()

                new[m].append(check.sgd(models[m], check.batches(k, t, check.steps(k, 1)), loss))
        for k in cohort:
            shares[k] = [
                float(q.mean()) for q in expectation(check, models, shares[k], *check.rows(k, "train"))
            ]
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        models = [
            {n: sum(s * w[n] for s, w in zip(sizes, each, strict=True)) / sum(sizes) for n in each[0]}
            for each in new
        ]
        lab.close(components(trace.servers[t + 1]), models)
    assert max(max(pi) for pi in shares.values()) > 0.4
    for k, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, k, 3)["shares"], torch.tensor(shares[k], dtype=torch.float64))
        each = [F.softmax(check.forward(w, check.rows(k, "test")[0])[1], 1) for w in models]
        lab.close(found["mix(pi)"].exp(), sum(pi * p for pi, p in zip(shares[k], each, strict=True)))
        lab.close(found["global"].exp(), sum(each) / 3)


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_one_component_is_fedavg(lab, net, engine):
    settings = {"net": net, "engine": engine, "rounds": 2, "participation_rate": 0.7}
    one, fedavg = (lab.run(method, **settings) for method in ("fedem(components=1)", "fedavg"))
    lab.close(one.params[2], fedavg.params[2])
    lab.close(one.servers[2]["buffers"], fedavg.servers[2]["buffers"])


def test_shares_sum_to_one_and_stay_on_clients_that_sat_out(lab):
    trace = lab.run("fedem", participation_rate=0.4, rounds=2)
    for t in range(2):
        for k in range(5):
            before, after = (trace.slot(PART, k, r)["shares"] for r in (t, t + 1))
            torch.testing.assert_close(after.sum(), torch.ones_like(after.sum()))
            assert (k in trace.simulation.setting.cohort(t)) == lab.differ(before, after)


@pytest.mark.parametrize("buffers", ["average", "private", "frozen"])
def test_statistics_of_every_component_follow_the_setting(lab, buffers):
    trace = lab.run("fedem(components=2)", net="bn", rounds=2, buffers=buffers)
    first, last = (
        server["slots"][PART]["component 2"]["buffers"] for server in (trace.servers[0], trace.servers[2])
    )
    assert lab.differ(first, last) == (buffers == "average")
    assert lab.differ(trace.slot(PART, 0, 2)["buffers"], trace.slot(PART, 1, 2)["buffers"])


def test_clients_with_permuted_labels_are_told_apart(lab):
    """Two groups of clients disagree on the labels; each group ends with most of its shares on one component."""
    federation = lab.federation((24,) * 4, ((0, 1, 2, 3),) * 4)
    x, y = 0.3 * federation.x, federation.y.copy()
    x[np.arange(len(y)), 0, y, y] += 3
    for rows in federation.clients[2:]:
        own = np.concatenate([rows.train, rows.valid, rows.test])
        y[own] = 3 - y[own]
    planted = replace(federation, x=x, y=y)
    trace = lab.run("fedem(components=2)", federation=planted, rounds=12, local_epochs=2)
    shares = torch.stack([trace.slot(PART, k, 12)["shares"] for k in range(4)])
    one = shares[0].argmax()
    assert (shares[:2, one] > 0.8).all() and (shares[2:, one] < 0.2).all(), shares
