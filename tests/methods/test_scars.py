"""ScaRS (Li et al., IEEE TKDE 2024, section 5): SCAFFOLD on the restricted-softmax loss."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from idiolect.federation import select

PART = "control_variates"
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("rule", ["paper", "freq_max"])
def test_unrestricted_softmax_is_exactly_scaffold(lab, rule, net, engine):
    settings = {**SCENE, "net": net, "engine": engine, "weight_decay": 0.01}
    scars = lab.run(f"scars(alpha=1, rule={rule}, step=0.8)", **settings)
    scaffold = lab.run("scaffold(step=0.8)", **settings)
    for t in range(5):
        lab.same(scars.servers[t], scaffold.servers[t])
        for client in range(5):
            lab.same(scars.slot(PART, client, t), scaffold.slot(PART, client, t))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("options", ["alpha=0.5", "alpha=0.5, rule=freq_max", "alpha=0.9, rule=uniform"])
def test_first_round_is_exactly_fedrs_without_momentum(lab, options, net, engine):
    settings = {**SCENE, "rounds": 2, "net": net, "engine": engine}
    scars = lab.run(f"scars({options}, lr_scale=1)", **settings, momentum=0.9)
    fedrs = lab.run(f"fedrs({options})", **settings, momentum=0)
    lab.same(scars.params[1], fedrs.params[1])
    lab.same(scars.servers[1]["buffers"], fedrs.servers[1]["buffers"])
    assert lab.differ(scars.params[2], fedrs.params[2])


def test_controls_are_gradients_of_the_restricted_loss(lab, plain):
    scars = lab.run("scars(alpha=0.4)", batch_size=1000, rounds=2)
    check = plain(scars)
    for client in range(5):
        scale = torch.tensor([1.0 if count else 0.4 for count in check.counts(client)], dtype=check.x.dtype)
        x, y = check.rows(client, "train")
        w = {n: p.clone().requires_grad_() for n, p in scars.params[1].items()}
        grads = torch.autograd.grad(F.cross_entropy(check.forward(w, x)[1] * scale, y), w.values())
        lab.close(scars.slot(PART, client, 2), dict(zip(w, grads, strict=True)))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_four_rounds_agrees(lab, plain, engine):
    """Plain SGD, so that the paper's option II gives the controls: c_k - c + (theta - y)/(s eta)."""
    alpha, eta = 0.4, 0.125
    scars = lab.run(f"scars(alpha={alpha}, step=0.7, lr_scale=1)", engine=engine, **SCENE)
    check = plain(scars)
    check.experiment = replace(check.experiment, momentum=0)
    w = scars.params[0]
    c = {n: torch.zeros_like(w[n]) for n in w}
    own = dict.fromkeys(range(5), c)
    for t in range(4):
        cohort = select(0.6, 5, seed=check.experiment.seed, round=t)
        moves, changes = [], []
        for client in cohort:
            scale = torch.tensor(
                [1.0 if count else alpha for count in check.counts(client)], dtype=check.x.dtype
            )
            shift = {n: c[n] - own[client][n] for n in w}

            def loss(v, x, y, scale=scale, shift=shift):
                restricted = F.cross_entropy(check.forward(v, x)[1] * scale, y)
                return restricted + sum((shift[n] * v[n]).sum() for n in v)

            steps = check.steps(client, 2)
            y = check.sgd(w, check.batches(client, t, steps), loss)
            new = {n: (w[n] - y[n]) / (steps * eta) - shift[n] for n in w}
            moves.append({n: y[n] - w[n] for n in w})
            changes.append({n: new[n] - own[client][n] for n in w})
            own[client] = new
        w = {n: w[n] + 0.7 * sum(move[n] for move in moves) / 3 for n in w}
        c = {n: c[n] + 3 / 5 * sum(change[n] for change in changes) / 3 for n in c}
        lab.close(scars.params[t + 1], w)
        lab.close(scars.servers[t + 1]["slots"][PART], c)
    for client in range(5):
        lab.close(scars.slot(PART, client, 4), own[client])
