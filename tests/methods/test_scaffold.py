"""SCAFFOLD (Karimireddy et al., ICML 2020): gradients corrected by controls, and the laws of the controls."""

from dataclasses import replace

import pytest
import torch

from idiolect.errors import UserError
from idiolect.federation import select
from idiolect.methods import method

PART = "control_variates"
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2}


def control(trace, round):
    return trace.servers[round]["slots"][PART]


def cohort(check, t):
    e = check.experiment
    return select(e.participation_rate, len(check.federation.clients), seed=e.seed, round=t)


def gradient(check, w, x, y):
    leaves = {n: w[n].detach().clone().requires_grad_() for n in w}
    return dict(zip(w, torch.autograd.grad(check.cross_entropy(leaves, x, y), leaves.values()), strict=True))


def mean(trees):
    return {n: sum(tree[n] for tree in trees) / len(trees) for n in trees[0]}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("control", ["mean_gradient", "option_two"])
def test_first_round_is_exactly_fedavg_without_momentum(lab, control, net, engine):
    """Whatever the scene's momentum: the corrected steps are plain."""
    settings = {**SCENE, "rounds": 2, "net": net, "engine": engine}
    scaffold = lab.run(f"scaffold(control={control}, lr_scale=1, clip_norm=None)", **settings, momentum=0.9)
    fedavg = lab.run("fedavg", **settings, momentum=0)
    lab.same(scaffold.params[1], fedavg.params[1])
    lab.same(scaffold.servers[1]["buffers"], fedavg.servers[1]["buffers"])
    assert lab.differ(scaffold.params[2], fedavg.params[2])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("control", ["mean_gradient", "option_two"])
def test_one_full_step_of_everyone_is_fedavg_in_every_round(lab, control, engine):
    settings = {"batch_size": 1000, "rounds": 4, "engine": engine}
    scaffold = lab.run(f"scaffold(control={control}, lr_scale=1, clip_norm=None)", **settings)
    fedavg = lab.run("fedavg", momentum=0, **settings)
    lab.close(scaffold.params, fedavg.params)
    assert lab.differ(scaffold.params[4], scaffold.params[0])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("rate", [0.2, 0.6])
@pytest.mark.parametrize("control_of", ["mean_gradient", "option_two"])
def test_mean_of_all_controls_is_the_servers_under_any_participation(lab, control_of, rate, engine):
    settings = {**SCENE, "participation_rate": rate, "engine": engine, "weighting": "samples"}
    scaffold = lab.run(f"scaffold(control={control_of}, lr_scale=1, clip_norm=None)", **settings)
    for t in range(1, 5):
        lab.close(mean([scaffold.slot(PART, k, t) for k in range(5)]), control(scaffold, t))
    assert all(leaf.abs().max() > 1e-6 for leaf in control(scaffold, 4).values())


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_control_after_one_step_is_the_gradient_at_the_received_model(lab, plain, engine):
    scaffold = lab.run("scaffold", batch_size=1000, rounds=3, engine=engine)
    check = plain(scaffold)
    for t in range(3):
        for client in range(5):
            here = gradient(check, scaffold.params[t], *check.rows(client, "train"))
            lab.close(scaffold.slot(PART, client, t + 1), here)


def test_controls_of_clients_not_selected_stay(lab, plain):
    scaffold = lab.run("scaffold", **SCENE)
    check, idle = plain(scaffold), 0
    for t in range(4):
        for client in set(range(5)) - set(cohort(check, t)):
            lab.same(scaffold.slot(PART, client, t + 1), scaffold.slot(PART, client, t))
            idle += 1
    assert idle == 8


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_option_two_is_the_mean_gradient_of_plain_sgd(lab, engine):
    """Also while the learning rate warms up and decays: it is divided by the rate of its own round."""
    settings = {**SCENE, "engine": engine, "warmup_rounds": 3, "lr_decay": 0.9}
    a, b = (
        lab.run(f"scaffold(control={c}, lr_scale=2, clip_norm=None)", **settings)
        for c in ("mean_gradient", "option_two")
    )
    lab.close(a.params, b.params)
    for t in range(1, 5):
        lab.close(control(a, t), control(b, t))
        for client in range(5):
            lab.close(a.slot(PART, client, t), b.slot(PART, client, t))


@pytest.mark.parametrize(("options", "weight_decay"), [(", momentum=0.5", 0.0), ("", 0.01)])
def test_option_two_is_refused_where_it_does_not_hold(lab, options, weight_decay):
    setting = lab.start("fedavg", weight_decay=weight_decay).setting
    structure, scene = setting.task.structure, setting.experiment.scene
    with pytest.raises(UserError, match="option_two"):
        method(f"scaffold(control=option_two, clip_norm=None{options})").check(structure, scene)
    method(f"scaffold(control=mean_gradient{options})").check(structure, scene)


def test_option_two_is_served_under_a_scene_with_momentum(lab):
    setting = lab.start("fedavg", momentum=0.9).setting
    method("scaffold(control=option_two, clip_norm=None)").check(
        setting.task.structure, setting.experiment.scene
    )


@pytest.mark.parametrize("text", ["scaffold", "scars(alpha=0.5)"])
def test_plain_steps_make_up_for_the_momentum_of_the_scene(lab, text):
    """Under momentum 15/16 they are the fourth root of 16 = 2 times as long, and the scene's own without momentum."""
    longer = lab.run(text, **SCENE, momentum=0.9375, learning_rate=0.05)
    lab.same(longer.params, lab.run(text, **SCENE, momentum=0.0, learning_rate=0.1).params)


def test_statistics_are_the_plain_average_whatever_the_servers_step(lab):
    settings = {**SCENE, "net": "bn", "rounds": 1}
    half, fedavg = (
        lab.run("scaffold(step=0.5, lr_scale=1)", **settings),
        lab.run("fedavg", momentum=0, **settings),
    )
    lab.same(half.servers[1]["buffers"], fedavg.servers[1]["buffers"])
    lab.close(half.params[1], mean([fedavg.params[0], fedavg.params[1]]))
    assert not set(half.servers[1]["buffers"]) & set(control(half, 1))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(
    ("momentum", "clip_norm", "rate"),
    [(0.0, None, "population"), (0.5, None, "population"), (0.5, 0.2, "population"), (0.0, None, "cohort")],
)
def test_reference_of_four_rounds_agrees(lab, plain, momentum, clip_norm, rate, engine):
    """What is clipped is the corrected gradient; controls are means of raw gradients."""
    options = f"momentum={momentum}, lr_scale=1, clip_norm={clip_norm}, control_rate={rate}"
    text = f"scaffold(step=0.7, {options})"
    scaffold = lab.run(text, engine=engine, weight_decay=0.01, **SCENE)
    check = plain(scaffold)
    check.experiment = replace(check.experiment, momentum=momentum, clip_norm=clip_norm)
    w = scaffold.params[0]
    c = {n: torch.zeros_like(w[n]) for n in w}
    own = dict.fromkeys(range(5), c)
    for t in range(4):
        uploads, changes = [], []
        for client in cohort(check, t):
            seen = []

            def loss(v, x, y, mine=own[client], seen=seen, c=c):
                seen.append(gradient(check, v, x, y))
                return check.cross_entropy(v, x, y) + sum(((c[n] - mine[n]) * v[n]).sum() for n in v)

            uploads.append(check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss))
            new = mean(seen)
            changes.append({n: new[n] - own[client][n] for n in new})
            own[client] = new
        middle, change = mean(uploads), mean(changes)
        w = {n: w[n] + 0.7 * (middle[n] - w[n]) for n in w}
        follows = len(uploads) / 5 if rate == "population" else 1
        c = {n: c[n] + follows * change[n] for n in c}
        lab.close(scaffold.params[t + 1], w)
        lab.close(control(scaffold, t + 1), c)
    for client in range(5):
        lab.close(scaffold.slot(PART, client, 4), own[client])


@pytest.mark.parametrize(("own", "scene"), [(0.01, None), (0.01, 0.02), (0.02, 0.01), (None, 0.01)])
def test_corrected_gradients_are_clipped_at_the_smaller_norm(lab, own, scene):
    """Before there are controls, it is FedAvg that clips so."""
    settings = {**SCENE, "rounds": 1, "momentum": 0}
    scaffold = lab.run(f"scaffold(clip_norm={own})", **settings, clip_norm=scene)
    lab.same(scaffold.params[1], lab.run("fedavg", **settings, clip_norm=0.01).params[1])
    assert lab.differ(scaffold.params[1], lab.run("fedavg", **settings).params[1])
