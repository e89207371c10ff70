"""Ditto (Li et al., ICML 2021): FedAvg, and beside it a private model near the received one."""

import pytest
import torch

PART = "proximal_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
FORMS = pytest.mark.parametrize("form", ["sq_half", "sq", "norm", "mean_smooth_l1"])


@pytest.fixture(scope="module")
def three(lab):
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7}


@ENGINES
@NETS
@pytest.mark.parametrize("options", ["weight=0", "weight=2", "weight=0.5, epochs=2"])
def test_shared_model_is_exactly_fedavg(lab, three, options, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, "rounds": 2, **three}
    fedavg, trace = lab.run("fedavg", **settings), lab.run(f"ditto({options})", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


@ENGINES
@NETS
def test_weight_zero_makes_the_companion_exactly_local(lab, three, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, "local_epochs": 2, **three}
    local, trace = lab.run("local", **settings), lab.run("ditto(weight=0)", **settings)
    for t in range(4):
        for client in range(3):
            slot = trace.slot(PART, client, t)
            lab.same(slot["params"], local.slot("private_layers", client, t))
            lab.same(slot["buffers"], local.privates[t][client]["buffers"])


def test_companion_makes_the_least_number_of_local_steps_too(lab, three):
    """Under the scene's least number of steps it is local training still."""
    local, trace = (lab.run(m, min_local_steps=5, **three) for m in ("local", "ditto(weight=0)"))
    for client in range(3):
        lab.same(trace.slot(PART, client, 3)["params"], local.slot("private_layers", client, 3))


@pytest.mark.parametrize("least", [0, 5])
def test_companion_without_epochs_never_moves(lab, three, least):
    trace = lab.run("ditto(epochs=0)", min_local_steps=least, **three)
    for client in range(3):
        lab.same(trace.slot(PART, client, 3), trace.slot(PART, client, 0))


@ENGINES
def test_large_weight_brings_the_companion_to_the_received_model(lab, three, engine):
    """lr lambda = 1: a step leads from anywhere to within lr |gradient| of theta_t."""
    distances, settings = [], {"momentum": 0.0, "local_epochs": 3, "engine": engine, **three}
    for weight in (1e4, 1e6, 1e8):
        simulation = lab.start(f"ditto(weight={weight})", learning_rate=1 / weight, **settings)
        rows = simulation.store.rows(range(3))
        for row in rows.values():
            slot = row["slots"][PART]
            row["slots"][PART] = {**slot, "params": {n: 3 - 2 * p for n, p in slot["params"].items()}}
        simulation.store.write(rows)
        received = simulation.server["params"]
        simulation.advance()
        chosen = [r for c, r in simulation.store.rows(range(3)).items() if c in simulation.selected]
        companions = [row["slots"][PART]["params"] for row in chosen]
        distances.append(max(float((v[n] - w).abs().max()) for v in companions for n, w in received.items()))
    assert distances[0] < 1e-3
    assert distances[1] == pytest.approx(1e-2 * distances[0], rel=0.1)
    assert distances[2] == pytest.approx(1e-4 * distances[0], rel=0.1)


@ENGINES
@FORMS
def test_companion_is_held_at_the_downloaded_model_and_not_at_the_trained_one(lab, form, engine):
    """One full-batch step from v = theta_t: the term has no gradient there, whatever its weight."""
    settings = {"rounds": 1, "batch_size": 1000, "engine": engine}
    free, held = (lab.run(f"ditto(weight={weight}, form={form})", **settings) for weight in (0, 5))
    for client in range(5):
        lab.same(held.slot(PART, client, 1), free.slot(PART, client, 1))


def test_companion_predicts_and_global_is_the_shared_model(lab, plain, three):
    trace = lab.run("ditto", **three)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        x, _ = check.rows(client, "test")
        lab.close(found["companion"], check.forward(trace.slot(PART, client, 3)["params"], x)[1])
        lab.close(found["global"], check.forward(trace.params[3], x)[1])


def distance(form, v, theta):
    """Over all parameters: half the square, the square, the norms summed, the smooth L1 distances averaged."""
    gaps = [v[n] - theta[n] for n in theta]
    if form == "norm":
        return sum(gap.norm() for gap in gaps)
    if form == "mean_smooth_l1":
        smooth = [torch.where(gap.abs() < 1, gap**2 / 2, gap.abs() - 0.5).mean() for gap in gaps]
        return sum(smooth) / len(smooth)
    return sum((gap**2).sum() for gap in gaps) * {"sq": 1, "sq_half": 0.5}[form]


@ENGINES
@pytest.mark.parametrize(
    ("form", "weight", "epochs"),
    [
        ("sq_half", 0.7, None),
        ("sq_half", 0.7, 2),
        ("sq", 0.7, None),
        ("norm", 0.2, None),
        ("mean_smooth_l1", 50, None),
    ],
)
def test_reference_of_three_rounds_agrees(lab, plain, three, form, weight, epochs, engine):
    """v: CE + lambda / 2 ||v - theta_t||^2 with a momentum of its own."""
    trace = lab.run(
        f"ditto(weight={weight}, epochs={epochs}, form={form})",
        weight_decay=0.01,
        weighting="samples",
        engine=engine,
        **three,
    )
    check = plain(trace)
    own = dict.fromkeys(range(3), trace.params[0])

    def local(theta, client, t):
        def near(v, x, y):
            return check.cross_entropy(v, x, y) + weight * distance(form, v, theta)

        own[client] = check.sgd(own[client], check.batches(client, t, check.steps(client, epochs or 1)), near)
        return check.sgd(theta, check.batches(client, t, check.steps(client, 1)), check.cross_entropy)

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(3):
        lab.close(trace.slot(PART, client, 3)["params"], own[client])
        assert all(torch.isfinite(leaf).all() for leaf in own[client].values())
