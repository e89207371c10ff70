"""APFL (Deng, Kamani, Mahdavi 2020): a private model trained through its mixture with the shared one."""

import pytest
import torch

from idiolect.federation import select

PART = "mixed_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
@pytest.mark.parametrize(
    "options",
    [
        "alpha=0",
        "alpha=0.3",
        "alpha=1",
        "alpha=0.5, learned=True",
        "alpha=0.3, shared_first=True",
        "alpha=0.5, learned=True, shared_first=True",
    ],
)
def test_shared_model_is_exactly_fedavg(lab, three, options, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, "clip_norm": 1.0, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run(f"apfl({options})", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


@ENGINES
@pytest.mark.parametrize("shared_first", [False, True])
def test_alpha_zero_leaves_the_private_model_and_predicts_as_the_shared_one(lab, three, shared_first, engine):
    trace = lab.run(f"apfl(alpha=0, shared_first={shared_first})", engine=engine, **three)
    for client in range(3):
        lab.same(trace.slot(PART, client, 2), trace.slot(PART, client, 0))
    for found in trace.logits():
        lab.same(found["mix(alpha)"], found["global"])


@ENGINES
@NETS
@pytest.mark.parametrize("shared_first", [False, True])
def test_private_model_at_alpha_one_is_exactly_local(lab, three, shared_first, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, "clip_norm": 1.0, **three}
    local = lab.run("local", **settings)
    trace = lab.run(f"apfl(alpha=1, shared_first={shared_first})", **settings)
    for t in range(3):
        for client in range(3):
            slot = trace.slot(PART, client, t)
            lab.same(slot["params"], local.slot("private_layers", client, t))
            lab.same(slot["buffers"], local.privates[t][client]["buffers"])


def test_step_of_the_private_model_carries_the_factor_alpha(lab):
    """Both models start equal, so that the first gradients are equal: d v = alpha d w."""
    trace = lab.run("apfl(alpha=0.25)", rounds=1, batch_size=1000, federation=lab.federation((9,)))
    for name, first in trace.params[0].items():
        shared = trace.params[1][name] - first
        private = trace.slot(PART, 0, 1)["params"][name] - first
        torch.testing.assert_close(private, 0.25 * shared, rtol=1e-9, atol=1e-15)
        assert shared.abs().max() > 1e-3


def test_private_state_of_an_unselected_client_stays_exactly_as_it_is(lab):
    trace = lab.run("apfl(learned=True)", participation_rate=0.4, rounds=2)
    for t in range(2):
        for client in range(5):
            before, after = trace.privates[t][client], trace.privates[t + 1][client]
            if client in select(0.4, 5, seed=0, round=t):
                assert lab.differ(after, before)
            else:
                lab.same(after, before)


def test_learned_alpha_stays_between_zero_and_one(lab):
    settings = {"learning_rate": 4.0, "momentum": 0.0, "clip_norm": 0.5, "local_epochs": 4}
    trace = lab.run("apfl(alpha=0.5, learned=True)", **settings)
    found = {float(trace.slot(PART, client, t)["alpha"]) for client in range(5) for t in range(4)}
    assert min(found) >= 0 and max(found) <= 1
    assert found & {0.0, 1.0}


def test_fixed_alpha_never_moves(lab):
    trace = lab.run("apfl(alpha=0.3)")
    assert {float(trace.slot(PART, client, 3)["alpha"]) for client in range(5)} == {0.3}


@ENGINES
@pytest.mark.parametrize("learned", [False, True])
def test_predictor_is_the_mixture_of_weights(lab, plain, learned, engine):
    trace = lab.run(f"apfl(alpha=0.4, learned={learned})", engine=engine, local_epochs=2)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        slot = trace.slot(PART, client, 3)
        mixture = {
            n: slot["alpha"] * slot["params"][n] + (1 - slot["alpha"]) * w for n, w in trace.params[3].items()
        }
        lab.close(found["mix(alpha)"], check.forward(mixture, check.rows(client, "test")[0])[1])


@ENGINES
def test_statistics_of_the_mixture_are_recomputed_for_evaluation(lab, three, engine):
    """Those that training left behind belong to another mixture and play no part in what this one predicts."""
    trace = lab.run("apfl(alpha=0.4)", net="bn", engine=engine, **three)
    before, simulation = trace.logits(), trace.simulation
    rows = simulation.store.rows(range(3))
    for row in rows.values():
        slot = row["slots"][PART]
        row["slots"][PART] = {**slot, "buffers": {n: b + 1 for n, b in slot["buffers"].items()}}
    simulation.store.write(rows)
    simulation.server = {
        **simulation.server,
        "buffers": {n: b + 1 for n, b in simulation.server["buffers"].items()},
    }
    for old, new in zip(before, trace.logits(), strict=True):
        lab.close(new["mix(alpha)"], old["mix(alpha)"])
        assert lab.differ(new["global"], old["global"])


@ENGINES
@pytest.mark.parametrize("shared_first", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_reference_of_three_rounds_agrees(lab, plain, learned, shared_first, engine):
    """vbar = alpha v + (1 - alpha) w; w and v with momentum, alpha with plain steps."""
    trace = lab.run(
        f"apfl(alpha=0.4, learned={learned}, shared_first={shared_first})",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check, rate = plain(trace), 0.125
    own = dict.fromkeys(range(2), trace.params[0])
    alpha = dict.fromkeys(range(2), 0.4)

    def gradient(w, x, y):
        leaves = {n: p.clone().requires_grad_() for n, p in w.items()}
        found = torch.autograd.grad(check.cross_entropy(leaves, x, y), list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def local(w, client, t):
        v, a = own[client], alpha[client]
        speed = {"w": dict.fromkeys(w, 0.0), "v": dict.fromkeys(w, 0.0)}
        for x, y in check.batches(client, t, check.steps(client, 1)):
            g = gradient(w, x, y)
            speed["w"] = {n: 0.9 * speed["w"][n] + g[n] + 0.01 * w[n] for n in w}
            stepped = {n: w[n] - rate * speed["w"][n] for n in w}
            base = stepped if shared_first else w
            g = gradient({n: a * v[n] + (1 - a) * base[n] for n in w}, x, y)
            speed["v"] = {n: 0.9 * speed["v"][n] + a * g[n] + 0.01 * v[n] for n in w}
            if learned:
                slope = sum(float(((v[n] - base[n]) * g[n]).sum()) for n in w)
                a = min(max(a - rate * slope, 0.0), 1.0)
            w, v = stepped, {n: v[n] - rate * speed["v"][n] for n in w}
        own[client], alpha[client] = v, a
        return w

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        slot = trace.slot(PART, client, 3)
        lab.close(slot["params"], own[client])
        assert float(slot["alpha"]) == pytest.approx(alpha[client], rel=1e-9)
        assert (alpha[client] != 0.4) == learned
