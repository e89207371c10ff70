"""FedBN (Li et al., ICLR 2021): everything is averaged but batch normalisation."""

import pytest
import torch
import torch.nn.functional as F

PART = "private_normalisation"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "weighting": "samples"}


def normalises(name):
    return "normalisation" in name


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "dropout"])
def test_network_without_normalisation_is_exactly_fedavg(lab, net, engine):
    a, b = (lab.run(method, net=net, engine=engine, **TRAINING) for method in ("fedbn", "fedavg"))
    lab.same(a.servers, b.servers)
    for ours, theirs in zip(a.logits(), b.logits(), strict=True):
        lab.same(ours["composed"], theirs["global"])
        lab.same(ours["global"], theirs["global"])


@ENGINES
def test_normalisation_differs_between_clients_and_nothing_else_does(lab, engine):
    trace = lab.run("fedbn", net="bn", engine=engine, **TRAINING)
    scale, mean = (f"units.0.normalisation.{name}" for name in ("weight", "running_mean"))
    assert not any(
        normalises(name) for server in trace.servers for name in (*server["params"], *server["buffers"])
    )
    a, b = (trace.privates[3][client] for client in (0, 2))
    assert set(a["slots"][PART]) == {scale, scale.replace("weight", "bias")}
    assert {mean} < set(a["buffers"])
    assert lab.differ(a["slots"][PART][scale], b["slots"][PART][scale])
    assert lab.differ(a["buffers"][mean], b["buffers"][mean])


def network(w, x, statistics, train):
    """The network ``bn`` of the lab in plain torch; training moves the running statistics in place."""
    x = F.conv2d(x, w["units.0.convolution.weight"], w.get("units.0.convolution.bias"), padding=1)
    names = [f"units.0.normalisation.{n}" for n in ("running_mean", "running_var", "weight", "bias")]
    x = F.batch_norm(x, *(statistics[n] for n in names[:2]), *(w[n] for n in names[2:]), training=train)
    x = F.max_pool2d(torch.relu(x), 2).flatten(1)
    x = torch.relu(F.linear(x, w["units.1.linear.weight"], w["units.1.linear.bias"]))
    return F.linear(x, w["units.2.linear.weight"], w.get("units.2.linear.bias"))


@ENGINES
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Plain torch with its own batch normalisation; a batch of one row would have no variance, so there is none."""
    federation = lab.federation(sizes=(8, 4, 12), held=((0, 1), (1, 2, 3), (0, 3)))
    trace = lab.run("fedbn", net="bn", engine=engine, federation=federation, **TRAINING)
    check, first = plain(trace), trace.simulation.setting.initial(0).params
    own = {client: {name: w for name, w in first.items() if normalises(name)} for client in range(3)}
    statistics = {c: {n: b.clone() for n, b in trace.privates[0][c]["buffers"].items()} for c in range(3)}

    def local(shared, client, t):
        def loss(w, x, y):
            return F.cross_entropy(network(w, x, statistics[client], True), y)

        batches = check.batches(client, t, check.steps(client, 1))
        model = check.sgd({**shared, **own[client]}, batches, loss)
        own[client] = {name: model[name] for name in own[client]}
        return {name: model[name] for name in shared}

    path = check.federated(trace.params[0], local)
    lab.close(trace.params, path)
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, client, 3), own[client])
        lab.close(trace.privates[3][client]["buffers"], statistics[client])
        x, _ = check.rows(client, "test")
        lab.close(found["composed"], network({**path[-1], **own[client]}, x, statistics[client], False))
