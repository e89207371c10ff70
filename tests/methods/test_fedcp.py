"""FedCP (Zhang et al., KDD 2023): a policy splits each feature between the received head and the client's own."""

import pytest
import torch

PART = "conditional_policy"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 2, "weight_decay": 0.01, "weighting": "samples"}


def discrepancy(a, b):
    """Biased MMD^2 with five Gaussian kernels; the bandwidth is the mean distance, not differentiated."""
    both = torch.cat([a, b])
    squares = ((both[:, None] - both[None]) ** 2).sum(-1)
    n = len(both)
    level = squares.detach().sum() / (n * n - n) + 1e-8
    kernel = sum(torch.exp(-squares / (level * 2**i / 4)) for i in range(5))
    k = len(a)
    return kernel[:k, :k].mean() + kernel[k:, k:].mean() - kernel[:k, k:].mean() - kernel[k:, :k].mean()


def share(policy, h, own_head):
    """softmax over the pairs (shared, own) of what the policy makes of h o v/||v||."""
    v = own_head.sum(0)
    c = h * (v / torch.sqrt((v**2).sum()))
    raised = torch.cat([c @ policy[f"{m}.weight"].T + policy[f"{m}.bias"] for m in ("shared", "own")], 1)
    centred = raised - raised.mean(1, keepdim=True)
    level = centred / torch.sqrt((centred**2).mean(1, keepdim=True) + 1e-5)
    scale, shift = (torch.cat([policy[f"{m}.{n}"] for m in ("shared", "own")]) for n in ("scale", "shift"))
    shared, own = torch.relu(level * scale + shift).chunk(2, 1)
    return torch.softmax(torch.stack([shared, own]), 0)[0]


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_every_client_has_a_head_of_its_own_beside_the_shared_one(lab, net, engine):
    trace = lab.run("fedcp", net=net, engine=engine, rounds=2)
    assert lab.differ(trace.slot(PART, 0, 2)[HEAD], trace.slot(PART, 1, 2)[HEAD])
    assert lab.differ(trace.slot(PART, 0, 2)[HEAD], trace.params[2][HEAD])
    first, last = (server["slots"][PART] for server in (trace.servers[0], trace.servers[2]))
    assert any(lab.differ(first[name], last[name]) for name in first)


def test_shared_head_goes_half_of_the_way_to_the_mean_of_the_own_heads(lab):
    trace = lab.run("fedcp", rounds=2)
    for t in range(2):
        mean = sum(trace.slot(PART, client, t + 1)[HEAD] for client in range(5)) / 5
        lab.close(trace.params[t + 1][HEAD], (trace.params[t][HEAD] + mean) / 2)


def test_equal_heads_predict_as_one(lab):
    """r h and (1 - r) h under one head without a bias add up to h: the policy does not matter before training."""
    simulation = lab.start("fedcp")
    rows = simulation.store.rows(range(5))
    for found in simulation.engine.evaluate(simulation.setting.program(0), simulation.server, rows, "test"):
        lab.close(found["composed"], found["global"])


@ENGINES
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_reference_of_two_rounds_agrees(lab, plain, weight, engine):
    trace = lab.run(f"fedcp(weight={weight})", engine=engine, **TRAINING)
    check = plain(trace)
    heads = {k: trace.slot(PART, k, 0)[HEAD] for k in range(5)}

    def local(w, client, t):
        policy, mine = [n for n in w if n.startswith("policy ")], heads[client]

        def loss(v, x, y):
            h = check.forward(v, x)[0]
            r = share({n.removeprefix("policy "): v[n] for n in policy}, h, mine)
            logits = (r * h) @ w[HEAD].T + ((1 - r) * h) @ v[HEAD].T
            near = weight * discrepancy(h, check.forward(w, x)[0]) if weight else 0
            return torch.nn.functional.cross_entropy(logits, y) + near

        trained = check.sgd({**w, HEAD: mine}, check.batches(client, t, check.steps(client, 1)), loss)
        heads[client] = trained[HEAD]
        return {**trained, HEAD: (trained[HEAD] + w[HEAD]) / 2}

    first = {**trace.params[0], **{f"policy {n}": v for n, v in trace.servers[0]["slots"][PART].items()}}
    path = check.federated(first, local)
    for t in range(3):
        lab.close({n: path[t][n] for n in trace.params[t]}, trace.params[t])
        found = trace.servers[t]["slots"][PART]
        lab.close({n: path[t][f"policy {n}"] for n in found}, found)
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, client, 2)[HEAD], heads[client])
        h, z = check.forward(path[2], check.rows(client, "test")[0])
        r = share(trace.servers[2]["slots"][PART], h, heads[client])
        lab.close(found["composed"], (r * h) @ path[2][HEAD].T + ((1 - r) * h) @ heads[client].T)
        lab.close(found["global"], z)
