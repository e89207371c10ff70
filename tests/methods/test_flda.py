"""FLDA (Peterson, Kanani, Marathe 2019): a private model mixed with the shared one by a gate."""

import pytest
import torch
import torch.nn.functional as F

PART = "gated_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


def logits_at_start(lab, method):
    simulation = lab.start(method)
    return simulation.engine.evaluate(
        simulation.setting.program(0), simulation.server, simulation.store.rows(range(5)), "test"
    )


@ENGINES
@NETS
def test_gate_at_one_is_exactly_fedavg_and_leaves_the_private_model(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run("flda(fixed_gate=1)", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])
    for client in range(3):
        lab.same(trace.slot(PART, client, 2)["own"], trace.slot(PART, client, 0)["own"])


@ENGINES
@NETS
def test_gate_at_zero_is_exactly_local_and_leaves_the_shared_model(lab, net, engine):
    settings = {"net": net, "engine": engine, "local_epochs": 2, "federation": lab.federation(SIZES)}
    local = lab.run("local", **settings)
    trace = lab.run("flda(fixed_gate=0, companion_init=copy)", **settings)
    for t in range(4):
        lab.same(trace.params[t], trace.params[0])
        for client in range(2):
            lab.same(trace.slot(PART, client, t)["own"], local.slot("private_layers", client, t))
            lab.same(trace.slot(PART, client, t)["buffers"], local.privates[t][client]["buffers"])


def test_gate_starts_halfway_for_every_example(lab, plain):
    trace = lab.run("flda", rounds=1)
    check = plain(trace)
    for client, found in enumerate(logits_at_start(lab, "flda")):
        x, _ = check.rows(client, "test")
        own = trace.slot(PART, client, 0)["own"]
        halfway = (check.forward(trace.params[0], x)[1] + check.forward(own, x)[1]) / 2
        lab.close(found["composed"], halfway)


def test_gate_learns_to_tell_examples_apart(lab):
    trace = lab.run("flda", local_epochs=3)
    for client in range(5):
        gate = trace.slot(PART, client, 3)["gate"]
        assert float(gate["v"].abs().max()) > 1e-3 and float(gate["b"].abs()) > 1e-3


def test_private_models_start_apart_from_the_shared_one_unless_copied(lab):
    fresh, copy = lab.run("flda", rounds=1), lab.run("flda(companion_init=copy)", rounds=1)
    for client in range(5):
        lab.same(copy.slot(PART, client, 0)["own"], copy.params[0])
        assert lab.differ(fresh.slot(PART, client, 0)["own"], fresh.params[0])
    assert lab.differ(fresh.slot(PART, 0, 0)["own"], fresh.slot(PART, 1, 0)["own"])


def gated(check, model, slot, x):
    """a(x) z_g + (1 - a(x)) z_p with a(x) = sigmoid(v . h_g(x) + b)."""
    h, shared = check.forward(model, x)
    a = torch.sigmoid((h * slot["v"]).sum(1, keepdim=True) + slot["b"])
    return a * shared + (1 - a) * check.forward(slot["own"], x)[1]


@ENGINES
def test_composed_predictor_is_the_gated_mixture_and_global_the_shared_model_alone(lab, plain, engine):
    trace = lab.run("flda", local_epochs=2, engine=engine)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        x, _ = check.rows(client, "test")
        slot = trace.slot(PART, client, 3)
        lab.close(found["composed"], gated(check, trace.params[3], {"own": slot["own"], **slot["gate"]}, x))
        lab.close(found["global"], check.forward(trace.params[3], x)[1])


def trained_together(check, w, own, gate, client, t):
    """Shared model, private model and gate after one local training: one loss, one optimiser."""

    def loss(v, x, y):
        slot = {"own": {n: v[f"own {n}"] for n in w}, "v": v["v"], "b": v["b"]}
        return F.cross_entropy(gated(check, {n: v[n] for n in w}, slot, x), y)

    all_three = {**w, **{f"own {n}": p for n, p in own.items()}, **gate}
    all_three = check.sgd(all_three, check.batches(client, t, check.steps(client, 1)), loss)
    own, gate = {n: all_three[f"own {n}"] for n in w}, {n: all_three[n] for n in ("v", "b")}
    return {n: all_three[n] for n in w}, own, gate


@ENGINES
def test_mixture_after_local_training_is_made_of_all_that_was_trained(lab, plain, engine):
    trace = lab.run("flda", rounds=1, engine=engine)
    check = plain(trace)
    for client, found in enumerate(lab.after_local(trace)):
        slot = trace.slot(PART, client, 1)
        w, own, gate = trained_together(check, trace.params[1], slot["own"], slot["gate"], client, 1)
        x, _ = check.rows(client, "test")
        lab.close(found["composed"], gated(check, w, {"own": own, **gate}, x))
        assert lab.differ(found["composed"], gated(check, trace.params[1], {"own": own, **gate}, x))
        lab.close(found["global"], check.forward(trace.params[1], x)[1])


@ENGINES
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Shared model, private model and gate in one loss and one optimiser; the shared model is averaged."""
    trace = lab.run(
        "flda",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check = plain(trace)
    own = {c: trace.slot(PART, c, 0)["own"] for c in range(2)}
    gate = {c: {"v": torch.zeros(5).double(), "b": torch.zeros(()).double()} for c in range(2)}

    def local(w, client, t):
        w, own[client], gate[client] = trained_together(check, w, own[client], gate[client], client, t)
        return w

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        lab.close(trace.slot(PART, client, 3)["own"], own[client])
        lab.close(trace.slot(PART, client, 3)["gate"], gate[client])
