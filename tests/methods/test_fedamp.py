"""FedAMP (Huang et al., AAAI 2021): a mixture of like models for each client, and its own model near it."""

import math

import pytest
import torch

ALPHA, SIGMA, WEIGHT = 0.5, 2.0, 0.3
METHOD = f"fedamp(alpha={ALPHA}, sigma={SIGMA}, weight={WEIGHT})"
TRAINING = {"rounds": 3, "participation_rate": 0.7, "weight_decay": 0.01}


def distance(one, other):
    return sum(float(((one[name] - other[name]) ** 2).sum()) for name in one)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Message passing and proximal step written out from the paper, client by client, without the core."""
    trace = lab.run(METHOD, engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    models = [trace.params[0]] * setting.federation.population
    heard = set()
    pulled = 0.0
    for t in range(3):
        cohort, new = setting.cohort(t), {}
        for i in cohort:
            share = {
                j: ALPHA * math.exp(-distance(models[i], models[j]) / SIGMA) / SIGMA
                for j in sorted(heard - {i})
            }
            total = sum(share.values())
            share = {j: one / max(total, 1) for j, one in share.items()}
            rest = 1 - sum(share.values())
            u = {
                name: rest * models[i][name] + sum(one * models[j][name] for j, one in share.items())
                for name in models[i]
            }
            pulled = max(pulled, 1 - rest)

            def loss(v, x, y, u=u):
                near = sum(((v[name] - u[name]) ** 2).sum() for name in u)
                return check.cross_entropy(v, x, y) + WEIGHT / (2 * ALPHA) * near

            new[i] = check.sgd(models[i], check.batches(i, t, check.steps(i, 1)), loss)
        for i in cohort:
            models[i] = new[i]
        heard |= set(cohort)
    assert 0.1 < pulled <= 1
    for i, private in trace.privates[-1].items():
        lab.close(private["slots"]["attentive_mixture"], models[i])


def test_no_step_of_the_server_is_training_alone(lab):
    alone, local = (lab.run(method, rounds=2) for method in ("fedamp(alpha=0)", "local"))
    for i, private in alone.privates[-1].items():
        lab.same(private["slots"]["attentive_mixture"], local.privates[-1][i]["slots"]["private_layers"])


def test_the_mixture_lies_among_the_models_whatever_the_step(lab):
    """Where shares of others exceed 1 they are scaled down: the client's own model then has no share."""
    trace = lab.run("fedamp(alpha=1000, sigma=1000)", rounds=2)
    simulation = trace.simulation
    downloads = simulation.participants.downloads
    sent = downloads.send(simulation.setting.program(2), simulation.server, [0])
    models = downloads.kept.of("attentive_mixture").rows(downloads.kept.of("attentive_mixture").clients)[
        "model"
    ]
    for name, leaf in sent.own["attentive_mixture"]["params"].items():
        others = models[name][1:]
        assert (leaf[0] <= others.amax(0) + 1e-9).all() and (leaf[0] >= others.amin(0) - 1e-9).all()
        torch.testing.assert_close(leaf[0], others.mean(0), rtol=0.05, atol=0.01)
