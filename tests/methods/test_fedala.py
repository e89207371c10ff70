"""FedALA (Zhang et al., AAAI 2023): a client starts between its own last model and the received one."""

import pytest
import torch

PART = "adaptive_aggregation"
HEAD = ["units.2.linear.weight"]
BLOCK = ["units.1.linear.weight", "units.1.linear.bias"]
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NEUTRAL = pytest.mark.parametrize("method", ["fedala(count=0)", "fedala(rate=0)"])
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "weighting": "samples"}


@ENGINES
@NEUTRAL
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_without_learned_weights_it_is_exactly_fedavg(lab, method, net, engine):
    a, b = (lab.run(m, net=net, engine=engine, **TRAINING) for m in (method, "fedavg"))
    lab.same([server["params"] for server in a.servers], b.params)
    lab.same([server["buffers"] for server in a.servers], [server["buffers"] for server in b.servers])
    for ours, theirs in zip(a.logits(), b.logits(), strict=True):
        lab.same(ours["composed"], theirs["global"])


def test_first_participation_is_fedavg_s_and_leaves_the_weights_at_one(lab):
    a, b = (lab.run(m, rounds=2) for m in ("fedala", "fedavg"))
    lab.same(a.params[1], b.params[1])
    assert lab.differ(a.params[2], b.params[2])
    for client in range(5):
        assert (a.slot(PART, client, 1)["weights"][HEAD[0]] == 1).all()


def test_weights_stay_between_zero_and_one_and_leave_one(lab):
    trace = lab.run("fedala(rate=50)", rounds=3)
    weights = torch.cat([trace.slot(PART, client, 3)["weights"][HEAD[0]].flatten() for client in range(5)])
    assert weights.min() == 0 and weights.max() == 1
    assert ((weights > 0) & (weights < 1)).any()


@ENGINES
@pytest.mark.parametrize(("count", "share", "rate"), [(1, 0.8, 1.0), (2, 2.0, 5.0)])
def test_reference_of_three_rounds_agrees(lab, plain, count, share, rate, engine):
    """The gradient of the weights by automatic differentiation through the mixture, not by the chain rule."""
    trace = lab.run(f"fedala(count={count}, share={share}, rate={rate})", engine=engine, **TRAINING)
    check, mixed = plain(trace), HEAD if count == 1 else BLOCK + HEAD
    own, weights = {}, {c: {n: torch.ones_like(trace.params[0][n]) for n in mixed} for c in range(5)}

    def mixture(shared, client, w):
        last = own.get(client, shared)
        return {**shared, **{n: last[n] + (shared[n] - last[n]) * w[n] for n in mixed}}

    def local(shared, client, t):
        w = weights[client]
        for x, y in check.batches(client, t, check.steps(client, share), "aggregation"):
            leaves = {n: v.clone().requires_grad_() for n, v in w.items()}
            found = torch.autograd.grad(
                check.cross_entropy(mixture(shared, client, leaves), x, y), list(leaves.values())
            )
            w = {n: (w[n] - rate * g).clamp(0, 1) for n, g in zip(w, found, strict=True)}
        weights[client] = w
        batches = check.batches(client, t, check.steps(client, 1))
        own[client] = check.sgd(mixture(shared, client, w), batches, check.cross_entropy)
        return own[client]

    path = check.federated(trace.params[0], local)
    lab.close(trace.params, path)
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, client, 3)["weights"], weights[client])
        x, _ = check.rows(client, "test")
        lab.close(found["composed"], check.forward(mixture(path[-1], client, weights[client]), x)[1])
        lab.close(found["global"], check.forward(path[-1], x)[1])
    assert min(float(w.min()) for held in weights.values() for w in held.values()) < 0.999
