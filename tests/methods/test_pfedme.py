"""pFedMe (Dinh, Tran, Nguyen, NeurIPS 2020): personal models from Moreau envelopes around the shared one."""

import pytest
import torch

PART = "moreau_envelope"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
SIZES = (9, 6)
OPTIONS = "inner_steps=2, inner_rate=0.05, outer_rate=0.02"


@pytest.fixture(scope="module")
def two(lab):
    return {"federation": lab.federation(SIZES), "rounds": 2}


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_weight_zero_leaves_the_shared_model_exactly_as_it_is(lab, two, net, engine):
    """Two clients of equal weight: the mean of two equal tensors is that tensor."""
    trace = lab.run(f"pfedme(weight=0, {OPTIONS})", net=net, engine=engine, **two)
    for t in range(3):
        lab.same(trace.params[t], trace.params[0])
    for client in range(2):
        assert lab.differ(trace.slot(PART, client, 2)["params"], trace.params[0])


@ENGINES
def test_weight_zero_makes_the_personal_model_plain_sgd_from_the_shared_one(lab, plain, two, engine):
    """K steps on each batch, nothing pulling back."""
    trace = lab.run(f"pfedme(weight=0, {OPTIONS})", learning_rate=0.05, momentum=0.0, engine=engine, **two)
    check = plain(trace)
    for client in range(2):
        batches = check.batches(client, 1, check.steps(client, 1))
        twice = (batch for batch in batches for _ in range(2))
        lab.close(
            trace.slot(PART, client, 2)["params"], check.sgd(trace.params[0], twice, check.cross_entropy)
        )


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_one_inner_step_taken_over_whole_is_fedavg_with_plain_sgd(lab, two, net, engine):
    """K = 1 and eta lambda = 1: the shared model becomes the personal one after every batch."""
    settings = {"net": net, "engine": engine, "momentum": 0.0, "learning_rate": 0.0625, **two}
    fedavg = lab.run("fedavg", **settings)
    options = "inner_steps=1, inner_rate=0.0625"
    for weight, rate in ((8, 0.125), (0.5, 2)):
        trace = lab.run(f"pfedme(weight={weight}, outer_rate={rate}, {options})", **settings)
        lab.close(trace.params, fedavg.params)
        lab.close(trace.servers[2]["buffers"], fedavg.servers[2]["buffers"])
    assert lab.differ(fedavg.params[2], fedavg.params[0])


@ENGINES
def test_beta_zero_leaves_the_shared_model_exactly_as_it_is(lab, two, engine):
    trace = lab.run(f"pfedme(beta=0, {OPTIONS})", engine=engine, weighting="samples", **two)
    lab.same(trace.params[2], trace.params[0])
    assert lab.differ(trace.slot(PART, 0, 2)["params"], trace.params[0])


def test_beta_moves_part_of_the_way(lab, two):
    whole, half = (lab.run(f"pfedme(beta={beta}, {OPTIONS})", **two) for beta in (1, 0.5))
    for name, first in whole.params[0].items():
        step = whole.params[1][name] - first
        torch.testing.assert_close(half.params[1][name] - first, 0.5 * step, rtol=1e-9, atol=1e-15)
        assert step.abs().max() > 1e-4


def test_personal_model_comes_near_the_shared_one_as_the_weight_grows(lab):
    distances = []
    for weight in (1, 10, 100):
        trace = lab.run(
            f"pfedme(weight={weight}, inner_steps=20, inner_rate=0.01, outer_rate=0.001)",
            rounds=1,
            federation=lab.federation((9,)),
        )
        personal = trace.slot(PART, 0, 1)["params"]
        distances.append(sum(((personal[n] - w) ** 2).sum() for n, w in trace.params[1].items()) ** 0.5)
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0] / 5


def test_momentum_decay_and_learning_rate_of_the_scene_play_no_part(lab, two):
    a = lab.run(f"pfedme({OPTIONS})", **two)
    b = lab.run(f"pfedme({OPTIONS})", momentum=0.3, weight_decay=0.2, learning_rate=0.7, **two)
    lab.close(a.params, b.params)
    lab.close(a.slot(PART, 0, 2), b.slot(PART, 0, 2))


def test_companion_is_the_personal_model_and_global_the_shared_one(lab, plain, two):
    trace = lab.run(f"pfedme({OPTIONS})", **two)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        x, _ = check.rows(client, "test")
        lab.close(found["companion"], check.forward(trace.slot(PART, client, 2)["params"], x)[1])
        lab.close(found["global"], check.forward(trace.params[2], x)[1])


@ENGINES
@pytest.mark.parametrize(("weight", "beta", "steps"), [(15.0, 1.0, None), (4.0, 0.5, 4)])
def test_reference_of_two_rounds_agrees(lab, plain, two, weight, beta, steps, engine):
    """The personal model starts at the received one and goes on from batch to batch."""
    k, inner, outer = 3, 0.05, 0.03
    trace = lab.run(
        f"pfedme(weight={weight}, inner_steps={k}, inner_rate={inner}, outer_rate={outer}, beta={beta}, "
        f"steps={steps})",
        weighting="samples",
        engine=engine,
        **two,
    )
    check, personal = plain(trace), {}

    def local(theta, client, t):
        w = personal[client] = theta
        for x, y in check.batches(client, t, steps or check.steps(client, 1)):
            for _ in range(k):
                leaves = {n: p.clone().requires_grad_() for n, p in personal[client].items()}
                found = torch.autograd.grad(check.cross_entropy(leaves, x, y), list(leaves.values()))
                personal[client] = {
                    n: p.detach() - inner * (g + weight * (p.detach() - w[n]))
                    for (n, p), g in zip(leaves.items(), found, strict=True)
                }
            w = {n: w[n] - outer * weight * (w[n] - personal[client][n]) for n in w}
        return {n: (1 - beta) * theta[n] + beta * w[n] for n in w}

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        lab.close(trace.slot(PART, client, 2)["params"], personal[client])


@ENGINES
@pytest.mark.parametrize(("weight", "inner_rate"), [(2, 0.125), (16, 0.0625)])
def test_inner_rate_is_the_scenes_unless_given_and_at_most_one_over_the_weight(
    lab, two, weight, inner_rate, engine
):
    settings = {"learning_rate": 0.125, "engine": engine, **two}
    unset = lab.run(f"pfedme(weight={weight})", **settings)
    given = lab.run(f"pfedme(weight={weight}, inner_rate={inner_rate})", **settings)
    lab.close(unset.params, given.params)
    assert lab.differ(unset.params[2], unset.params[0])
