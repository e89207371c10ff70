"""FedDF (Lin et al., NeurIPS 2020): the server distils the clients' mean logits on public inputs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from idiolect.core import chain, sgd
from idiolect.engines import place
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.experiments.setting import prepare
from idiolect.federation import plan_batches, select
from idiolect.parts import average, ensemble_distillation

SCENE = {"rounds": 3, "participation_rate": 0.6, "local_epochs": 2, "weighting": "samples", "momentum": 0.5}


def public(lab, *sizes, label=0, seed=11, rows=10):
    """The lab's federation and public inputs that no client holds."""
    base = lab.federation(*sizes)
    more = np.random.default_rng(seed).standard_normal((rows, *base.x.shape[1:]))
    x, y = np.concatenate([base.x, more]), np.concatenate([base.y, np.full(rows, label)])
    return replace(base, x=x, y=y, public=np.arange(len(base.y), len(y)))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_no_steps_are_exactly_fedavg(lab, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "federation": public(lab)}
    feddf, fedavg = lab.run("feddf(steps=0)", **settings), lab.run("fedavg", **settings)
    for a, b in zip(feddf.servers, fedavg.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("update", ["fedadam(learning_rate=0.01)", "feddyn", "scaffold(step=0.5)"])
@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_no_steps_are_exactly_the_server_update_they_follow(lab, update, engine):
    settings = {**SCENE, "net": "bn", "engine": engine, "federation": public(lab)}
    composed, alone = lab.run(f"feddf(steps=0) + {update}", **settings), lab.run(update, **settings)
    for a, b in zip(composed.servers, alone.servers, strict=True):
        lab.same(a, b)


def with_plain_sgd(steps):
    """Adam would blow up the rounding of a gradient that is zero."""
    part = ensemble_distillation(steps, learning_rate=0.5)

    def stages(plan, scene, clock):
        plan = part.stages(plan, scene, clock)
        return plan._replace(server=tuple(replace(stage, optimiser=sgd()) for stage in plan.server))

    return chain(average(), part._replace(stages=stages))


def test_single_client_teaches_itself_nothing(lab):
    alone = {"federation": public(lab, (9,)), "rounds": 3, "local_epochs": 2}
    lab.close(lab.run(with_plain_sgd(20), **alone).params, lab.run("fedavg", **alone).params, rtol=1e-12)
    two = {**alone, "federation": public(lab, (9, 4))}
    assert lab.differ(lab.run(with_plain_sgd(20), **two).params[1], lab.run("fedavg", **two).params[1])


def test_distillation_brings_the_average_nearer_to_the_ensemble(lab):
    settings = {**SCENE, "rounds": 1, "federation": public(lab)}
    lower = []
    for steps in (0, 1, 30):
        feddf = lab.run(f"feddf(steps={steps}, learning_rate=0.02)", **settings)
        check = lab_ensemble(lab, settings)
        x = torch.from_numpy(settings["federation"].x[settings["federation"].public])
        lower.append(float(check(feddf.params[1], x)))
    assert lower[0] > lower[1] > lower[2]


def lab_ensemble(lab, settings):
    """The divergence of a model from the mean logits of the first round's local models."""
    simulation = lab.start("fedavg", **settings)
    setting = simulation.setting
    cohort = select(0.6, 5, seed=0, round=0)
    outcomes = simulation.engine.round(
        setting.program(0), simulation.server, simulation.store.rows(cohort), False
    )
    uploads = [outcome.messages["average"][0] for outcome in outcomes]

    def forward(w, x):
        h = x.flatten(1)
        for unit in (0, 1):
            h = torch.relu(h @ w[f"units.{unit}.linear.weight"].T + w[f"units.{unit}.linear.bias"])
        return h @ w["units.2.linear.weight"].T

    def divergence(w, x):
        q = torch.softmax(sum(forward(u, x) for u in uploads) / len(uploads), 1)
        return (q * (q.log() - torch.log_softmax(forward(w, x), 1))).sum(1).mean()

    return divergence


def test_labels_of_public_data_are_not_read(lab):
    runs = [
        lab.run("feddf(steps=5)", federation=public(lab, label=label), net="bn", **SCENE) for label in (0, 3)
    ]
    lab.same(runs[0].params, runs[1].params)
    other = lab.run("feddf(steps=5)", federation=public(lab, seed=12), net="bn", **SCENE)
    assert lab.differ(other.params[1], runs[0].params[1])


def test_distilled_model_keeps_the_statistics_of_public_inputs(lab):
    settings = {**SCENE, "net": "bn", "rounds": 1, "federation": public(lab)}
    feddf, fedavg = lab.run("feddf(steps=5)", **settings), lab.run("fedavg", **settings)
    name = "units.0.normalisation.running_mean"
    assert lab.differ(feddf.servers[1]["buffers"][name], fedavg.servers[1]["buffers"][name])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_distillation_happens_in_every_nth_round(lab, every):
    setting = lab.start(f"feddf(steps=2, every={every})", rounds=6, federation=public(lab)).setting
    programs = [setting.program(t) for t in range(6)]
    assert sum(len(p.method.plan(p.scene, p.clock).server) for p in programs) == 6 // every


def server_momentum(w, mean, velocity, beta=0.5):
    """FedAvgM's step: the velocity is updated in place."""
    for n in w:
        velocity[n] = beta * velocity.get(n, 0) + mean[n] - w[n]
    return {n: w[n] + velocity[n] for n in w}


@pytest.mark.parametrize("update", ["", " + fedavgm(momentum=0.5)"])
@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_reference_of_three_rounds_agrees(lab, plain, decay, engine, update):
    """torch's own Adam from the weighted mean, or from where momentum carries it, towards the mean of the logits."""
    steps, rate, velocity = 7, 0.02, {}
    feddf = lab.run(
        f"feddf(steps={steps}, learning_rate={rate}, weight_decay={decay}){update}",
        engine=engine,
        federation=public(lab),
        **SCENE,
    )
    check = plain(feddf)
    w = feddf.params[0]
    for t in range(3):
        cohort = select(0.6, 5, seed=check.experiment.seed, round=t)
        locals_ = [check.sgd(w, check.batches(k, t, check.steps(k, 2)), check.cross_entropy) for k in cohort]
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        mean = {n: sum(s * u[n] for s, u in zip(sizes, locals_, strict=True)) / sum(sizes) for n in w}
        w = server_momentum(w, mean, velocity) if update else mean
        leaves = {n: w[n].clone().requires_grad_() for n in w}
        adam = torch.optim.Adam(leaves.values(), lr=rate, weight_decay=decay)
        plan = plan_batches(check.federation.public, steps, 4, seed=0, position=("server", t))
        for step, (index, mask) in enumerate(zip(plan.index, plan.mask, strict=True)):
            x = check.x[torch.from_numpy(index[mask])]
            q = torch.softmax(sum(check.forward(u, x)[1] for u in locals_) / len(locals_), 1)
            loss = -(q * torch.log_softmax(check.forward(leaves, x)[1], 1)).sum(1).mean()
            adam.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            adam.zero_grad()
            loss.backward()
            adam.step()
        w = {n: leaf.detach() for n, leaf in leaves.items()}
        lab.close(feddf.params[t + 1], w)


DATA = {
    "dataset": "synthetic(n_clients=3, samples_per_client=20, n_classes=4, n_features=4)",
    "partition": "by_id",
    "clients": 3,
    "model": "mlpnet(hidden=5)",
}


def federation(method, **settings):
    return prepare(Experiment(method=method, **DATA, **settings), place("loop", "cpu")).federation


def test_public_data_leave_the_servers_test_set_for_every_method(lab):
    feddf, fedavg, whole = (
        federation("feddf", public=6),
        federation("fedavg", public=6),
        federation("fedavg"),
    )
    np.testing.assert_array_equal(feddf.server_x, fedavg.server_x)
    np.testing.assert_array_equal(feddf.x, fedavg.x)
    rows = [feddf.x[feddf.public], feddf.server_x]
    assert len(feddf.public) == 6
    assert len(feddf.server_y) == len(whole.server_y) - 6
    pieces = {row.tobytes() for row in np.concatenate(rows)}
    assert len(pieces) == len(whole.server_y)
    assert pieces == {row.tobytes() for row in whole.server_x}
    assert not feddf.y[feddf.public].any()


def test_public_data_stay_in_the_test_set_where_asked(lab):
    kept, whole = federation("feddf", public=6, public_in_test=True), federation("fedavg")
    np.testing.assert_array_equal(kept.server_x, whole.server_x)
    np.testing.assert_array_equal(kept.server_y, whole.server_y)


def test_no_client_holds_public_data(lab):
    feddf = federation("feddf", public=6)
    held = np.concatenate([rows for c in feddf.clients for rows in (c.train, c.valid, c.test)])
    assert not set(held.tolist()) & set(feddf.public.tolist())


def test_run_without_public_data_is_refused(lab):
    with pytest.raises(UserError, match="public"):
        federation("feddf", public=0)
