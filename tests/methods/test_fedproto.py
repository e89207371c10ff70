"""FedProto (Tan et al., AAAI 2022): clients share the mean feature of each class and nothing else."""

import pytest
import torch

from idiolect.core import broadcast
from idiolect.federation import select

PART, OWN = "class_prototypes", "private_layers"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
NETS = pytest.mark.parametrize("net", ["mlp", "bn"])
SIZES = (9, 6, 4)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round; classes (0, 1), (1, 2, 3) and (0, 3)."""
    return {"federation": lab.federation(SIZES), "participation_rate": 0.7}


def prototypes(trace, t):
    return trace.servers[t]["slots"][PART]["prototypes"]


@ENGINES
@NETS
def test_weight_zero_is_exactly_local(lab, three, net, engine):
    settings = {"net": net, "engine": engine, "weight_decay": 0.01, **three}
    local, trace = lab.run("local", **settings), lab.run("fedproto(weight=0)", **settings)
    for t in range(4):
        for client in range(3):
            lab.same(trace.slot(OWN, client, t), local.slot(OWN, client, t))
            lab.same(trace.privates[t][client]["buffers"], local.privates[t][client]["buffers"])


@ENGINES
@NETS
def test_first_round_is_exactly_local_and_the_second_is_not(lab, net, engine):
    settings = {"net": net, "engine": engine, "rounds": 2, "federation": lab.federation(SIZES)}
    local, trace = lab.run("local", **settings), lab.run("fedproto(weight=3)", **settings)
    for client in range(3):
        lab.same(trace.slot(OWN, client, 1), local.slot(OWN, client, 1))
        assert lab.differ(trace.slot(OWN, client, 2), local.slot(OWN, client, 2))


@ENGINES
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_prototypes_are_means_over_all_samples_of_a_class_whatever_the_weighting(
    lab, plain, three, weighting, engine
):
    trace = lab.run("fedproto", weighting=weighting, engine=engine, rounds=1, **three)
    check, features, labels = plain(trace), [], []
    for client in select(0.7, 3, seed=0, round=0):
        x, y = check.rows(client, "train")
        features.append(check.forward(trace.slot(OWN, client, 1), x)[0])
        labels.append(y)
    h, y = torch.cat(features), torch.cat(labels)
    for c in range(4):
        if (y == c).any():
            lab.close(prototypes(trace, 1)[c], h[y == c].mean(0))
        else:
            assert prototypes(trace, 1)[c].isnan().all()


def test_prototype_of_a_class_that_nobody_saw_this_round_stays(lab):
    """One client a round; what its classes do not touch is kept bit for bit."""
    trace = lab.run("fedproto", participation_rate=0.2, rounds=4)
    kept = 0
    for t in range(4):
        (client,) = select(0.2, 5, seed=0, round=t)
        seen = lab.federation().class_counts()[client] > 0
        for c in range(4):
            before, after = prototypes(trace, t)[c], prototypes(trace, t + 1)[c]
            if seen[c]:
                assert lab.differ(after, before) and after.isfinite().all()
            else:
                torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
                kept += int(before.isfinite().all())
    assert kept > 0


def test_upload_counts_rows_of_observed_classes_and_their_counts_alone(lab, three):
    trace = lab.run("fedproto", **three)
    table = trace.simulation.rounds.table().to_pydict()
    held = [2, 3, 2]  # classes of each client
    for t in range(3):
        cohort = select(0.7, 3, seed=0, round=t)
        assert table["bytes_up"][t] == 4 * sum(held[c] for c in cohort) * (5 + 1)
        assert table["bytes_down"][t] == 4 * len(cohort) * 4 * 5
    assert len(set(table["bytes_up"])) > 1


def test_server_holds_no_parameter_and_no_model_is_global(lab, three):
    trace = lab.run("fedproto", net="bn", **three)
    assert all(server["params"] == {} and server["buffers"] == {} for server in trace.servers)
    assert all("global" not in found for found in trace.logits())


def test_distance_over_dimensions_is_a_mean_or_a_sum(lab, three):
    """Five dimensions: a sum with weight 1 is a mean with weight 5."""
    total, mean = (lab.run(f"fedproto({o})", **three) for o in ("weight=1, reduction=sum", "weight=5"))
    assert lab.differ(mean.slot(OWN, 0, 3), lab.run("fedproto(weight=1)", **three).slot(OWN, 0, 3))
    for client in range(3):
        lab.close(total.slot(OWN, client, 3), mean.slot(OWN, client, 3))


def nearest(h, prototypes):
    """By example the class of the nearest prototype there is, looked at one by one."""
    found = []
    for row in h:
        gaps = {c: float((row - p).norm()) for c, p in enumerate(prototypes) if not p.isnan().any()}
        found.append(min(gaps, key=gaps.get))
    return torch.tensor(found)


@ENGINES
@NETS
def test_nearest_shared_prototype_predicts_beside_the_classifier(lab, plain, net, engine):
    """Nobody holds class 3, so that it has no prototype and is never predicted."""
    federation = lab.federation((9, 6, 4), held=((0, 1), (1, 2), (0, 2)))
    trace = lab.run("fedproto", rounds=2, net=net, engine=engine, federation=federation)
    assert prototypes(trace, 2)[3].isnan().all() and prototypes(trace, 2)[:3].isfinite().all()
    check = plain(trace)
    for client, found in enumerate(trace.logits()):
        logits = found["nearest-prototype"]
        assert set(found) == {"composed", "nearest-prototype"} and logits.isfinite().all()
        assert 3 not in logits.argmax(1)
        if net == "mlp":
            h, z = check.forward(trace.slot(OWN, client, 2), check.rows(client, "test")[0])
            assert torch.equal(logits.argmax(1), nearest(h, prototypes(trace, 2)))
            lab.close(found["composed"], z)
    assert trace.simulation.setting.method.headline == "composed"


def test_nearest_prototype_after_local_training_is_of_the_trained_features(lab, plain, three):
    trace = lab.run("fedproto(weight=0)", **three)
    check = plain(trace)
    for client, found in enumerate(lab.after_local(trace)):
        batches = check.batches(client, 3, check.steps(client, 1))
        w = check.sgd(trace.slot(OWN, client, 3), batches, check.cross_entropy)
        h, _ = check.forward(w, check.rows(client, "test")[0])
        known = prototypes(trace, 3).isfinite().all(1)
        gaps = ((h[:, None] - prototypes(trace, 3)[known]) ** 2).sum(-1)
        lab.close(found["nearest-prototype"][:, known], -gaps, rtol=1e-8)


def test_classifier_predicts_until_there_are_prototypes(lab, three):
    simulation = lab.start("fedproto", **three)
    rows = simulation.store.rows(range(3))
    for found in simulation.engine.evaluate(
        simulation.setting.program(0), broadcast(simulation.setting.method, simulation.server), rows, "test"
    ):
        lab.same(found["nearest-prototype"], found["composed"])


@ENGINES
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reference_of_three_rounds_agrees(lab, plain, three, reduction, engine):
    """A class without a shared prototype adds nothing, but its rows count in the mean over the batch."""
    trace = lab.run(f"fedproto(weight=0.7, reduction={reduction})", weight_decay=0.01, engine=engine, **three)
    check = plain(trace)
    models = {client: trace.slot(OWN, client, 0) for client in range(3)}
    shared = {}  # class -> prototype

    def loss(v, x, y):
        h = check.forward(v, x)[0]
        pulls = [((h[i] - shared[int(c)]) ** 2) for i, c in enumerate(y) if int(c) in shared]
        reduced = sum((p.mean() if reduction == "mean" else p.sum()) for p in pulls) / len(y)
        return check.cross_entropy(v, x, y) + 0.7 * reduced

    for t in range(3):
        sums, counts = torch.zeros(4, 5).double(), torch.zeros(4).double()
        for client in select(0.7, 3, seed=0, round=t):
            batches = check.batches(client, t, check.steps(client, 1))
            models[client] = check.sgd(models[client], batches, loss)
            x, y = check.rows(client, "train")
            for h, c in zip(check.forward(models[client], x)[0], y, strict=True):
                sums[c] += h
                counts[c] += 1
        shared |= {c: sums[c] / counts[c] for c in range(4) if counts[c] > 0}
        for c in range(4):
            expected = shared.get(c, torch.full((5,), float("nan")).double())
            torch.testing.assert_close(
                prototypes(trace, t + 1)[c], expected, rtol=1e-9, atol=1e-12, equal_nan=True
            )
    for client in range(3):
        lab.close(trace.slot(OWN, client, 3), models[client])
