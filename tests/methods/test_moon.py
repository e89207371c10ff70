"""MOON (Li, He, Song, CVPR 2021): a contrast of features with the received and the client's last model."""

import math

import pytest
import torch

from idiolect.federation import select

PART = "contrastive"
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2, "momentum": 0.5}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("previous", ["received", "theta0"])
def test_no_weight_is_exactly_fedavg(lab, previous, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "weighting": "samples"}
    moon = lab.run(f"moon(weight=0, previous_init={previous})", **settings)
    fedavg = lab.run("fedavg", **settings)
    for a, b in zip(moon.servers, fedavg.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("previous", ["received", "theta0"])
def test_first_round_is_fedavg(lab, previous, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "rounds": 2, "participation_rate": 1.0}
    moon = lab.run(f"moon(weight=3, previous_init={previous})", **settings)
    fedavg = lab.run("fedavg", **settings)
    lab.close(moon.params[1], fedavg.params[1])
    assert lab.differ(moon.params[2], fedavg.params[2])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(("previous", "alike"), [("received", True), ("theta0", False)])
def test_first_selection_in_a_later_round_is_fedavg_only_beside_the_received_model(
    lab, plain, previous, alike, engine
):
    moon = lab.run(f"moon(weight=3, previous_init={previous})", engine=engine, **SCENE)
    check, seen, found = plain(moon), set(), []
    for t in range(4):
        for client in set(select(0.6, 5, seed=check.experiment.seed, round=t)) - seen:
            seen.add(client)
            batches = check.batches(client, t, check.steps(client, 2))
            fedavg = check.sgd(moon.params[t], batches, check.cross_entropy)
            if t:
                found.append(not lab.differ(moon.slot(PART, client, t + 1)["params"], fedavg))
    assert found
    assert all(same is alike for same in found)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_equal_references_cost_log_two_in_every_step(lab, engine):
    moon, fedavg = (lab.start(m, engine=engine, local_epochs=2) for m in ("moon(weight=3)", "fedavg"))
    moon.advance()
    fedavg.advance()
    assert moon.latest["loss"] - fedavg.latest["loss"] == pytest.approx(3 * math.log(2), rel=1e-12)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_features_of_zero_stay_finite(lab, engine):
    """A cosine with the zero vector: no direction, no pull."""
    moon, fedavg = (lab.start(m, engine=engine, local_epochs=2) for m in ("moon(weight=3)", "fedavg"))
    for simulation in (moon, fedavg):
        params = simulation.server["params"]
        dead = {"units.1.linear.bias": params["units.1.linear.bias"] - 1000}
        simulation.server = {**simulation.server, "params": {**params, **dead}}
        for _ in range(2):
            simulation.advance()
    lab.close(moon.server["params"], fedavg.server["params"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("previous", ["received", "theta0"])
def test_reference_of_four_rounds_agrees(lab, plain, previous, engine):
    weight, tau = 0.8, 0.4
    moon = lab.run(
        f"moon(weight={weight}, temperature={tau}, previous_init={previous})",
        engine=engine,
        weight_decay=0.01,
        **SCENE,
    )
    check, last = plain(moon), {}

    def cosine(a, b):
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-8)

    def local(w, client, t):
        before = last.get(client, w if previous == "received" else moon.params[0])

        def loss(v, x, y):
            h = check.forward(v, x)[0]
            near, far = (torch.exp(cosine(h, check.forward(u, x)[0]) / tau) for u in (w, before))
            return check.cross_entropy(v, x, y) + weight * -torch.log(near / (near + far)).mean()

        last[client] = check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)
        return last[client]

    lab.close(moon.params, check.federated(moon.params[0], local))
    for client, params in last.items():
        lab.close(moon.slot(PART, client, 4)["params"], params)
