"""FedProx (Li et al., MLSys 2020): mu/2 ||w - w_t||^2 beside the loss."""

import pytest
import torch


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("weight", [0.01, 5.0])
def test_one_local_step_is_exactly_fedavg_for_any_weight(lab, weight, engine):
    settings = {"batch_size": 1000, "rounds": 3, "engine": engine}
    lab.same(lab.run(f"fedprox(weight={weight})", **settings).params, lab.run("fedavg", **settings).params)


def test_update_shrinks_as_the_weight_grows(lab):
    """momentum 0 and lr mu < 1: a step contracts towards the received model."""
    settings = {"momentum": 0, "local_epochs": 6, "rounds": 1}
    norms = []
    for weight in (0, 1, 3, 7):
        path = lab.run(f"fedprox(weight={weight})", **settings).params
        norms.append(sum(((path[1][n] - path[0][n]) ** 2).sum() for n in path[0]) ** 0.5)
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < norms[0] / 4


def test_statistics_of_normalisation_are_not_in_the_term(lab):
    """Shifting the running statistics alone must not move the parameters' training."""
    fedprox = lab.start("fedprox(weight=1)", net="bn")
    shifted = lab.start("fedprox(weight=1)", net="bn")
    buffers = {n: b + 3 for n, b in shifted.server["buffers"].items()}
    shifted.server = {**shifted.server, "buffers": buffers}
    fedprox.advance()
    shifted.advance()
    lab.same(fedprox.server["params"], shifted.server["params"])


def test_reference_of_three_rounds_agrees(lab, plain):
    fedprox = lab.run("fedprox(weight=0.7)", participation_rate=0.6, local_epochs=2, weight_decay=0.01)
    check = plain(fedprox)

    def local(w, client, t):
        def loss(v, x, y):
            distance = sum(((v[n] - w[n]) ** 2).sum() for n in w)
            return check.cross_entropy(v, x, y) + 0.7 / 2 * distance

        return check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)

    path = check.federated(fedprox.params[0], local)
    lab.close(fedprox.params, path)
    assert all(torch.isfinite(leaf).all() for leaf in path[-1].values())
