"""GPFL (Zhang et al., ICCV 2023): a valve, conditioned on embeddings of classes, for shared and for own features."""

import pytest
import torch
import torch.nn.functional as F

PART = "conditional_features"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 2, "weight_decay": 0.01, "weighting": "samples"}


class Valve(torch.nn.Module):
    """The two generators out of torch's own layers, with the values of a tree."""

    def __init__(self, tree):
        super().__init__()
        self.tree, self.d = tree, tree["gamma.bias"].shape[0]

    def forward(self, h, condition):
        made = []
        for name in ("gamma", "beta"):
            raised = torch.relu(self.tree[f"{name}.weight"] @ condition + self.tree[f"{name}.bias"])
            centred = raised - raised.mean()
            level = centred / torch.sqrt((centred**2).mean() + 1e-5)
            made.append(level * self.tree[f"{name}.scale"] + self.tree[f"{name}.shift"])
        return torch.relu(h * (made[0] + 1) + made[1])


def conditions(check, classes, client):
    shares = check.counts(client) / check.counts(client).sum()
    return sum(classes) / len(classes), sum(share * v for share, v in zip(shares, classes, strict=True))


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_heads_stay_and_valve_and_embeddings_are_shared(lab, net, engine):
    trace = lab.run("gpfl", net=net, engine=engine, rounds=2)
    assert all(HEAD not in server["params"] for server in trace.servers)
    assert lab.differ(trace.slot(PART, 0, 2)[HEAD], trace.slot(PART, 1, 2)[HEAD])
    first, last = (server["slots"][PART] for server in (trace.servers[0], trace.servers[2]))
    assert all(lab.differ(first[name], last[name]) for name in first)


def test_client_with_all_classes_alike_has_everybody_s_condition(lab, plain):
    """g_k = g: the own features are the shared ones."""
    trace = lab.run("gpfl", federation=lab.federation(sizes=(8, 12), held=((0, 1, 2, 3),) * 2), rounds=1)
    check, classes = plain(trace), trace.servers[1]["slots"][PART]["classes"]
    lab.close(*conditions(check, classes, 1))
    other = lab.run("gpfl", rounds=1)
    assert lab.differ(*conditions(plain(other), other.servers[1]["slots"][PART]["classes"], 0))


def test_valve_of_scale_zero_lets_features_pass(lab, plain):
    """gamma = beta = 0: what predicts is the private head on the network's features, whatever the condition."""
    trace = lab.run("gpfl(valve_scale=0)", rounds=1, learning_rate=0.0)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        h = check.forward(
            {**trace.params[1], HEAD: trace.slot(PART, client, 1)[HEAD]}, check.rows(client, "test")[0]
        )
        lab.close(found["composed"], h[1])
    begun = {name: leaf for name, leaf in lab.start("gpfl").server["slots"][PART].items() if "scale" in name}
    assert all((leaf == 0.1).all() for leaf in begun.values()) and len(begun) == 2


@ENGINES
@pytest.mark.parametrize(("weight", "decay"), [(0.01, 0.0), (0.5, 0.25)])
def test_reference_of_two_rounds_agrees(lab, plain, weight, decay, engine):
    trace = lab.run(f"gpfl(weight={weight}, decay={decay})", engine=engine, **TRAINING)
    check = plain(trace)
    heads = {k: trace.slot(PART, k, 0)[HEAD] for k in range(5)}

    def local(w, client, t):
        tree = {n.removeprefix("valve "): v for n, v in w.items() if n.startswith("valve ")}
        everybody, own = conditions(check, tree["classes"], client)

        def loss(v, x, y):
            now = {n: v[f"valve {n}"] for n in tree}
            h = check.forward(v, x)[0]
            shared = Valve(now)(h, everybody)
            cosines = [torch.cosine_similarity(shared, c[None], dim=1) for c in now["classes"]]
            total = F.cross_entropy(Valve(now)(h, own) @ v[HEAD].T, y)
            total = total + F.cross_entropy(torch.stack(cosines, 1), y)
            total = total + weight * torch.linalg.vector_norm(shared - tree["classes"][y], dim=1).mean()
            return total + decay / 2 * sum((p**2).sum() for p in now.values())

        trained = check.sgd(
            {**w, HEAD: heads[client]}, check.batches(client, t, check.steps(client, 1)), loss
        )
        heads[client] = trained[HEAD]
        return {n: trained[n] for n in w}

    first = {**trace.params[0], **{f"valve {n}": v for n, v in trace.servers[0]["slots"][PART].items()}}
    path = check.federated(first, local)
    for t in range(3):
        lab.close({n: path[t][n] for n in trace.params[t]}, trace.params[t])
        lab.close(
            {n: path[t][f"valve {n}"] for n in trace.servers[t]["slots"][PART]},
            trace.servers[t]["slots"][PART],
        )
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, client, 2)[HEAD], heads[client])
        tree = trace.servers[2]["slots"][PART]
        h = check.forward({**path[2], HEAD: heads[client]}, check.rows(client, "test")[0])[0]
        own = Valve(tree)(h, conditions(check, tree["classes"], client)[1])
        lab.close(found["composed"], own @ heads[client].T)
