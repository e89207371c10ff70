"""FedFusion (Yao et al., ICIP 2019): features of the received extractor fused with those of the local one."""

import pytest
import torch
import torch.nn.functional as F

from idiolect.core import broadcast
from idiolect.engines import server_logits

PART = "feature_fusion"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
OPERATORS = pytest.mark.parametrize("operator", ["multi", "single", "conv"])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round, with three, two and one batch."""
    return {"federation": lab.federation((9, 6, 4)), "participation_rate": 0.7, "rounds": 2}


def fused(operator, fusion, received, local):
    if operator == "conv":
        d = received.shape[1]
        return received @ fusion[:, :d].T + local @ fusion[:, d:].T
    return fusion * received + (1 - fusion) * local


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
@OPERATORS
def test_fusion_fixed_at_zero_is_exactly_fedavg(lab, three, operator, net, engine):
    settings = {"net": net, "engine": engine, **three}
    fedavg = lab.run("fedavg", **settings)
    trace = lab.run(f"fedfu(operator={operator}, initial_share=0, fixed=True)", **settings)
    for t in range(3):
        lab.same(trace.params[t], fedavg.params[t])
        lab.same(trace.servers[t]["buffers"], fedavg.servers[t]["buffers"])


@OPERATORS
def test_fusion_starts_at_the_given_share_and_learns(lab, operator):
    trace = lab.run(f"fedfu(operator={operator}, initial_share=0.25)")
    shape = {"multi": (5,), "single": (), "conv": (5, 10)}[operator]
    first, last = (trace.servers[t]["slots"][PART]["fusion"] for t in (0, 3))
    assert first.shape == last.shape == shape
    h = torch.randn(2, 3, 5, dtype=torch.float64)
    lab.close(fused(operator, first, *h), 0.25 * h[0] + 0.75 * h[1])
    assert lab.differ(last, first)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@OPERATORS
def test_fixed_fusion_stays_as_it_starts(lab, operator, weight_decay):
    """Two clients of equal weight: the mean of two equal tensors is that tensor."""
    trace = lab.run(
        f"fedfu(operator={operator}, initial_share=0.25, fixed=True)",
        weight_decay=weight_decay,
        federation=lab.federation(SIZES),
    )
    lab.same(trace.servers[3]["slots"], trace.servers[0]["slots"])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("operator", ["multi", "single"])
def test_fusion_of_equal_extractors_is_the_identity_for_any_share(lab, operator, share):
    """At the start of a round both extractors are the received one."""
    settings = {"rounds": 1, "batch_size": 1000}
    trace = lab.run(f"fedfu(operator={operator}, initial_share={share})", **settings)
    fedavg = lab.run("fedavg", **settings)
    assert trace.simulation.latest["loss"] == pytest.approx(fedavg.simulation.latest["loss"], rel=1e-12)
    lab.close(trace.params[1][HEAD], fedavg.params[1][HEAD])  # the classifier's gradient sees h alone


def test_extractor_learns_only_through_its_own_share(lab):
    """One step: d E_l is (1 - lam) of FedAvg's, because the received extractor is frozen."""
    settings = {"rounds": 1, "batch_size": 1000}
    trace = lab.run("fedfu(operator=single, initial_share=0.25)", **settings)
    fedavg = lab.run("fedavg", **settings)
    name = "units.0.linear.weight"
    step = fedavg.params[1][name] - fedavg.params[0][name]
    lab.close(trace.params[1][name] - trace.params[0][name], 0.75 * step, rtol=1e-7)
    assert step.abs().max() > 1e-3


@ENGINES
@OPERATORS
def test_global_evaluation_uses_the_fused_model_with_the_average_in_both_roles(lab, plain, operator, engine):
    trace = lab.run(f"fedfu(operator={operator})", local_epochs=2, engine=engine)
    check, w = plain(trace), trace.params[3]
    fusion = trace.servers[3]["slots"][PART]["fusion"]

    def expected(x):
        h = check.forward(w, x)[0]
        return fused(operator, fusion, h, h) @ w[HEAD].T

    for client, found in enumerate(trace.logits()):
        x, _ = check.rows(client, "test")
        lab.close(found["global"], expected(x))
        assert lab.differ(found["global"], check.forward(w, x)[1]) == (operator == "conv")
    simulation = trace.simulation
    x = torch.from_numpy(simulation.setting.federation.server_x)
    lab.close(server_logits(simulation.setting.program(3), simulation.server, x), expected(x))


@ENGINES
@OPERATORS
def test_model_after_local_training_is_fused_with_the_extractor_of_its_round(lab, plain, operator, engine):
    simulation = lab.start(f"fedfu(operator={operator})", engine=engine, local_epochs=2)
    simulation.advance()
    setting, received = simulation.setting, simulation.server["params"]
    check = plain(lab.run("fedavg", rounds=1))
    outcomes = simulation.engine.round(
        setting.program(1),
        broadcast(setting.method, simulation.server),
        simulation.store.rows(range(5)),
        True,
    )
    for client, outcome in enumerate(outcomes):
        x, _ = check.rows(client, "test")
        trained, fusion = outcome.messages["average"][0], outcome.messages[PART][0]["fusion"]
        h = fused(operator, fusion, check.forward(received, x)[0], check.forward(trained, x)[0])
        lab.close(outcome.after["after-local"], h @ trained[HEAD].T)


@ENGINES
@OPERATORS
def test_reference_of_three_rounds_agrees(lab, plain, operator, engine):
    """Extractor, classifier and fusion trained together and averaged together."""
    trace = lab.run(
        f"fedfu(operator={operator}, initial_share=0.4)",
        weight_decay=0.01,
        weighting="samples",
        federation=lab.federation(SIZES),
        engine=engine,
    )
    check = plain(trace)

    def local(w, client, t):
        def loss(v, x, y):
            received = check.forward(w, x)[0].detach()
            h = fused(operator, v["fusion"], received, check.forward(v, x)[0])
            return F.cross_entropy(h @ v[HEAD].T, y)

        return check.sgd(w, check.batches(client, t, check.steps(client, 1)), loss)

    ones = torch.eye(5, dtype=torch.float64)
    first = {
        "multi": 0.4 * ones.sum(0),
        "single": 0.4 * ones[0, 0],
        "conv": torch.cat([0.4 * ones, 0.6 * ones], 1),
    }
    start = {**trace.params[0], "fusion": first[operator]}
    path = check.federated(start, local)
    for t in range(4):
        fusion = trace.servers[t]["slots"][PART]["fusion"]
        lab.close({**trace.params[t], "fusion": fusion}, path[t])
