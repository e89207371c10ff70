"""FedPHP (Li et al., ECML-PKDD 2021) and MAP (Li et al., TKDE 2024) against their equations in plain torch."""

import pytest
import torch
import torch.nn.functional as F

TAU = 4.0
SCENE = {"rounds": 4, "participation_rate": 0.6, "local_epochs": 2, "weight_decay": 0.01, "momentum": 0.5}
RATE = 0.6


def mmd_squared(a, b):
    """Biased, five Gaussian kernels around the mean distance of all pairs, whose gradient is stopped."""
    both = torch.cat([a, b])
    n = len(both)
    distance = torch.stack([((row - both) ** 2).sum(1) for row in both])
    width = distance.detach().sum() / (n**2 - n) + 1e-8
    kernel = sum(torch.exp(-distance / (width * 2**i / 4)) for i in range(5))
    m = len(a)
    return (kernel[:m, :m] + kernel[m:, m:] - kernel[:m, m:] - kernel[m:, :m]).mean()


def transfer_term(check, name, w, hpm, x):
    h, z = check.forward(w, x)
    g, t = check.forward(hpm, x)
    if name == "mmd":
        return mmd_squared(h, g)
    if name == "l2":
        return ((h - g) ** 2).sum() / (2 * len(x))
    if name == "prox":
        return sum(((w[n] - hpm[n]) ** 2).sum() for n in hpm)
    p = torch.softmax(t / TAU, 1)
    if name == "teacher_only":
        return -(p * torch.log_softmax(z, 1)).sum(1).mean()
    return TAU**2 * (p * (p.log() - torch.log_softmax(z / TAU, 1))).sum(1).mean()


def momentum_of(schedule, mu, seen, round, rounds):
    return {"mu_a": mu * seen / (RATE * rounds), "mu_b": mu, "mu_c": round / rounds}[schedule]


def inherit(local, hpm, mu):
    return local if hpm is None else {n: (1 - mu) * local[n] + mu * hpm[n] for n in local}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("transfer", ["kd", "teacher_only", "mmd", "l2", "prox"])
def test_fedphp_agrees_for_every_transfer(lab, plain, transfer, engine):
    check_fedphp(lab, plain, transfer, "mu_a", engine, "lazy")


@pytest.mark.parametrize("hpm_init", ["lazy", "theta0"])
@pytest.mark.parametrize("schedule", ["mu_a", "mu_b", "mu_c"])
def test_fedphp_agrees_for_every_schedule_and_first_hpm(lab, plain, schedule, hpm_init):
    check_fedphp(lab, plain, "mmd", schedule, "loop", hpm_init)


def check_fedphp(lab, plain, transfer, schedule, engine, hpm_init):
    weight, mu = 0.3, 0.8
    form = "transfer=kd, kd_form=teacher_only" if transfer == "teacher_only" else f"transfer={transfer}"
    php = lab.run(
        f"fedphp({form}, transfer_weight={weight}, momentum={mu}, schedule={schedule}, hpm_init={hpm_init})",
        engine=engine,
        **SCENE,
    )
    check = plain(php)
    first = None if hpm_init == "lazy" else php.params[0]
    hpms, seen = dict.fromkeys(range(5), first), [0] * 5

    def local(w, client, t):
        hpm = hpms[client]

        def loss(v, x, y):
            ce = check.cross_entropy(v, x, y)
            if hpm is None:
                return ce
            return (1 - weight) * ce + weight * transfer_term(check, transfer, v, hpm, x)

        fitted = check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)
        share = min(momentum_of(schedule, mu, seen[client], t, 4), 1.0)
        hpms[client] = inherit(fitted, hpm, share)
        seen[client] += 1
        return fitted

    lab.close(php.params, check.federated(php.params[0], local))
    for client in range(5):
        if hpms[client] is not None:
            lab.close(php.slot("inherited_teacher", client, 4)["params"], hpms[client])
    assert max(seen) >= 3


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("transfer", ["kd", "mmd"])
def test_map_agrees_in_both_stages(lab, plain, transfer, epochs, engine):
    """Half of the steps with restricted softmax, upload, the rest with the plain one and the HPM as teacher."""
    weight, mu, alpha = 0.3, 0.8, 0.5
    map_ = lab.run(
        f"map(alpha={alpha}, transfer={transfer}, transfer_weight={weight}, momentum={mu})",
        engine=engine,
        **{**SCENE, "local_epochs": epochs},
    )
    check, hpms, seen = plain(map_), dict.fromkeys(range(5)), [0] * 5

    def local(w, client, t):
        hpm = hpms[client]
        scale = torch.tensor([1.0 if c >= 1 else alpha for c in check.counts(client)])

        def restricted(v, x, y):
            return F.cross_entropy(check.forward(v, x)[1] * scale, y)

        def taught(v, x, y):
            ce = check.cross_entropy(v, x, y)
            if hpm is None:
                return ce
            return (1 - weight) * ce + weight * transfer_term(check, transfer, v, hpm, x)

        steps = check.steps(client, epochs)
        shared = -(-steps // 2)
        upload = check.sgd(w, check.batches(client, t, shared), restricted)
        fitted = check.sgd(upload, check.batches(client, t, steps - shared, "private"), taught)
        hpms[client] = inherit(fitted, hpm, min(mu * seen[client] / (RATE * 4), 1.0))
        seen[client] += 1
        return upload

    lab.close(map_.params, check.federated(map_.params[0], local))
    for client in range(5):
        if hpms[client] is not None:
            lab.close(map_.slot("inherited_model", client, 4)["params"], hpms[client])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("epochs", [2, 20])
def test_official_map_agrees(lab, plain, epochs, engine):
    """The released code: a uniform temperature in stage 1 of E epochs; a tenth of the steps, at least five, at a
    fifth of the rate in stage 2; temperature on the teacher alone; HPM from the initial model; mu_k at most 0.9."""
    weight, alpha = 0.3, 0.5
    map_ = lab.run(
        f"map(preset=official, alpha={alpha}, transfer_weight={weight}, momentum=1)",
        engine=engine,
        **{**SCENE, "local_epochs": epochs},
    )
    check, hpms, seen = plain(map_), dict.fromkeys(range(5), map_.params[0]), [0] * 5
    private_steps, shares = set(), []

    def local(w, client, t):
        hpm = hpms[client]

        def uniform(v, x, y):
            return F.cross_entropy(alpha * check.forward(v, x)[1], y)

        def taught(v, x, y):
            term = transfer_term(check, "teacher_only", v, hpm, x)
            return (1 - weight) * check.cross_entropy(v, x, y) + weight * term

        steps = check.steps(client, epochs)
        private = max(steps // 10, 5)
        private_steps.add(private)
        upload = check.sgd(w, check.batches(client, t, steps), uniform)
        fitted = check.sgd(upload, check.batches(client, t, private, "private"), taught, lr_scale=0.2)
        shares.append(min(seen[client] / (RATE * 4), 0.9))
        hpms[client] = inherit(fitted, hpm, shares[-1])
        seen[client] += 1
        return upload

    lab.close(map_.params, check.federated(map_.params[0], local))
    for client in range(5):
        lab.close(map_.slot("inherited_model", client, 4)["params"], hpms[client])
    assert (max(private_steps) > 5) is (epochs == 20)
    assert 0.9 in shares
