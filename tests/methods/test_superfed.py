"""SuPerFed (Hahn, Jeong, Lee 2022): training on the segment between a shared and a private model."""

import pytest
import torch

from idiolect.core import Stage

PART = "mixed_subspace"
BOTH = ["superfed_mm", "superfed_lm"]
EVERYTHING = 1000


def own(trace, client, round):
    return trace.slot(PART, client, round)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("method", BOTH)
def test_without_phase_two_it_is_exactly_fedprox_of_twice_the_proximity(lab, method, net, engine):
    settings = {"net": net, "engine": engine, "local_epochs": 2, "participation_rate": 0.6}
    fedprox = lab.run("fedprox(weight=0.5)", **settings)
    trace = lab.run(f"{method}(phase_one=1, proximity=0.25)", **settings)
    lab.same(trace.params, fedprox.params)
    for client in range(5):
        lab.same(own(trace, client, 3), own(trace, client, 0))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("method", BOTH)
def test_alpha_zero_without_orthogonality_is_fedprox_and_leaves_the_private_model(lab, method, engine):
    fedprox = lab.run("fedprox(weight=0.5)", local_epochs=2, engine=engine)
    options = "phase_one=0, proximity=0.25, orthogonality=0, fixed_alpha=0"
    trace = lab.run(f"{method}({options})", local_epochs=2, engine=engine)
    lab.close(trace.params, fedprox.params)
    for client in range(5):
        lab.same(own(trace, client, 3), own(trace, client, 0))


@pytest.mark.parametrize("method", BOTH)
def test_alpha_one_moves_the_shared_model_by_the_penalties_alone(lab, method):
    options = "phase_one=0, fixed_alpha=1"
    none = lab.run(f"{method}({options}, orthogonality=0, proximity=0)", local_epochs=2)
    near = lab.run(f"{method}({options}, orthogonality=0, proximity=0.5)", local_epochs=2)
    for t in range(4):  # it starts where the proximal term has no gradient, and nothing else moves it
        lab.close(none.params[t], none.params[0])
        lab.close(near.params[t], near.params[0])
    assert lab.differ(own(none, 0, 3), own(none, 0, 0))
    both = lab.run(f"{method}({options}, orthogonality=2)", local_epochs=2)
    assert lab.differ(both.params[3], both.params[0])


def test_alpha_one_with_orthogonality_steps_along_the_gradient_of_cos_squared(lab):
    trace = lab.run(
        "superfed_mm(phase_one=0, fixed_alpha=1, orthogonality=2, proximity=0)",
        batch_size=EVERYTHING,
        rounds=1,
        federation=lab.federation((9,)),
    )
    shared = {n: w.clone().requires_grad_() for n, w in trace.params[0].items()}
    g = torch.cat([w.flatten() for w in shared.values()])
    v = torch.cat([own(trace, 0, 0)[n].flatten() for n in shared])
    cosine = (g @ v) / (g.norm() * v.norm())
    (2 * cosine**2).backward()
    lab.close(trace.params[1], {n: (w - 0.125 * w.grad).detach() for n, w in shared.items()})


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_gradients_carry_the_factors_of_the_mixture(lab, alpha):
    """One step without penalties: d w_g : d w_l = (1 - alpha) : alpha, of the gradient at the mixture."""
    trace = lab.run(
        f"superfed_mm(phase_one=0, fixed_alpha={alpha}, orthogonality=0, proximity=0)",
        batch_size=EVERYTHING,
        rounds=1,
        federation=lab.federation((9,)),
    )
    for name in trace.params[0]:
        shared = trace.params[1][name] - trace.params[0][name]
        private = own(trace, 0, 1)[name] - own(trace, 0, 0)[name]
        torch.testing.assert_close(alpha * shared, (1 - alpha) * private, rtol=1e-9, atol=1e-14)
        assert shared.abs().max() > 0


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_layer_mixing_of_one_layer_is_exactly_model_mixing(lab, engine):
    settings = {"net": "one layer", "engine": engine, "local_epochs": 2}
    model, layer = (lab.run(f"{method}(phase_one=0.4)", **settings) for method in BOTH)
    lab.same(model.params, layer.params)
    for client in range(5):
        lab.same(own(model, client, 3), own(layer, client, 3))


def test_layer_mixing_of_several_layers_differs_from_model_mixing(lab):
    model, layer = (lab.run(f"{method}(phase_one=0)") for method in BOTH)
    assert lab.differ(model.params[1], layer.params[1])


def test_phase_one_leaves_the_private_model_and_phase_two_moves_it(lab):
    trace = lab.run("superfed_mm(phase_one=0.5)", rounds=4)
    lab.same(own(trace, 0, 2), own(trace, 0, 0))
    for t in (2, 3):
        assert lab.differ(own(trace, 0, t + 1), own(trace, 0, t))


def test_phase_one_is_evaluated_at_alpha_zero_alone(lab):
    trace = lab.run("superfed_mm(phase_one=1)")
    assert [name for name in trace.logits()[0] if name.startswith("mix")] == ["mix(0.0)"]


@pytest.mark.parametrize("method", BOTH)
def test_mixture_at_zero_is_the_global_model_and_at_one_the_private(lab, plain, method):
    trace = lab.run(f"{method}(phase_one=0)")
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        lab.same(found["mix(0.0)"], found["global"])
        x, _ = check.rows(client, "test")
        lab.close(found["mix(1.0)"], check.forward(own(trace, client, 3), x)[1])
        halfway = {n: (w + own(trace, client, 3)[n]) / 2 for n, w in trace.params[3].items()}
        lab.close(found["mix(0.5)"], check.forward(halfway, x)[1])


def test_private_models_start_apart_from_the_shared_one(lab):
    shared, client = lab.run("superfed_mm()"), lab.run("superfed_mm(own_init=client)")
    assert lab.differ(own(shared, 0, 0), shared.params[0])
    lab.same(own(shared, 0, 0), own(shared, 1, 0))
    assert lab.differ(own(client, 0, 0), own(client, 1, 0))


def test_validated_mixture_is_chosen_on_validation_data(lab, plain):
    """One coefficient for all clients: the best mean accuracy on validation rows, the first of several."""
    trace = lab.run("superfed_mm(phase_one=0, orthogonality=0)", local_epochs=3)
    check, grid = plain(trace), [a / 10 for a in range(11)]

    def means(split):
        found = []
        for alpha in grid:
            hits = []
            for client in range(5):
                x, y = check.rows(client, split)
                mixed = {
                    n: (1 - alpha) * w + alpha * own(trace, client, 3)[n] for n, w in trace.params[3].items()
                }
                hits.append(float((check.forward(mixed, x)[1].argmax(1) == y).double().mean()))
            found.append(sum(hits) / 5)
        return found

    valid, test = means("valid"), means("test")
    picks = trace.simulation.picks
    assert picks["mix(validated)"] == f"mix({grid[valid.index(max(valid))]:.1f})"
    assert picks["mix(oracle)"] == f"mix({grid[test.index(max(test))]:.1f})"
    assert picks["mix(validated)"] != picks["mix(oracle)"]


def test_statistics_of_a_mixture_are_recomputed_for_evaluation(lab):
    """Running statistics of the shared model play no part in what the mixture predicts."""
    trace = lab.run("superfed_mm(phase_one=0)", net="bn")
    before = trace.logits()
    simulation = trace.simulation
    shifted = {n: b + 1 for n, b in simulation.server["buffers"].items()}
    simulation.server = {**simulation.server, "buffers": shifted}
    after = trace.logits()
    lab.close(after[0]["mix(0.5)"], before[0]["mix(0.5)"])
    assert lab.differ(after[0]["global"], before[0]["global"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("method", BOTH)
def test_reference_of_both_phases_agrees(lab, plain, method, engine):
    """The draws are read from the plan of batches; everything else is the paper's objective written out."""
    trace = lab.run(
        f"{method}(phase_one=0.5, orthogonality=2, proximity=0.3)",
        rounds=4,
        local_epochs=2,
        weight_decay=0.01,
        weighting="samples",
        participation_rate=0.6,
        engine=engine,
    )
    check, setting = plain(trace), trace.simulation.setting
    private = {client: own(trace, client, 0) for client in range(5)}
    layer_of = {name: int(name.split(".")[1]) for name in trace.params[0]}

    def local(w, client, t):
        steps = check.steps(client, 2)
        drawn = setting.work.plan(setting.program(t), Stage(), client)[1][PART]
        assert drawn.shape == (steps, 1 if method == "superfed_mm" else 3)
        draws = iter(drawn)

        def near(v, x, y):
            return check.cross_entropy(v, x, y) + 0.3 * sum(((v[n] - w[n]) ** 2).sum() for n in w)

        def mixed(v, x, y):
            alphas = next(draws)
            shared, own = {n: v[n] for n in w}, {n: v[f"own {n}"] for n in w}
            alpha = {n: float(alphas[layer_of[n]] if len(alphas) > 1 else alphas[0]) for n in w}
            mixture = {n: (1 - alpha[n]) * shared[n] + alpha[n] * own[n] for n in w}
            g, h = (torch.cat([u.flatten() for u in tree.values()]) for tree in (shared, own))
            cosine = (g @ h) / (g.norm() * h.norm())
            distance = sum(((shared[n] - w[n]) ** 2).sum() for n in w)
            return check.cross_entropy(mixture, x, y) + 2 * cosine**2 + 0.3 * distance

        batches = check.batches(client, t, steps)
        if t < 2:
            return check.sgd(w, batches, near)
        both = check.sgd({**w, **{f"own {n}": private[client][n] for n in w}}, batches, mixed)
        private[client] = {n: both[f"own {n}"] for n in w}
        return {n: both[n] for n in w}

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(5):
        lab.close(own(trace, client, 4), private[client])
