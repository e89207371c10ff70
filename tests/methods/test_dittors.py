"""DittoRS (Li et al., TKDE 2024): Ditto whose shared model alone trains with restricted softmax."""

import pytest
import torch.nn.functional as F

PART = "proximal_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])


@pytest.fixture(scope="module")
def three(lab):
    """Every client lacks a class."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
@pytest.mark.parametrize("rule", ["paper", "freq_max"])
def test_alpha_one_is_exactly_ditto(lab, three, rule, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    ditto = lab.run("ditto(weight=0.5)", **settings)
    trace = lab.run(f"dittors(weight=0.5, alpha=1, rule={rule})", **settings)
    for t in range(3):
        lab.same(trace.servers[t], ditto.servers[t])
        for client in range(3):
            lab.same(trace.slot(PART, client, t), ditto.slot(PART, client, t))


@ENGINES
@NETS
@pytest.mark.parametrize("rule", ["paper", "freq_max"])
def test_shared_model_is_exactly_fedrs(lab, three, rule, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    fedrs = lab.run(f"fedrs(alpha=0.5, rule={rule})", **settings)
    trace = lab.run(f"dittors(weight=0.5, alpha=0.5, rule={rule})", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedrs.params[t])
        lab.same(trace.servers[t]["buffers"], fedrs.servers[t]["buffers"])
    assert lab.differ(trace.params[2], lab.run("fedavg", **settings).params[2])


@ENGINES
@NETS
def test_weight_zero_makes_the_companion_exactly_local(lab, three, net, engine):
    """Its softmax is the plain one."""
    settings = {"net": net, "engine": engine, "local_epochs": 2, **three}
    local, trace = lab.run("local", **settings), lab.run("dittors(weight=0, alpha=0.1)", **settings)
    for t in range(3):
        for client in range(3):
            slot = trace.slot(PART, client, t)
            lab.same(slot["params"], local.slot("private_layers", client, t))
            lab.same(slot["buffers"], local.privates[t][client]["buffers"])


@ENGINES
def test_reference_of_two_rounds_agrees(lab, plain, three, engine):
    trace = lab.run(
        "dittors(weight=0.7, alpha=0.25)", weight_decay=0.01, weighting="samples", engine=engine, **three
    )
    check = plain(trace)
    own = dict.fromkeys(range(3), trace.params[0])

    def local(theta, client, t):
        scale = 0.25 + 0.75 * (check.counts(client) > 0)

        def near(v, x, y):
            distance = sum(((v[n] - theta[n]) ** 2).sum() for n in theta)
            return check.cross_entropy(v, x, y) + 0.7 / 2 * distance

        def restricted(v, x, y):
            return F.cross_entropy(check.forward(v, x)[1] * scale, y)

        steps = check.steps(client, 1)
        own[client] = check.sgd(own[client], check.batches(client, t, steps), near)
        return check.sgd(theta, check.batches(client, t, steps), restricted)

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(3):
        lab.close(trace.slot(PART, client, 2)["params"], own[client])
