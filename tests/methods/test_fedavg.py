"""FedAvg (McMahan et al., AISTATS 2017), and the local update after it (Wang et al. 2019)."""

from dataclasses import replace

import pytest
import torch
from torch import nn

EVERYTHING = 1000  # a batch that holds any client


def module_of(params):
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 4, bias=False)
    ).double()
    net.load_state_dict(dict(zip(net.state_dict(), params.values(), strict=True)))
    return net


def test_one_client_is_plain_sgd(lab, plain):
    """Against torch.optim.SGD on an ordinary module, with a fresh optimiser every round."""
    settings = {"momentum": 0.5, "weight_decay": 0.01, "local_epochs": 2}
    fedavg = lab.run("fedavg", federation=lab.federation((9,)), **settings)
    check, net = plain(fedavg), module_of(fedavg.params[0])
    for t in range(3):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5, weight_decay=0.01)
        for x, y in check.batches(0, t, 6):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
        lab.close(list(fedavg.params[t + 1].values()), [p.detach() for p in net.parameters()])


def test_one_full_batch_step_is_a_centralised_gradient_step(lab, plain):
    fedavg = lab.run("fedavg", batch_size=EVERYTHING, rounds=1, weighting="samples")
    check = plain(fedavg)
    pooled = [torch.cat(part) for part in zip(*(check.rows(c, "train") for c in range(5)), strict=True)]
    lab.close(fedavg.params[1], check.sgd(fedavg.params[0], iter([pooled]), check.cross_entropy))


def test_uniform_weighting_is_not_the_centralised_step(lab):
    """The mean of the clients' losses is another objective than the loss of the pool."""
    uniform = lab.run("fedavg", batch_size=EVERYTHING, rounds=1, weighting="uniform")
    samples = lab.run("fedavg", batch_size=EVERYTHING, rounds=1, weighting="samples")
    assert lab.differ(uniform.params[1], samples.params[1])


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_identical_clients_average_to_each(lab, weighting):
    federation = lab.federation((9,))
    twins = replace(federation, clients=tuple(federation.clients) * 3)
    alone = lab.run("fedavg", federation=federation, batch_size=EVERYTHING)
    together = lab.run("fedavg", federation=twins, batch_size=EVERYTHING, weighting=weighting)
    for t in range(4):
        lab.close(together.params[t], alone.params[t])


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_reference_of_three_rounds_agrees(lab, plain, weighting):
    fedavg = lab.run("fedavg", participation_rate=0.6, local_epochs=2, weight_decay=0.01, weighting=weighting)
    check = plain(fedavg)

    def local(w, client, t):
        return check.sgd(w, check.batches(client, t, check.steps(client, 2)), check.cross_entropy)

    lab.close(fedavg.params, check.federated(fedavg.params[0], local))


def test_learning_rate_is_not_rounded_to_single_precision(lab, plain):
    """0.1 is no float32: a run in float64 has to use the float64 nearest to it."""
    fedavg = lab.run("fedavg", learning_rate=0.1, rounds=1)
    check = plain(fedavg)

    def local(w, client, t):
        return check.sgd(w, check.batches(client, t, check.steps(client, 1)), check.cross_entropy)

    lab.close(fedavg.params, check.federated(fedavg.params[0], local))


@pytest.mark.parametrize("method", ["fedavg_lu(epochs=0)", "fedprox_lu(epochs=0)"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_local_update_of_no_epochs_is_exactly_the_global_model(lab, method, net):
    trace = lab.run(method, net=net)
    for client, found in enumerate(trace.logits()):
        slot = trace.end[client]["slots"]["fine_tune"]
        lab.same(slot["params"], trace.params[3])
        lab.same(slot["buffers"], trace.servers[3]["buffers"])
        lab.same(found["LU"], found["global"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_local_update_is_exactly_the_local_model_of_one_more_round(lab, net, engine):
    """after-local of round T + 1, read from FedPHP at momentum and transfer zero, whose HPM it is."""
    settings = {"net": net, "engine": engine, "local_epochs": 2}
    lu = lab.run("fedavg_lu(epochs=2)", rounds=3, **settings)
    more = lab.run("fedphp(transfer_weight=0, momentum=0)", rounds=4, **settings)
    lab.same(more.params[3], lu.params[3])
    for client in range(5):
        tuned, local = lu.end[client]["slots"]["fine_tune"], more.slot("inherited_teacher", client, 4)
        lab.same(tuned, {name: local[name] for name in tuned})


@pytest.mark.parametrize("method", ["fedavg_lu", "fedprox_lu"])
def test_local_update_agrees_with_the_reference_and_knows_no_proximal_term(lab, plain, method):
    trace = lab.run(f"{method}(epochs=2, lr_scale=0.5)", weight_decay=0.01)
    check = plain(trace)
    for client in range(5):
        batches = check.batches(client, 3, check.steps(client, 2))
        tuned = check.sgd(trace.params[3], batches, check.cross_entropy, lr_scale=0.5)
        lab.close(trace.end[client]["slots"]["fine_tune"]["params"], tuned)


def test_local_update_leaves_the_shared_model_alone(lab):
    lu = lab.run("fedavg_lu(epochs=2)")
    lab.same(lu.simulation.server, lu.servers[3])
