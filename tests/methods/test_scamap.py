"""ScaMAP (Li et al., IEEE TKDE 2024, section 5): MAP whose shared stage is corrected by control variates."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from idiolect.federation import select

CONTROL, PRIVATE = "control_variates", "inherited_model"
SCENE = {"rounds": 4, "participation_rate": 0.6}
OPTIONS = [
    "",
    ", transfer_weight=0.5, transfer=mmd, momentum=0",
    ", transfer_weight=1, temperature=1, schedule=mu_b, hpm_init=theta0",
    ", private_lr_scale=0.2, private_min_steps=5",
    ", private_share=0",
]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_first_round_is_exactly_map_without_momentum_in_the_shared_stage(lab, net, engine):
    settings = {**SCENE, "local_epochs": 2, "rounds": 2, "net": net, "engine": engine}
    options = "(alpha=0.5, transfer_weight=0.3)"
    scamap = lab.run(f"scamap{options[:-1]}, lr_scale=1)", **settings, momentum=0.9)
    map_ = lab.run(f"map{options}", **settings, momentum=0)
    lab.same(scamap.params[1], map_.params[1])
    lab.same(scamap.servers[1]["buffers"], map_.servers[1]["buffers"])
    assert lab.differ(scamap.params[2], map_.params[2])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_first_round_without_any_momentum_has_exactly_the_private_models_of_map(lab, engine):
    settings = {**SCENE, "local_epochs": 2, "rounds": 1, "momentum": 0, "engine": engine}
    options = "(alpha=0.5, transfer_weight=0.3, hpm_init=theta0)"
    scamap, map_ = lab.run(f"scamap{options}", **settings), lab.run(f"map{options}", **settings)
    for client in range(5):
        lab.same(scamap.slot(PRIVATE, client, 1), map_.slot(PRIVATE, client, 1))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("options", OPTIONS)
def test_shared_path_and_controls_are_exactly_scars_whatever_the_private_stage(lab, options, engine):
    settings = {**SCENE, "engine": engine, "weight_decay": 0.01}
    scamap = lab.run(f"scamap(alpha=0.5, step=0.8{options})", local_epochs=3, **settings)
    scars = lab.run("scars(alpha=0.5, step=0.8)", local_epochs=1.5, **settings)
    lab.same(scamap.params, scars.params)
    for t in range(5):
        lab.same(scamap.servers[t]["slots"][CONTROL], scars.servers[t]["slots"][CONTROL])
        for client in range(5):
            lab.same(scamap.slot(CONTROL, client, t), scars.slot(CONTROL, client, t))
    assert lab.differ(scars.params[4], scars.params[0])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_unrestricted_shared_path_is_exactly_scaffold_of_the_first_stage(lab, net, engine):
    settings = {**SCENE, "net": net, "engine": engine}
    scamap = lab.run("scamap(alpha=1)", local_epochs=4, **settings)
    scaffold = lab.run("scaffold", local_epochs=2, **settings)
    for a, b in zip(scamap.servers, scaffold.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_four_rounds_agrees(lab, plain, engine):
    """Corrected plain SGD and the upload, then the scene's SGD with momentum and the HPM as teacher."""
    alpha, eta, weight, mu, tau = 0.4, 0.125, 0.3, 0.8, 2.0
    scamap = lab.run(
        f"scamap(alpha={alpha}, step=0.7, transfer_weight={weight}, momentum={mu}, temperature={tau}, lr_scale=1)",
        engine=engine,
        local_epochs=3,
        momentum=0.5,
        **SCENE,
    )
    check = plain(scamap)
    moving, plainly = check.experiment, replace(check.experiment, momentum=0)
    w = scamap.params[0]
    c = {n: torch.zeros_like(w[n]) for n in w}
    own, hpms, seen = dict.fromkeys(range(5), c), {}, [0] * 5
    for t in range(4):
        moves, changes = [], []
        for client in select(0.6, 5, seed=moving.seed, round=t):
            scale = torch.tensor(
                [1.0 if count else alpha for count in check.counts(client)], dtype=check.x.dtype
            )
            shift, hpm = {n: c[n] - own[client][n] for n in w}, hpms.get(client)

            def corrected(v, x, y, scale=scale, shift=shift):
                restricted = F.cross_entropy(check.forward(v, x)[1] * scale, y)
                return restricted + sum((shift[n] * v[n]).sum() for n in v)

            def taught(v, x, y, hpm=hpm):
                if hpm is None:
                    return check.cross_entropy(v, x, y)
                z, p = check.forward(v, x)[1], torch.softmax(check.forward(hpm, x)[1] / tau, 1)
                divergence = (p * (p.log() - torch.log_softmax(z / tau, 1))).sum(1).mean()
                return (1 - weight) * F.cross_entropy(z, y) + weight * tau**2 * divergence

            steps = check.steps(client, 3)
            shared = -(-steps // 2)
            check.experiment = plainly
            upload = check.sgd(w, check.batches(client, t, shared), corrected)
            check.experiment = moving
            fitted = check.sgd(upload, check.batches(client, t, steps - shared, "private"), taught)
            new = {n: (w[n] - upload[n]) / (shared * eta) - shift[n] for n in w}
            moves.append({n: upload[n] - w[n] for n in w})
            changes.append({n: new[n] - own[client][n] for n in w})
            own[client] = new
            share = mu * seen[client] / (0.6 * 4)
            hpms[client] = {n: (1 - share) * fitted[n] + share * (hpm or fitted)[n] for n in w}
            seen[client] += 1
        w = {n: w[n] + 0.7 * sum(move[n] for move in moves) / 3 for n in w}
        c = {n: c[n] + sum(change[n] for change in changes) / 5 for n in c}
        lab.close(scamap.params[t + 1], w)
        lab.close(scamap.servers[t + 1]["slots"][CONTROL], c)
    for client, hpm in hpms.items():
        lab.close(scamap.slot(PRIVATE, client, 4)["params"], hpm)
        lab.close(scamap.slot(CONTROL, client, 4), own[client])
    assert max(seen) >= 3
