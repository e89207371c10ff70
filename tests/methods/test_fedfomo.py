"""FedFomo (Zhang et al., ICLR 2021): first-order weights of received models, and who is sent whose."""

import numpy as np
import pytest
import torch

from idiolect.core import derive
from idiolect.parts.first_order_mixture import mixing_weights, picked

TRAINING = {"rounds": 3, "participation_rate": 0.7, "valid": 0.2}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Weights from validation losses, the step towards the others, and local training, written out in torch."""
    count = 2
    trace = lab.run(f"fedfomo(models={count}, explore=0.5)", engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    federation, work = setting.federation, setting.work
    models = [setting.initial(0).params] * federation.population
    affinity = np.ones((federation.population, federation.population))
    heard, helped_once = set(), False

    def loss_of(model, client):
        rows = torch.as_tensor(federation.clients[client].valid)
        return float(torch.nn.functional.cross_entropy(check.forward(model, work.x[rows])[1], work.y[rows]))

    for t in range(3):
        cohort, new, gains = setting.cohort(t), {}, {}
        for i in cohort:
            others = sorted(heard - {i})
            random = np.random.default_rng(derive(setting.experiment.seed, "first_order_mixture", t, i))
            received = picked(affinity[i], others, count, 0.5, random)
            weights = {}
            for n in received:
                gap = {name: models[n][name] - models[i][name] for name in models[i]}
                norm = sum(float((leaf**2).sum()) for leaf in gap.values()) ** 0.5
                weights[n] = max(0.0, (loss_of(models[i], i) - loss_of(models[n], i)) / norm)
            total = sum(weights.values())
            moved = models[i]
            if total > 0:
                helped_once = True
                moved = {
                    name: leaf + sum(w / total * (models[n][name] - leaf) for n, w in weights.items())
                    for name, leaf in models[i].items()
                }
            new[i], gains[i] = (
                check.sgd(moved, check.batches(i, t, check.steps(i, 1)), check.cross_entropy),
                weights,
            )
        for i in cohort:
            models[i] = new[i]
            for n, weight in gains[i].items():
                affinity[i, n] += weight
        heard |= set(cohort)
    assert helped_once
    kept = trace.simulation.participants.downloads.kept.of("first_order_mixture")
    for i, private in trace.privates[-1].items():
        lab.close(private["slots"]["private_layers"], models[i])
        if i in heard:
            row = kept.rows([i])
            lab.close({name: leaf[0] for name, leaf in row["model"].items()}, models[i])
            np.testing.assert_allclose(row["affinity"][0].numpy(), affinity[i], rtol=1e-8)


def test_weights_are_the_gain_over_the_distance_and_never_negative():
    losses = torch.tensor([1.0, 0.5, 2.0, 0.0, 0.9])
    found = mixing_weights(losses, torch.tensor([2.0, 1.0, 0.0, 0.5]))
    torch.testing.assert_close(found, torch.tensor([0.25, 0.0, 0.0, 0.2]))


def test_the_best_others_are_picked_and_sometimes_any():
    affinity, others = np.array([9.0, 1.0, 5.0, 3.0, 4.0]), [1, 2, 3, 4]
    random = np.random.default_rng(0)
    assert picked(affinity, others, 3, 0.0, random) == [2, 4, 3]
    assert sorted(picked(affinity, others, 9, 0.5, random)) == others
    worst = sum(picked(affinity, others, 1, 0.4, random) == [1] for _ in range(2000)) / 2000
    assert worst == pytest.approx(0.1, abs=0.02)
    even = [picked(np.ones(5), others, 1, 0.0, random)[0] for _ in range(2000)]
    assert np.bincount(even)[1:].min() > 400


def test_a_federation_of_strangers_is_local_training(lab):
    """In the first round nobody was heard from, so that the client is sent its own first model, which has no weight."""
    fomo, local = (lab.run(method, rounds=1, valid=0.2) for method in ("fedfomo", "local"))
    for i, private in fomo.privates[-1].items():
        lab.close(private["slots"]["private_layers"], local.privates[-1][i]["slots"]["private_layers"])
