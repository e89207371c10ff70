"""FedPHP (Li et al., ECML-PKDD 2021): what the hidden personalised model (HPM) may and may not do."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from idiolect.federation import select

PART = "inherited_teacher"
TRANSFERS = ["kd", "mmd", "l2", "prox"]


def hpm(trace, client, round):
    return trace.slot(PART, client, round)["params"]


def test_zero_momentum_makes_the_hpm_the_local_model(lab):
    php = lab.run("fedphp(momentum=0, transfer_weight=0.3, inference=ensemble)")
    for t in range(1, 4):
        for client in range(5):
            slot = php.slot(PART, client, t)
            lab.same(slot["params"], slot["last"]["params"])
    for found in php.logits():
        lab.same(found["companion"], found["after-local"])
        lab.close(found["ensemble"].softmax(-1), found["companion"].softmax(-1))


def test_ensemble_is_the_mean_of_both_probabilities(lab):
    php = lab.run("fedphp(inference=ensemble)")
    for found in php.logits():
        mean = (found["companion"].softmax(-1) + found["after-local"].softmax(-1)) / 2
        lab.close(found["ensemble"].softmax(-1), mean)
        assert lab.differ(found["companion"], found["after-local"])


def test_constant_full_momentum_freezes_the_hpm_once_created(lab):
    php = lab.run("fedphp(momentum=1, schedule=mu_b)", rounds=4)
    for client in range(5):
        for t in range(2, 5):
            lab.same(hpm(php, client, t), hpm(php, client, 1))
    assert lab.differ(php.params[4], php.params[1])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_hpm_and_counter_change_only_for_selected_clients(lab, engine):
    php = lab.run("fedphp()", participation_rate=0.4, rounds=5, engine=engine)
    seen = [0] * 5
    for t in range(5):
        cohort = select(0.4, 5, seed=0, round=t)
        for client in range(5):
            before, after = php.slot(PART, client, t), php.slot(PART, client, t + 1)
            seen[client] += client in cohort
            assert float(after["seen"]) == seen[client]
            if client not in cohort:
                lab.same(after, before)
            else:
                assert lab.differ(after["params"], before["params"])
    assert len(set(seen)) > 1


@pytest.mark.parametrize(
    ("schedule", "mus"),
    [
        ("mu_a", [0.0, 0.9 / 6, 1.8 / 6, 2.7 / 6, 3.6 / 6, 4.5 / 6]),
        ("mu_b", [0.0, 0.9, 0.9, 0.9, 0.9, 0.9]),
        ("mu_c", [0.0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6]),
    ],
)
def test_hpm_is_a_convex_combination_of_the_local_models(lab, schedule, mus):
    """With one client the uploads are the shared models; weights follow from the schedule and sum to one."""
    php = lab.run(f"fedphp(momentum=0.9, schedule={schedule})", rounds=6, federation=lab.federation((9,)))
    weights = np.zeros(6)
    for t, mu in enumerate(mus):
        weights *= mu
        weights[t] = 1 - mu
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()
        expected = {n: sum(weights[s] * php.params[s + 1][n] for s in range(t + 1)) for n in php.params[0]}
        lab.close(hpm(php, 0, t + 1), expected)


def test_mu_a_grows_with_the_number_of_selections(lab):
    """mu_k = mu z_k / (Q T), read off the state: HPM' = local + mu_k (HPM - local)."""
    php = lab.run("fedphp(momentum=0.9, inference=personalised)", rounds=6, participation_rate=0.6)
    name, found = "units.2.linear.weight", {}
    for t in range(6):
        for client in select(0.6, 5, seed=0, round=t):
            before, after = php.slot(PART, client, t), php.slot(PART, client, t + 1)
            local = after["last"]["params"][name]
            moved, gap = after["params"][name] - local, before["params"][name] - local
            found.setdefault(int(before["seen"]), []).append(float((moved * gap).sum() / (gap * gap).sum()))
    assert max(found) >= 3
    for z, mus in found.items():
        assert mus == pytest.approx([min(0.9 * z / (0.6 * 6), 1.0)] * len(mus), abs=1e-9)


@pytest.mark.parametrize(("clip", "frozen"), [(1.0, True), (0.9, False)])
def test_momentum_is_clipped_from_above(lab, clip, frozen):
    """One client of five in every round counts to T > Q T / mu, where mu_k would exceed 1."""
    schedule = next(s for s in range(200) if all(select(0.2, 5, seed=s, round=t) == [0] for t in range(3)))
    php = lab.run(f"fedphp(momentum_max={clip})", rounds=3, participation_rate=0.2, seed=schedule)
    assert lab.differ(hpm(php, 0, 3), hpm(php, 0, 2)) is not frozen


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_first_selection_sees_no_transfer(lab, transfer):
    fedavg = lab.run("fedavg", rounds=2)
    php = lab.run(f"fedphp(transfer={transfer}, transfer_weight=0.5)", rounds=2)
    lab.same(php.params[1], fedavg.params[1])
    assert lab.differ(php.params[2], fedavg.params[2])


def test_hpm_from_theta0_teaches_from_the_first_step_on(lab):
    fedavg = lab.run("fedavg", rounds=1)
    php = lab.run("fedphp(hpm_init=theta0, transfer_weight=0.5, transfer=l2)", rounds=1)
    assert lab.differ(php.params[1], fedavg.params[1])


def test_hpm_from_theta0_keeps_its_share_of_the_initial_model(lab):
    php = lab.run(
        "fedphp(hpm_init=theta0, schedule=mu_b, transfer_weight=0)", rounds=1, federation=lab.federation((9,))
    )
    first, upload = php.params
    lab.close(hpm(php, 0, 1), {n: 0.1 * upload[n] + 0.9 * first[n] for n in first})


@pytest.mark.parametrize(("weight", "labels_matter"), [(1.0, False), (0.5, True)])
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_full_transfer_lets_no_label_in(lab, transfer, weight, labels_matter):
    """After the first selection every label of the pool is changed."""
    method = f"fedphp(transfer={transfer}, transfer_weight={weight})"
    federation = lab.federation()
    relabelled = replace(federation, y=(federation.y + 1) % lab.classes)
    first, second = lab.start(method), lab.start(method, federation=relabelled)
    first.advance()
    second.server, second.round = first.server, first.round
    second.store.write(first.store.rows(range(first.setting.federation.population)))
    for _ in range(2):
        first.advance()
        second.advance()
    if labels_matter:
        assert lab.differ(first.server["params"], second.server["params"])
    else:
        lab.same(first.server["params"], second.server["params"])


def test_hpm_is_the_same_model_at_the_next_selection(lab):
    """Local degradation of the HPM is zero by construction: nothing touches it between two selections."""
    php = lab.run("fedphp()", participation_rate=0.4, rounds=6)
    chosen = [select(0.4, 5, seed=0, round=t) for t in range(6)]
    gaps = 0
    for client in range(5):
        times = [t for t in range(6) if client in chosen[t]]
        for last, following in pairwise(times):
            lab.same(php.slot(PART, client, last + 1), php.slot(PART, client, following))
            gaps += following > last + 1
    assert gaps


def test_running_statistics_of_the_hpm_are_averaged_with_its_weights(lab):
    php = lab.run("fedphp(schedule=mu_b, momentum=0.25)", net="bn", rounds=2, federation=lab.federation((9,)))
    name = "units.0.normalisation.running_var"
    expected = 0.75 * php.servers[2]["buffers"][name] + 0.25 * php.servers[1]["buffers"][name]
    lab.close(php.slot(PART, 0, 2)["buffers"][name], expected)


def test_teacher_runs_in_evaluation_mode(lab):
    """With the statistics of the HPM shifted, its features shift: it does not normalise by the batch."""
    php = lab.start("fedphp(transfer=l2, transfer_weight=1)", net="bn", federation=lab.federation((9,)))
    php.advance()
    other = lab.start("fedphp(transfer=l2, transfer_weight=1)", net="bn", federation=lab.federation((9,)))
    other.server, other.round = php.server, php.round
    state = php.store.rows([0])[0]
    slot = state["slots"][PART]
    shifted = {n: b + 0.5 if n.endswith("mean") else b for n, b in slot["buffers"].items()}
    changed = {**state, "slots": {**state["slots"], PART: {**slot, "buffers": shifted}}}
    other.store.write({0: changed})
    php.advance()
    other.advance()
    assert lab.differ(php.server["params"], other.server["params"])
    assert torch.isfinite(other.server["params"]["units.2.linear.weight"]).all()


def encoded(w, x):
    """What enters the first linear layer of the net ``dropout``."""
    h = F.conv2d(x, w["units.0.convolution.weight"], w["units.0.convolution.bias"], padding=1)
    return F.max_pool2d(torch.relu(h), 2).flatten(1)


def mmd(a, b):
    """Biased MMD^2, five kernels whose bandwidth is a constant."""
    both = torch.cat([a, b])
    n, distance = len(both), ((both[:, None] - both[None]) ** 2).sum(-1)
    bandwidth = distance.detach().sum() / (n * n - n) + 1e-8
    kernel = sum(torch.exp(-distance / (bandwidth * 2**i / 4)) for i in range(5))
    m = len(a)
    return (kernel[:m, :m] + kernel[m:, m:] - kernel[:m, m:] - kernel[m:, :m]).mean()


TERMS = {"mmd": mmd, "l2": lambda a, b: ((a - b) ** 2).sum(-1).mean() / 2}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("transfer", TERMS)
def test_features_are_what_enters_the_first_linear_layer_before_dropout(lab, plain, transfer, engine):
    """With the whole loss a transfer, nothing above the encoder moves, and the encoder by a plain computation."""
    php = lab.run(f"fedphp(transfer={transfer}, transfer_weight=1)", net="dropout", rounds=2, engine=engine)
    check = plain(php)

    def local(w, client, t):
        wanted = php.slot(PART, client, 1)["params"]
        trained = lambda name: name.startswith("units.0")  # noqa: E731

        def loss(v, x, y):
            return TERMS[transfer](encoded(v, x), encoded(wanted, x))

        return check.sgd(w, check.batches(client, t, check.steps(client, 1)), loss, trained=trained)

    uploads = [local(php.params[1], client, 1) for client in range(5)]
    mean = {name: sum(upload[name] for upload in uploads) / 5 for name in uploads[0]}
    lab.close(php.params[2], mean, rtol=1e-7)
    for name, tensor in php.params[2].items():
        assert lab.differ(tensor, php.params[1][name]) == name.startswith("units.0"), name
