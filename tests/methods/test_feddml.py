"""FedDML (Shen et al. 2020, federated mutual learning): the shared and a private model teach each other."""

import pytest
import torch
import torch.nn.functional as F

from idiolect import UserError, methods, register
from idiolect.methods.method_text import resolved

PART = "mutual_companion"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
@pytest.mark.parametrize("own_weight", [1, 0.25])
def test_shared_model_without_teacher_is_exactly_fedavg(lab, three, own_weight, net, engine):
    """Whatever the private model learns from it: the side that teaches is not differentiated."""
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run(f"feddml(shared_weight=1, own_weight={own_weight}, temperature=2)", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


@ENGINES
@NETS
@pytest.mark.parametrize("shared_weight", [1, 0.25])
def test_private_model_without_teacher_is_exactly_local(lab, three, shared_weight, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    local = lab.run("local", **settings)
    trace = lab.run(f"feddml(shared_weight={shared_weight}, own_weight=1, companion_init=copy)", **settings)
    for t in range(3):
        for client in range(3):
            slot = trace.slot(PART, client, t)
            lab.same(slot["params"], local.slot("private_layers", client, t))
            lab.same(slot["buffers"], local.privates[t][client]["buffers"])


def test_equal_models_teach_each_other_nothing(lab):
    """KL of equal predictions has no gradient: one step at weight a is a times the step of FedAvg."""
    settings = {"rounds": 1, "batch_size": 1000, "federation": lab.federation(SIZES)}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run("feddml(shared_weight=0.25, companion_init=copy, temperature=4)", **settings)
    for name, first in trace.params[0].items():
        step = fedavg.params[1][name] - first
        torch.testing.assert_close(trace.params[1][name] - first, 0.25 * step, rtol=1e-9, atol=1e-15)
        assert step.abs().max() > 1e-3


def test_private_models_start_apart_from_the_shared_one_unless_copied(lab):
    fresh, copy = lab.run("feddml", rounds=1), lab.run("feddml(companion_init=copy)", rounds=1)
    lab.same(copy.slot(PART, 1, 0)["params"], copy.params[0])
    assert lab.differ(fresh.slot(PART, 1, 0)["params"], fresh.params[0])
    assert lab.differ(fresh.slot(PART, 1, 0)["params"], fresh.slot(PART, 0, 0)["params"])


def test_companion_is_the_private_model_and_global_the_shared_one(lab, plain):
    trace = lab.run("feddml")
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        x, _ = check.rows(client, "test")
        lab.close(found["companion"], check.forward(trace.slot(PART, client, 3)["params"], x)[1])
        lab.close(found["global"], check.forward(trace.params[3], x)[1])


def test_fml_is_another_name_of_it():
    assert resolved("FML(temperature=2) + fine_tune") == resolved("feddml(temperature=2) + fine_tune")
    assert methods.method("fml").name == "feddml"
    assert methods.label("fml") == "FedDML" and "fml" not in methods.names()
    with pytest.raises(UserError, match="fml is a method or part already"):
        register("fml", lambda: methods.method("fedavg"))


def taught(student, teacher, tau):
    """tau^2 KL(teacher || student), a sum over classes and a mean over rows."""
    p, q = (torch.softmax(z / tau, 1) for z in (teacher.detach(), student))
    return tau**2 * (p * (p.log() - q.log())).sum(1).mean()


@ENGINES
@pytest.mark.parametrize(("a", "b", "tau"), [(0.25, 0.75, 1.0), (0.75, 0.5, 4.0)])
def test_reference_of_three_rounds_agrees(lab, plain, a, b, tau, engine):
    """L_g = a CE + (1 - a) KL(p_p || p_g) and L_p = b CE + (1 - b) KL(p_g || p_p), stepped together."""
    trace = lab.run(
        f"feddml(shared_weight={a}, own_weight={b}, temperature={tau})",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check = plain(trace)
    own = {client: trace.slot(PART, client, 0)["params"] for client in range(2)}

    def local(w, client, t):
        def loss(v, x, y):
            shared = check.forward(v, x)[1]
            private = check.forward({n: v[f"own {n}"] for n in w}, x)[1]
            of_shared = a * F.cross_entropy(shared, y) + (1 - a) * taught(shared, private, tau)
            of_private = b * F.cross_entropy(private, y) + (1 - b) * taught(private, shared, tau)
            return of_shared + of_private

        both = {**w, **{f"own {n}": p for n, p in own[client].items()}}
        both = check.sgd(both, check.batches(client, t, check.steps(client, 1)), loss)
        own[client] = {n: both[f"own {n}"] for n in w}
        return {n: both[n] for n in w}

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        lab.close(trace.slot(PART, client, 3)["params"], own[client])
