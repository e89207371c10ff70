"""FedGH (Yi et al., ACM MM 2023): the server trains one header on the mean features of the clients' classes."""

import pytest
import torch
import torch.nn.functional as F

from idiolect.federation import select

PART = "global_header"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "momentum": 0.5}


def class_means(check, w, client):
    """(mean feature, class) of every class that the client holds."""
    x, y = check.rows(client, "train")
    h = check.forward(w, x)[0]
    return [(h[y == c].mean(0), c) for c in range(4) if (y == c).any()]


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_server_holds_the_header_alone_and_clients_the_rest(lab, net, engine):
    trace = lab.run("fedgh", net=net, engine=engine, rounds=2)
    structure = trace.simulation.setting.task.structure
    header = {name for name in structure.params if structure.unit_of[name] == structure.n_units - 1}
    for server in trace.servers:
        assert set(server["params"]) == header and server["buffers"] == {}
    assert set(trace.slot(PART, 0, 2)) == set(structure.params) - header
    assert lab.differ(trace.slot(PART, 0, 2), trace.slot(PART, 1, 2))
    assert lab.differ(trace.params[2], trace.params[1])


@pytest.mark.parametrize("options", ["steps=0", "learning_rate=0"])
def test_header_that_is_not_trained_stays(lab, options):
    trace = lab.run(f"fedgh({options})")
    for t in range(4):
        lab.same(trace.params[t], trace.params[0])
    assert lab.differ(trace.slot(PART, 0, 3), trace.slot(PART, 0, 0))


def test_upload_counts_the_means_of_classes_that_are_held(lab):
    trace = lab.run("fedgh", rounds=2)
    held = [2, 3, 2, 1, 4]
    for row in trace.simulation.rounds.table().to_pylist():
        assert row["bytes_up"] == 4 * sum(held) * (5 + 1)
        assert row["bytes_down"] == 4 * 5 * 4 * 5


@ENGINES
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_reference_of_three_rounds_agrees(lab, plain, weighting, engine):
    """Every class mean counts alike, whatever the weighting; extractors start from what each client has."""
    trace = lab.run("fedgh(steps=3, learning_rate=0.7)", engine=engine, weighting=weighting, **TRAINING)
    check, header = plain(trace), trace.params[0][HEAD]
    own = {k: trace.slot(PART, k, 0) for k in range(5)}
    for t in range(3):
        found = []
        for k in select(0.7, 5, seed=0, round=t):
            batches = check.batches(k, t, check.steps(k, 1))
            trained = check.sgd({**own[k], HEAD: header}, batches, check.cross_entropy)
            own[k] = {name: trained[name] for name in own[k]}
            found += class_means(check, trained, k)
        inputs, labels = torch.stack([mean for mean, _ in found]), torch.tensor([c for _, c in found])
        for _ in range(3):
            leaf = header.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(inputs @ leaf.T, labels), leaf)
            header = header - 0.7 * gradient
        lab.close(trace.params[t + 1][HEAD], header)
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(PART, client, 3), own[client])
        expected = check.forward({**own[client], HEAD: header}, check.rows(client, "test")[0])[1]
        lab.close(found["composed"], expected)
