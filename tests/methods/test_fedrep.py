"""FedRep (Collins et al., ICML 2021): head with the body frozen, then body with the head frozen."""

from dataclasses import replace

import pytest
import torch

PART = "alternating_layers"
HEAD = ["units.2.linear.weight"]
BLOCK = ["units.1.linear.weight", "units.1.linear.bias"]
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
def test_body_and_its_statistics_never_move_without_body_epochs(lab, net, engine):
    """Two clients of equal weight: the mean of two equal tensors is that tensor."""
    trace = lab.run(
        "fedrep(head_epochs=2, body_epochs=0)", net=net, engine=engine, federation=lab.federation(SIZES)
    )
    for t in range(4):
        lab.same(trace.servers[t], trace.servers[0])
    for client in range(2):
        assert lab.differ(trace.slot(PART, client, 1), trace.slot(PART, client, 0))


def test_head_without_body_epochs_is_a_local_probe(lab):
    """Nothing travels that another client's data could have changed."""
    federation = lab.federation(SIZES)
    x, other = federation.x.copy(), federation.clients[1].train
    x[other] = -2 * x[other]
    settings = {"net": "bn", "local_epochs": 2}
    a = lab.run("fedrep(head_epochs=1, body_epochs=0)", federation=federation, **settings)
    b = lab.run("fedrep(head_epochs=1, body_epochs=0)", federation=replace(federation, x=x), **settings)
    lab.same(a.privates[3][0], b.privates[3][0])
    assert lab.differ(a.privates[3][1], b.privates[3][1])


@ENGINES
@NETS
def test_heads_never_move_without_head_epochs(lab, net, engine):
    trace = lab.run("fedrep(head_epochs=0, body_epochs=1)", net=net, engine=engine)
    for client in range(5):
        lab.same(trace.privates[3][client], trace.privates[0][client])
    assert lab.differ(trace.params[1], trace.params[0])


def test_least_number_of_local_steps_does_not_start_a_stage_without_epochs(lab):
    settings = {"federation": lab.federation(SIZES), "min_local_steps": 5}
    probe = lab.run("fedrep(head_epochs=1, body_epochs=0)", **settings)
    lab.same(probe.params[3], probe.params[0])
    bodies = lab.run("fedrep(head_epochs=0, body_epochs=1)", **settings)
    lab.same(bodies.slot(PART, 0, 3), bodies.slot(PART, 0, 0))


@ENGINES
@NETS
def test_head_that_is_the_whole_network_is_exactly_local(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    local = lab.run("local", **settings)
    trace = lab.run("fedrep(count=3, head_epochs=1, body_epochs=1, head_init=shared)", **settings)
    for t in range(3):
        for client in range(3):
            lab.same(trace.slot(PART, client, t), local.slot("private_layers", client, t))
            lab.same(trace.privates[t][client]["buffers"], local.privates[t][client]["buffers"])


@ENGINES
@NETS
def test_head_that_is_empty_is_exactly_fedavg(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run("fedrep(count=0, head_epochs=1, body_epochs=1)", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


def test_statistics_come_from_the_epochs_on_the_body_alone(lab):
    """One step on the body: what its forward pass finds does not depend on the head."""
    settings = {"net": "bn", "rounds": 1, "batch_size": 1000}
    none, many = (lab.run(f"fedrep(head_epochs={n}, body_epochs=1)", **settings) for n in (0, 3))
    lab.same(many.servers[1]["buffers"], none.servers[1]["buffers"])
    assert lab.differ(many.servers[1]["buffers"], many.servers[0]["buffers"])


def test_head_and_body_do_not_train_jointly_as_in_fedper(lab):
    fedper = lab.run("fedper()")
    trace = lab.run("fedrep(head_epochs=1, body_epochs=1)")
    lab.same(trace.params[0], fedper.params[0])
    assert lab.differ(trace.params[1], fedper.params[1])


def test_server_never_holds_the_head(lab):
    for server in lab.run("fedrep(count=2, head_epochs=1)").servers:
        assert not set(server["params"]) & set(BLOCK + HEAD)


def test_composed_predictor_is_the_new_body_under_the_own_head(lab, plain):
    trace = lab.run("fedrep(head_epochs=1)")
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        model = {**trace.params[3], **trace.slot(PART, client, 3)}
        lab.close(found["composed"], check.forward(model, check.rows(client, "test")[0])[1])
        assert "global" not in found


@ENGINES
@pytest.mark.parametrize(("count", "head_epochs", "body_epochs"), [(1, 2, 1), (2, 1, 2), (1, 1, 0)])
def test_reference_of_three_rounds_agrees(lab, plain, count, head_epochs, body_epochs, engine):
    trace = lab.run(
        f"fedrep(count={count}, head_epochs={head_epochs}, body_epochs={body_epochs})",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check, kept = plain(trace), HEAD if count == 1 else BLOCK + HEAD
    heads = {client: trace.slot(PART, client, 0) for client in range(2)}
    program = trace.simulation.setting.program(0)
    stages = program.method.plan(program.scene, program.clock).before
    stream = {stage.name: stage.stream for stage in stages}  # which shuffle a stage reads

    def local(body, client, t):
        model = {**body, **heads[client]}
        for name, epochs, trained in (
            ("head", head_epochs, lambda n: n in kept),
            ("body", body_epochs, lambda n: n not in kept),
        ):
            batches = check.batches(client, t, check.steps(client, epochs), stream[name])
            model = check.sgd(model, batches, check.cross_entropy, trained=trained)
        heads[client] = {n: model[n] for n in kept}
        return {n: model[n] for n in body}

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        lab.close(trace.slot(PART, client, 3), heads[client])
        assert all(torch.isfinite(leaf).all() for leaf in heads[client].values())
