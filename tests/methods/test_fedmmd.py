"""FedMMD (Yao, Huang, Sun, VCIP 2018): lambda MMD^2 to the features of the received model beside the loss."""

import pytest
import torch

SCENE = {"rounds": 3, "participation_rate": 0.6, "local_epochs": 2, "weight_decay": 0.01, "momentum": 0.5}


def mmd_squared(a, b):
    """Biased, five Gaussian kernels around the mean distance of all pairs, whose gradient is stopped."""
    both = torch.cat([a, b])
    n, m = len(both), len(a)
    distance = torch.stack([((row - both) ** 2).sum(1) for row in both])
    width = distance.detach().sum() / (n**2 - n) + 1e-8
    kernel = sum(torch.exp(-distance / (width * 2**i / 4)) for i in range(5))
    return (kernel[:m, :m] + kernel[m:, m:] - kernel[:m, m:] - kernel[m:, :m]).mean()


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_no_weight_is_exactly_fedavg(lab, net, engine):
    fedmmd = lab.run("fedmmd(weight=0)", net=net, engine=engine, **SCENE)
    fedavg = lab.run("fedavg", net=net, engine=engine, **SCENE)
    for a, b in zip(fedmmd.servers, fedavg.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_one_local_step_is_fedavg_for_any_weight(lab, weight, engine):
    settings = {"batch_size": 16, "rounds": 3, "engine": engine}
    fedavg = lab.run("fedavg", **settings)
    lab.close(lab.run(f"fedmmd(weight={weight})", **settings).params, fedavg.params)
    assert lab.differ(fedavg.params[3], fedavg.params[0])


def test_two_local_steps_are_not_fedavg(lab):
    settings = {"batch_size": 16, "local_epochs": 2, "rounds": 1}
    a, b = lab.run("fedmmd(weight=0.5)", **settings), lab.run("fedavg", **settings)
    assert lab.differ(a.params[1], b.params[1])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """No batch of a single row: its bandwidth is its own distance, and a short one makes a long step."""
    sizes = lab.federation((10, 4, 14, 6, 7))
    fedmmd = lab.run("fedmmd(weight=0.2)", engine=engine, federation=sizes, **SCENE)
    check = plain(fedmmd)

    def local(w, client, t):
        def loss(v, x, y):
            return check.cross_entropy(v, x, y) + 0.2 * mmd_squared(
                check.forward(v, x)[0], check.forward(w, x)[0]
            )

        return check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)

    lab.close(fedmmd.params, check.federated(fedmmd.params[0], local))
    assert max(leaf.abs().max() for leaf in fedmmd.params[3].values()) < 3
