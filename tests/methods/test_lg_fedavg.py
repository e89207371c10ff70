"""LG-FedAvg (Liang et al. 2020): the last units are averaged, what lies below them stays with the client."""

import pytest

from idiolect.methods import method

PART = "private_layers"
HEAD = ["units.2.linear.weight"]
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


@ENGINES
@NETS
def test_everything_shared_is_exactly_fedavg(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run("lg_fedavg(count=3)", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


@ENGINES
@NETS
def test_nothing_shared_is_exactly_local(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    local = lab.run("local", **settings)
    trace = lab.run("lg_fedavg(count=0)", **settings)
    for t in range(3):
        assert trace.servers[t]["params"] == {}
        for client in range(3):
            lab.same(trace.privates[t][client], local.privates[t][client])


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@NETS
def test_split_is_the_complement_of_fedpers(lab, net, count):
    structure = lab.start("fedavg", net=net).setting.task.structure
    fedper, lg = method(f"fedper(count={count})"), method(f"lg_fedavg(count={count})")
    for name in (*structure.params, *structure.buffers):
        assert fedper.is_private(name, structure) != lg.is_private(name, structure)
    private = {name for name in structure.params if lg.is_private(name, structure)}
    assert private == {name for name in structure.params if structure.unit_of[name] < 3 - count}


@pytest.mark.parametrize("count", [1, 2])
def test_server_holds_exactly_what_fedper_keeps_private(lab, count):
    fedper, trace = lab.run(f"fedper(count={count})"), lab.run(f"lg_fedavg(count={count})")
    for t in range(4):
        assert set(trace.params[t]) == set(fedper.slot(PART, 0, t))
        assert set(trace.slot(PART, 0, t)) == set(fedper.params[t])


def test_statistics_of_private_units_stay_private(lab):
    trace = lab.run("lg_fedavg(count=1)", net="bn")
    name = "units.0.normalisation.running_mean"
    assert trace.servers[3]["buffers"] == {}
    assert lab.differ(trace.privates[3][0]["buffers"][name], trace.privates[3][2]["buffers"][name])


def test_bodies_start_from_the_initial_model_or_at_random(lab):
    shared, random = lab.run("lg_fedavg"), lab.run("lg_fedavg(body_init=random)")
    first = lab.run("fedavg").params[0]
    for client in range(5):
        lab.same(shared.slot(PART, client, 0), {n: first[n] for n in first if n not in HEAD})
        assert lab.differ(random.slot(PART, client, 0), shared.slot(PART, client, 0))


def test_composed_predictor_is_the_own_body_under_the_new_head(lab, plain):
    trace = lab.run("lg_fedavg")
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        model = {**trace.slot(PART, client, 3), **trace.params[3]}
        lab.close(found["composed"], check.forward(model, check.rows(client, "test")[0])[1])
        assert "global" not in found


@ENGINES
@pytest.mark.parametrize("count", [1, 2])
def test_reference_of_three_rounds_agrees(lab, plain, count, engine):
    trace = lab.run(
        f"lg_fedavg(count={count}, body_init=random)",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check = plain(trace)
    bodies = {client: trace.slot(PART, client, 0) for client in range(2)}
    assert set(bodies[0]) == {n for n in {**bodies[0], **trace.params[0]} if int(n.split(".")[1]) < 3 - count}

    def local(head, client, t):
        batches = check.batches(client, t, check.steps(client, 1))
        model = check.sgd({**head, **bodies[client]}, batches, check.cross_entropy)
        bodies[client] = {n: model[n] for n in bodies[client]}
        return {n: model[n] for n in head}

    lab.close(trace.params, check.federated(trace.params[0], local))
    for client in range(2):
        lab.close(trace.slot(PART, client, 3), bodies[client])
