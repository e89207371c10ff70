"""APPLE (Luo, Wu, IJCAI 2022): personal models as mixtures of core models, in shares that each client learns."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from idiolect import UserError
from idiolect.core import Clock, Model, ServerView, derive
from idiolect.federation import KeptUploads
from idiolect.parts.directed_relationships import directed_relationships, picked_cores, schedule_at
from idiolect.testing import tiny_run

PART = "directed_relationships"
OPTIONS = "rate=0.02, weight=0.5, share=0.7"
TRAINING = {"rounds": 4, "participation_rate": 0.7, "weight_decay": 0.01}


def kept_of(trace, clients):
    return trace.simulation.participants.downloads.kept.of(PART).rows(clients)


def mixture(shares, cores):
    return {name: sum(p * core[name] for p, core in zip(shares, cores, strict=True)) for name in cores[0]}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(("models", "core_lr_scale"), [(2, None), (None, 3.0)])
def test_reference_of_four_rounds_agrees(lab, plain, engine, models, core_lr_scale):
    """The loss of the mixture, differentiated by autograd in the own core model and in the shares, step by step."""
    trace = lab.run(
        f"apple(models={models}, core_lr_scale={core_lr_scale}, {OPTIONS})", engine=engine, **TRAINING
    )
    check, setting = plain(trace), trace.simulation.setting
    e, count, n = setting.experiment, models or 4, 5
    cores = [setting.initial(0).params] * n
    shares = [torch.full((n,), 1 / n, dtype=torch.float64) for _ in range(n)]
    received, heard, personal = np.zeros((n, n)), set(), {}
    chosen_by_odds, shortened = 0, False
    for t in range(4):
        fading = (math.cos(math.pi * t / (0.7 * 4)) + 1) / 2 if t < 0.7 * 4 else 0.0
        cohort, new = setting.cohort(t), {}
        for i in cohort:
            others = sorted(heard - {i})
            random = np.random.default_rng(derive(e.seed, PART, t, i))
            base = max(1.5, t * count / n)
            some = picked_cores(shares[i].numpy(), received[i], others, count, base, random)
            chosen_by_odds += int(received[i, some].sum())
            trained = torch.tensor([j == i or j in some for j in range(n)])
            core, p = cores[i], shares[i]
            velocity = {name: torch.zeros_like(leaf) for name, leaf in core.items()}
            for x, y in check.batches(i, t, check.steps(i, 1)):
                own = {name: leaf.clone().requires_grad_() for name, leaf in core.items()}
                leaf_p = p.clone().requires_grad_()
                mixed = mixture(leaf_p, [own if j == i else cores[j] for j in range(n)])
                near = 0.5 / 2 * fading * ((leaf_p - 1 / n) ** 2).sum()
                scale = core_lr_scale or min(n, 1 / float(p[i]))
                total = check.cross_entropy(mixed, x, y) + near
                *grads, slope = torch.autograd.grad(total, [*own.values(), leaf_p])
                shortened = shortened or scale < n
                p = p - 0.02 * torch.where(trained, slope, 0)
                for name, grad in zip(core, grads, strict=True):
                    velocity[name] = e.momentum * velocity[name] + scale * grad + e.weight_decay * core[name]
                core = {name: core[name] - e.learning_rate * velocity[name] for name in core}
            new[i] = core, p, some
            personal[i] = mixture(p, [core if j == i else cores[j] for j in range(n)])
        for i, (core, p, some) in new.items():
            cores[i], shares[i] = core, p
            received[i, some] = 1
        heard |= set(cohort)
    assert chosen_by_odds > 0 and shortened and len(heard) == n
    for i, model in personal.items():
        slots = trace.privates[-1][i]["slots"]
        lab.close(slots["private_layers"], cores[i])
        lab.close(slots[PART]["model"], model)
        found = kept_of(trace, [i])
        shown = found["relations"][0].clone()
        shown[i] = found["own share"][0]
        lab.close(shown, shares[i])
        np.testing.assert_array_equal(found["received"][0].numpy(), received[i])
    for i, found in enumerate(trace.logits()):
        lab.close(found["composed"], check.forward(personal[i], check.rows(i, "test")[0])[1])


def test_models_that_are_not_sent_count_all_the_same(lab):
    """With fixed relationships the mixture does not depend on how many core models travel by themselves."""
    few, all_ = (lab.run(f"apple(models={m}, rate=0)", **TRAINING) for m in (1, None))
    for i, private in few.privates[-1].items():
        lab.close(private["slots"], all_.privates[-1][i]["slots"])


def test_clients_with_permuted_labels_are_worth_less(lab, planted):
    groups = np.array([0, 1, 0, 1, 1, 0])
    trace = lab.run("apple(models=None, rate=0.005)", federation=planted(groups), rounds=8, local_epochs=2)
    relations = kept_of(trace, list(range(6)))["relations"].numpy()
    same = (groups[:, None] == groups) & ~np.eye(6, dtype=bool)
    other = groups[:, None] != groups
    for i in range(6):
        assert relations[i][same[i]].mean() > relations[i][other[i]].mean()


def test_schedules_fade_and_end():
    assert [schedule_at(t, 4, "cosine") for t in (0, 2, 4, 9)] == pytest.approx([1, 0.5, 0, 0])
    assert [schedule_at(t, 3, "exponential") for t in (0, 1, 2, 3)] == pytest.approx([1, 0.1, 0.01, 0])
    assert schedule_at(0, 0, "cosine") == 0


def test_new_models_are_picked_first_and_then_by_relationship():
    random = np.random.default_rng(0)
    relations, received = np.array([0.0, 3.0, -3.0, 0.0, 0.0]), np.array([0, 1, 1, 1, 0])
    assert picked_cores(relations, received, [1, 2, 3, 4], 1, 2.0, random) == [4]
    assert sorted(picked_cores(relations, received, [1, 2, 3, 4], 9, 2.0, random)) == [1, 2, 3, 4]
    drawn = [picked_cores(relations, received, [1, 2, 3], 1, 2.0, random)[0] for _ in range(3000)]
    assert np.bincount(drawn)[1:] / 3000 == pytest.approx([8 / 17, 8 / 17, 1 / 17], abs=0.03)
    assert picked_cores(relations, received, [], 3, 2.0, random) == []


@pytest.mark.parametrize(("round", "base"), [(2, 1.5), (60, 8.0)])
def test_the_base_of_the_odds_grows_with_the_rounds_once_it_is_above_its_least(round, base):
    """Of clients that were all received, j is picked with odds of max(1.5, t M / N)^|p_ij|, t from 0."""
    n, first = 15, {"w": torch.zeros(1)}
    row = {"core": first, "own share": torch.tensor(1.0), "received": torch.ones(n)}
    kept = KeptUploads.in_memory({PART: {**row, "relations": torch.eye(n)[3] * -2}}, n)
    kept.heard.add([0, 3, 4, 7, 8])
    clock = Clock(round, 100, 1.0, n, n, 0.1)
    part, model = directed_relationships(models=2), Model(first, {})
    picked = []
    for seed in range(400):
        view = ServerView(model, {}, kept.of(PART), clock, None, seed)
        picked += [sorted(part.personal_download([0], view)["from"][0].long().tolist())]
    odds = {3: base**2, 4: 1.0, 7: 1.0, 8: 1.0}
    without = sum(
        odds[a] / (3 + odds[3]) * odds[b] / (3 + odds[3] - odds[a]) for a, b in permutations((4, 7, 8), 2)
    )
    assert {client for pair in picked for client in pair} == {3, 4, 7, 8}
    assert np.mean([3 not in pair for pair in picked]) == pytest.approx(without, abs=0.05)


def test_in_the_first_round_every_client_begins_at_the_shared_model(lab):
    """All core models are the initial one, whose shares sum to 1; nobody has been heard of."""
    trace = lab.run("apple(rate=0, core_lr_scale=1e-9)", rounds=2)
    for private in trace.privates[-1].values():
        lab.close(private["slots"][PART]["model"], trace.simulation.setting.initial(0).params, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("apple(models=0)", "models"),
        ("apple(schedule=linear)", "schedule must be one of"),
        ("apple + scaffold", "cannot be combined"),
        ("apple + krum", "would protect nothing"),
    ],
)
def test_what_does_not_fit_is_refused(method, reason):
    with pytest.raises(UserError, match=reason):
        tiny_run(method, rounds=1)
