"""pFedSim (Tan et al. 2023): FedAvg, then extractors mixed by how alike the classifiers are."""

import math

import pytest
import torch
import torch.nn.functional as F

from idiolect.core import chain
from idiolect.errors import UserError
from idiolect.parts import private_layers, similarity_mixture
from idiolect.parts.similarity_mixture import classifier_similarity

PART = "similarity_mixture"
HEAD = "units.2.linear.weight"
TRAINING = {"participation_rate": 0.7, "weight_decay": 0.01, "weighting": "samples"}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_both_phases_agrees(lab, plain, engine):
    """Two rounds of FedAvg and three of mixtures, client by client, written out from the paper."""
    trace = lab.run("pfedsim(generalisation=0.4)", engine=engine, rounds=5, **TRAINING)
    check, own, mixed_some = plain(trace), {}, False

    def similarity(one, other):
        return max(0.0, float(F.cosine_similarity(one[HEAD], other[HEAD]).mean()))

    def local(shared, k, t):
        start = shared
        if k in own:
            nonlocal mixed_some
            phi = {j: -math.log(1 - (0.9999 if j == k else similarity(own[k], own[j]))) for j in own}
            total, mixed_some = sum(phi.values()), mixed_some or len(phi) > 2
            start = {n: sum(phi[j] * own[j][n] for j in own) / total for n in shared} | {HEAD: own[k][HEAD]}
        trained = check.sgd(start, check.batches(k, t, check.steps(k, 1)), check.cross_entropy)
        if t >= 2:
            later[t, k] = trained
        return trained

    later: dict = {}
    path = [trace.params[0]]
    for t in range(5):
        cohort = trace.simulation.setting.cohort(t)
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        uploads = [local(path[-1], k, t) for k in cohort]
        own |= {k: later[t, k] for k in cohort if t >= 2}  # the server answers after the round
        path.append(
            {n: sum(s * u[n] for s, u in zip(sizes, uploads, strict=True)) / sum(sizes) for n in path[-1]}
        )
    lab.close(trace.params, path)
    assert mixed_some
    for k, found in enumerate(trace.logits()):
        x, _ = check.rows(k, "test")
        lab.close(found["composed"], check.forward(own.get(k, path[-1]), x)[1])


def test_generalisation_alone_is_fedavg(lab):
    a, b = (lab.run(m, **TRAINING) for m in ("pfedsim(generalisation=1)", "fedavg"))
    lab.same(a.params, b.params)
    lab.same([found["global"] for found in a.logits()], [found["global"] for found in b.logits()])


def test_a_client_without_a_model_of_its_own_is_sent_the_shared_one(lab):
    trace = lab.run("pfedsim(generalisation=0)", rounds=1, participation_rate=0.4)
    simulation = trace.simulation
    stranger = next(k for k in range(5) if k not in simulation.setting.cohort(0))
    sent = simulation.participants.downloads.send(
        simulation.setting.program(1), simulation.server, [stranger]
    )
    lab.same(
        {n: leaf[0] for n, leaf in sent.own[PART]["params"].items()},
        dict(simulation.server["params"]),
    )
    found = trace.logits()[stranger]
    lab.same(found["composed"], found["global"])


def test_similarity_is_the_mean_over_classes_and_never_negative():
    ours = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    theirs = torch.tensor([[[3.0, 0.0], [1.0, 0.0]], [[-1.0, 0.0], [0.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    torch.testing.assert_close(classifier_similarity(ours, theirs), torch.tensor([[0.5, 0.0, 0.9999]]))


def test_it_needs_the_whole_model_on_the_server():
    with pytest.raises(UserError, match="needs every layer"):
        chain(similarity_mixture(), private_layers())
