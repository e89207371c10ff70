"""FedCAC (Wu et al., ICCV 2023): which parameters are critical, and which clients share them."""

import numpy as np
import pytest
import torch

from idiolect.parts.critical_parameters import critical, overlaps

PART = "critical_parameters"
SHARE, ROUNDS = 0.4, 6
TRAINING = {"rounds": 3, "participation_rate": 0.7, "weight_decay": 0.01, "weighting": "samples"}


def sent_to(trace, clients):
    """What the server would send these clients after the last round."""
    simulation = trace.simulation
    program = simulation.setting.program(simulation.round)
    sent = simulation.participants.downloads.send(program, simulation.server, clients)
    return sent.own[PART]["params"]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Sensitivities, masks, overlaps, threshold and means written out from the paper, element by element."""
    trace = lab.run(f"fedcac(share={SHARE}, rounds={ROUNDS})", engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    shared, uploads, masks, threshold = trace.params[0], {}, {}, 1.0
    together = set()

    def overlap(i, j):
        pairs = zip(masks[i].values(), masks[j].values(), strict=True)
        return 1 - sum(int((a != b).sum()) for a, b in pairs) / (
            2 * sum(int(m.sum()) for m in masks[i].values())
        )

    def download(i):
        if i not in uploads:
            return shared
        friends = [j for j in sorted(uploads) if j == i or overlap(i, j) >= threshold]
        together.add(len(friends))
        mean = {name: sum(uploads[j][name] for j in friends) / len(friends) for name in shared}
        return {name: torch.where(masks[i][name], mean[name], shared[name]) for name in shared}

    for t in range(3):
        cohort, new = setting.cohort(t), {}
        for i in cohort:
            begun = download(i)
            new[i] = check.sgd(begun, check.batches(i, t, check.steps(i, 1)), check.cross_entropy)
            masks[i] = {}
            for name in begun:
                sensitivity = np.abs(((new[i][name] - begun[name]) * new[i][name]).numpy())
                least = np.sort(sensitivity.ravel())[::-1][int(SHARE * sensitivity.size) - 1]
                masks[i][name] = torch.from_numpy((sensitivity >= least) & (sensitivity > 0))
        uploads |= new
        sizes = {i: len(setting.federation.clients[i].train) for i in cohort}
        shared = {name: sum(sizes[i] * new[i][name] for i in cohort) / sum(sizes.values()) for name in shared}
        found = [overlap(i, j) for i in cohort for j in cohort if i != j]
        threshold = np.mean(found) + (t + 2) / ROUNDS * (max(found) - np.mean(found))
        lab.close(trace.params[t + 1], shared)
        assert trace.servers[t + 1]["slots"][PART]["threshold"].item() == pytest.approx(threshold, rel=1e-9)
    everyone = range(setting.federation.population)
    sent = sent_to(trace, everyone)
    for i in everyone:
        lab.close({name: leaf[i] for name, leaf in sent.items()}, download(i))
    assert len(together) > 1, "some share with nobody and some with others"


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_without_critical_parameters_it_is_fedavg(lab, engine):
    ours, theirs = (lab.run(method, engine=engine, **TRAINING) for method in ("fedcac(share=0)", "fedavg"))
    lab.same(ours.params, theirs.params)


def test_late_and_wholly_critical_it_is_training_alone(lab):
    """After beta rounds nobody is like anybody, so that a client is sent back its own critical parameters."""
    alone = lab.run("fedcac(share=1, rounds=0.01)", rounds=2)
    uploads = alone.simulation.participants.downloads.kept.of(PART).rows(range(5))
    sent = sent_to(alone, range(5))
    for name, leaf in sent.items():
        moved = uploads["critical"][name] > 0
        assert moved.float().mean() > 0.5
        lab.same(leaf[moved], uploads["model"][name][moved])
        lab.same(leaf[~moved], alone.params[-1][name].expand_as(leaf)[~moved])


def test_critical_are_the_largest_products_of_a_tensor():
    received = torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.0, 5.0]])
    trained = torch.tensor([[2.0, 2.0], [3.5, -4.5], [0.1, 5.1]])  # products 2, 0, 1.75, 2.25, 0.01, 0.51
    expected = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(critical(received, trained, 0.5), expected)
    torch.testing.assert_close(critical(received, trained, 1.0), (trained != received).float())
    assert not critical(received, trained, 0.1).any(), "less than one element"


def test_overlap_counts_the_critical_parameters_that_differ():
    ours = torch.tensor([[1.0, 1, 0, 0], [1, 0, 0, 0]])
    theirs = torch.tensor([[1.0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]])
    torch.testing.assert_close(overlaps(ours, theirs), torch.tensor([[0.5, 1.0, 0.0], [0.5, 0.5, -0.5]]))
