"""FedROD (Chen and Chao, ICLR 2022, linear): a class-balanced shared model and a private head beside it."""

import pytest
import torch
import torch.nn.functional as F

PART = "personal_head"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6, 4)


@pytest.fixture(scope="module")
def three(lab):
    """Every client lacks a class."""
    return {"federation": lab.federation(SIZES), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
@pytest.mark.parametrize("prior", ["additive", "multiplicative"])
def test_gamma_zero_makes_the_shared_path_exactly_fedavg(lab, three, prior, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    fedavg, trace = lab.run("fedavg", **settings), lab.run(f"fedrod(gamma=0, prior={prior})", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])
    assert lab.differ(trace.slot(PART, 0, 2), trace.slot(PART, 0, 0))


@ENGINES
def test_private_head_never_reaches_the_shared_path(lab, three, engine):
    """Another private head, the same shared model: the private loss has no gradient there."""
    zero, copy, fresh = (
        lab.run(f"fedrod(head_init={i})", engine=engine, **three) for i in ("zero", "copy", "fresh")
    )
    lab.same(copy.params, zero.params)
    lab.same(fresh.params, zero.params)
    assert lab.differ(fresh.slot(PART, 0, 2), zero.slot(PART, 0, 2))


def test_private_head_starts_at_zero_or_at_the_shared_head_or_at_random(lab, three):
    zero, copy, fresh = (lab.run(f"fedrod(head_init={i})", **three) for i in ("zero", "copy", "fresh"))
    for client in range(3):
        assert not zero.slot(PART, client, 0)["weight"].any()
        lab.same(copy.slot(PART, client, 0)["weight"], copy.params[0][HEAD])
        assert lab.differ(fresh.slot(PART, client, 0), copy.slot(PART, client, 0))
    assert lab.differ(fresh.slot(PART, 1, 0), fresh.slot(PART, 0, 0))


def test_private_head_at_zero_predicts_exactly_as_the_shared_model(lab, three):
    simulation = lab.start("fedrod", **three)
    rows = simulation.store.rows(range(3))
    evaluate = simulation.engine.evaluate
    for found in evaluate(simulation.setting.program(0), simulation.server, rows, "test"):
        lab.same(found["composed"], found["global"])
    simulation.advance()
    client = min(simulation.selected)
    row = {client: simulation.store.rows([client])[client]}
    found = evaluate(simulation.setting.program(1), simulation.server, row, "test")[0]
    assert lab.differ(found["composed"], found["global"])


@ENGINES
@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_missing_class_gives_no_nan_and_its_row_no_gradient(lab, gamma, engine):
    """Padding repeats the pool's first row, whose class 0 is missing on client 1: its loss alone is infinite."""
    federation = lab.federation((9, 6), held=((0,), (1, 2)))
    trace = lab.run(f"fedrod(gamma={gamma})", federation=federation, engine=engine)
    assert int(federation.y[0]) == 0
    for leaf in trace.params[3].values():
        assert leaf.isfinite().all()
    for client in range(2):
        assert trace.slot(PART, client, 3)["weight"].isfinite().all()
    first, last = trace.params[0][HEAD], trace.params[3][HEAD]
    lab.same(last[3], first[3])  # a class that nobody holds
    lab.same(last[0], first[0])  # one held alone: without rivals it cannot lose
    assert lab.differ(last[1], first[1])


def test_missing_class_takes_part_in_the_softmax_at_gamma_zero(lab):
    """0^0 = 1: its row is pushed down as in FedAvg."""
    trace = lab.run("fedrod(gamma=0)", federation=lab.federation((9, 6), held=((0,), (1, 2))))
    assert lab.differ(trace.params[3][HEAD][3], trace.params[0][HEAD][3])


def test_equal_counts_of_all_classes_make_the_prior_vanish(lab):
    """A constant beside every logit."""
    federation = lab.federation((8, 8), held=[(0, 1, 2, 3)] * 2)
    assert {int(n) for counts in federation.class_counts() for n in counts} == {2}
    lab.close(
        lab.run("fedrod(gamma=1)", federation=federation).params,
        lab.run("fedavg", federation=federation).params,
    )


def test_prior_takes_class_counts_of_the_whole_training_split(lab, plain):
    """Balanced softmax: the share of a class is weighted with n_c^gamma."""
    trace = lab.run("fedrod(gamma=0.5)", federation=lab.federation((9,)), rounds=1, batch_size=1000)
    check = plain(trace)
    x, y = check.rows(0, "train")
    z = check.forward(trace.params[0], x)[1]
    weighted = check.counts(0) ** 0.5 * z.exp()
    balanced = -(weighted[torch.arange(9), y] / weighted.sum(1)).log().mean()
    plainly = F.cross_entropy(z, y)  # the private head starts at zero
    assert trace.simulation.latest["loss"] == pytest.approx(float(balanced + plainly), rel=1e-9)
    assert abs(float(balanced - plainly)) > 1e-2


@ENGINES
def test_composed_predictor_adds_the_private_logits_to_the_shared_ones(lab, plain, three, engine):
    trace = lab.run("fedrod", engine=engine, **three)
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        h, z = check.forward(trace.params[2], check.rows(client, "test")[0])
        lab.close(found["composed"], z + h @ trace.slot(PART, client, 2)["weight"].T)
        lab.close(found["global"], z)


@ENGINES
def test_heads_after_local_training_read_the_features_that_were_trained(lab, plain, three, engine):
    trace = lab.run("fedrod", engine=engine, **three)
    check = plain(trace)
    for client, found in enumerate(lab.after_local(trace)):
        w, head = trained_apart(check, trace.params[2], trace.slot(PART, client, 2)["weight"], client, 2)
        x, _ = check.rows(client, "test")
        h, z = check.forward(w, x)
        lab.close(found["composed"], z + h @ head.T)
        lab.close(found["after-local"], z)
        received_h, received_z = check.forward(trace.params[2], x)
        assert lab.differ(found["composed"], received_z + received_h @ head.T)
        lab.close(found["global"], received_z)


def trained_apart(check, w, head, client, t, gamma=1.0, prior="additive"):
    """The shared model first, without any private head; then the head on what the shared path went through."""
    n, seen = check.counts(client), []

    def balanced(v, x, y):
        h, z = check.forward(v, x)
        seen.append((h.detach(), z.detach(), y))
        if prior == "multiplicative":
            return F.cross_entropy(z * (4 * n / n.sum()) ** gamma, y)
        held = n > 0  # classes without a sample leave the softmax
        position = held.cumsum(0) - 1
        return F.cross_entropy((z + gamma * n.log())[:, held], position[y])

    def private(v, number, _):
        h, z, y = seen[number]
        return F.cross_entropy(z + h @ v["head"].T, y)

    w = check.sgd(w, check.batches(client, t, check.steps(client, 1)), balanced)
    return w, check.sgd({"head": head}, ((i, None) for i in range(len(seen))), private)["head"]


@ENGINES
@pytest.mark.parametrize(("gamma", "prior"), [(1.0, "additive"), (0.5, "additive"), (0.5, "multiplicative")])
def test_reference_of_two_rounds_agrees(lab, plain, three, gamma, prior, engine):
    trace = lab.run(
        f"fedrod(gamma={gamma}, prior={prior})",
        weight_decay=0.01,
        weighting="samples",
        engine=engine,
        **three,
    )
    check = plain(trace)
    heads = {client: torch.zeros(4, 5).double() for client in range(3)}

    def local(w, client, t):
        w, heads[client] = trained_apart(check, w, heads[client], client, t, gamma, prior)
        return w

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(3):
        lab.close(trace.slot(PART, client, 2)["weight"], heads[client])


@ENGINES
@pytest.mark.parametrize("form", ["kl", "soft_cross_entropy", "teacher_only"])
@pytest.mark.parametrize("teacher", ["received_teacher", "inherited_teacher"])
def test_distillation_sees_no_class_prior_in_either_order(lab, three, teacher, form, engine):
    """With the prior of a class that a client lacks, log 0, the divergence from any teacher would be infinite."""
    weight = "weight" if teacher == "received_teacher" else "transfer_weight"
    term = f"{teacher}(transfer=kd, kd_form={form}, {weight}=0.5)"
    one, two, without = (
        lab.run(f"fedavg + {text}", engine=engine, **three)
        for text in (f"{term} + personal_head", f"personal_head + {term}", "personal_head")
    )
    lab.same(one.params, two.params)
    assert all(bool(torch.isfinite(p).all()) for p in one.params[2].values())
    assert lab.differ(one.params[2], without.params[2])
