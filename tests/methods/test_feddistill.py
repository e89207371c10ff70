"""FD (Jeong et al. 2018): clients share their mean prediction for each label; the others' mean teaches."""

import pytest
import torch

from idiolect.federation import select
from idiolect.methods import method

PART, OWN = "label_distillation", "private_layers"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
SIZES = (9, 6, 4)


@pytest.fixture(scope="module")
def three(lab):
    """Two of three clients in each round; classes (0, 1), (1, 2, 3) and (0, 3)."""
    return {"federation": lab.federation(SIZES), "participation_rate": 0.7}


def test_fd_is_another_name():
    assert method("fd(weight=0.5)").name == "feddistill"


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_weight_zero_and_the_first_round_are_exactly_local(lab, three, net, engine):
    settings = {"net": net, "engine": engine, **three}
    local, alone = lab.run("local", **settings), lab.run("feddistill(weight=0)", **settings)
    taught = lab.run("feddistill(weight=2)", **settings)
    for client in range(3):
        for t in range(4):
            lab.same(alone.slot(OWN, client, t), local.slot(OWN, client, t))
            lab.same(alone.privates[t][client]["buffers"], local.privates[t][client]["buffers"])
        lab.same(taught.slot(OWN, client, 1), local.slot(OWN, client, 1))
        assert lab.differ(taught.slot(OWN, client, 3), local.slot(OWN, client, 3))


def test_client_that_shares_no_label_with_another_is_exactly_local(lab):
    """Its own mean is no teacher of its own."""
    settings = {"federation": lab.federation(SIZES, held=((0, 1), (2,), (2, 3)))}
    local, taught = lab.run("local", **settings), lab.run("feddistill(weight=2)", **settings)
    lab.close(taught.slot(OWN, 0, 3), local.slot(OWN, 0, 3), rtol=1e-12)
    assert lab.differ(taught.slot(OWN, 1, 3), local.slot(OWN, 1, 3))


def test_upload_counts_rows_of_labels_that_are_held(lab, three):
    trace = lab.run("feddistill", **three)
    held = [2, 3, 2]
    for t, row in enumerate(trace.simulation.rounds.table().to_pylist()):
        cohort = select(0.7, 3, seed=0, round=t)
        assert row["bytes_up"] == 4 * sum(held[c] for c in cohort) * (4 + 1)
        assert row["bytes_down"] == 4 * len(cohort) * 4 * (4 + 1)


@ENGINES
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_reference_of_four_rounds_agrees(lab, plain, three, weighting, engine):
    """The teacher is the mean of the others' mean probabilities, in the last round with somebody who held the label."""
    settings = {"engine": engine, "weighting": weighting, "momentum": 0.5, "rounds": 4, **three}
    trace = lab.run("feddistill(weight=0.7)", **settings)
    check, told = plain(trace), {}  # label -> {client: mean prediction}
    models = {k: trace.slot(OWN, k, 0) for k in range(3)}
    for t in range(4):
        fresh = {}
        for client in select(0.7, 3, seed=0, round=t):

            def loss(v, x, y, client=client, told=told):
                logits, total = check.forward(v, x)[1], check.cross_entropy(v, x, y)
                for z, c in zip(logits, y.tolist(), strict=True):
                    others = [mean for other, mean in told.get(c, {}).items() if other != client]
                    if others:
                        teacher = sum(others) / len(others)
                        total = total - 0.7 * (teacher * torch.log_softmax(z, 0)).sum() / len(y)
                return total

            models[client] = check.sgd(models[client], check.batches(client, t, check.steps(client, 1)), loss)
            x, y = check.rows(client, "train")
            predicted = torch.softmax(check.forward(models[client], x)[1], 1)
            for c in y.unique().tolist():
                fresh.setdefault(c, {})[client] = predicted[y == c].mean(0)
        told |= fresh
        slot = trace.servers[t + 1]["slots"][PART]
        for c, means in told.items():
            lab.close(slot["sum"][c], sum(means.values()))
    assert told.keys() - fresh.keys(), "a label that nobody held in the last round keeps its mean"
    for client, found in enumerate(trace.logits()):
        lab.close(trace.slot(OWN, client, 4), models[client])
        lab.close(found["composed"], check.forward(models[client], check.rows(client, "test")[0])[1])
