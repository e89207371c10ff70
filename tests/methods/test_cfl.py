"""CFL (Sattler et al., TNNLS 2021): updates that contradict each other split a cluster of clients in two."""

import itertools

import pytest
import torch

from idiolect.parts.split_clusters import bipartition

PART = "split_clusters"
TRAINING = {"rounds": 4, "local_epochs": 2, "batch_size": 8, "weighting": "samples", "weight_decay": 0.01}


def best_parts(similarity):
    """The parts with the smallest largest similarity across them, by trying all."""
    clients = range(len(similarity))
    found = []
    for size in range(len(similarity) - 1):
        for others in itertools.combinations(clients[1:], size):
            first = {0, *others}
            second = [c for c in clients if c not in first]
            found.append((max(float(similarity[i, j]) for i in first for j in second), first))
    return min(found, key=lambda each: each[0])


@pytest.mark.parametrize(("engine", "participation_rate"), [("loop", 1.0), ("cohort", 0.5)])
def test_reference_of_six_rounds_agrees(lab, plain, planted, engine, participation_rate):
    """Updates, means, norms, similarities and all bipartitions written out from the paper, client by client."""
    groups = (0, 1, 1, 1, 0, 0, 1, 1)
    settings = TRAINING | {"rounds": 6, "participation_rate": participation_rate}
    method = "cfl(gamma=0.7, clusters=3)"
    trace = lab.run(method, federation=planted(groups), engine=engine, **settings)
    check, setting = plain(trace), trace.simulation.setting
    models, directions = (
        [trace.params[0]],
        [],
    )  # a direction: the cluster that was split, the new one, the way to it
    last, cluster, placed_at = {}, dict.fromkeys(range(len(groups)), 0), dict.fromkeys(range(len(groups)), 0)
    astray = 0

    def flat(model):
        return torch.cat([leaf.flatten() for leaf in model.values()])

    def place(i, update):
        found = cluster[i]
        for old, new, way in directions:
            if (
                new > placed_at[i] - 1
                and found == old
                and update is not None
                and float(flat(update) @ way) > 0
            ):
                found = new
        return found

    for t in range(6):
        cohort, updates = setting.cohort(t), {}
        sent = {i: place(i, last.get(i)) for i in cohort}
        for i in cohort:
            begun = models[sent[i]]
            trained = check.sgd(begun, check.batches(i, t, check.steps(i, 2)), check.cross_entropy)
            updates[i] = {name: trained[name] - begun[name] for name in begun}
        stays = {i: i in last or place(i, updates[i]) == sent[i] for i in cohort}
        astray += sum(not stay for stay in stays.values())
        for i in cohort:
            cluster[i] = place(i, last.get(i, updates[i]))
        for number in range(len(models)):
            members = [i for i in cohort if sent[i] == number and stays[i]]
            if not members:
                continue
            rows = {i: len(setting.federation.clients[i].train) for i in members}
            mean = {
                name: sum(rows[i] * updates[i][name] for i in members) / sum(rows.values())
                for name in models[number]
            }
            models[number] = {name: models[number][name] + mean[name] for name in mean}
            most = max(flat(updates[i]).norm() for i in members)
            if len(members) < 3 or len(models) == 3 or flat(mean).norm() >= 2 or most <= 0.5:
                continue
            units = torch.stack([flat(updates[i]) / flat(updates[i]).norm() for i in members])
            alpha, first = best_parts(units @ units.T)
            if ((1 - alpha) / 2) ** 0.5 > 0.7:  # a split at 0.79, whose square is below
                second = [place for place in range(len(members)) if place not in first]
                for place_in_round in second:
                    cluster[members[place_in_round]] = len(models)
                way = units[second].mean(0) - units[sorted(first)].mean(0)
                directions.append((number, len(models), way))
                models.append(models[number])
        for i in cohort:
            last[i], placed_at[i] = updates[i], len(models)
    assert len(models) > 1
    assert (astray > 0) == (participation_rate < 1)
    found = trace.servers[-1]["slots"][PART]
    assert found["count"] == len(models)
    for number, model in enumerate(models):
        lab.close({name: leaf[number] for name, leaf in found["models"].items()}, model)
    assert clusters_of(trace) == [place(i, last.get(i)) for i in range(len(groups))]


def clusters_of(trace):
    """The record of which client is in which cluster."""
    rows = trace.simulation.rows.table().to_pandas()
    return rows[rows["metric"] == "cluster"].sort_values("client")["value"].astype(int).tolist()


@pytest.mark.parametrize("participation_rate", [1.0, 0.5])
def test_planted_groups_are_found_and_recorded(lab, planted, participation_rate):
    """Clients with permuted labels end in one cluster, those with the others in another, heard from early or late."""
    groups = (0, 1, 0, 1, 1, 0, 1, 0, 1, 0)
    trace = lab.run(
        "cfl",
        federation=planted(groups),
        **TRAINING | {"rounds": 12, "participation_rate": participation_rate, "learning_rate": 0.1},
    )
    found = clusters_of(trace)
    assert found in (list(groups), [1 - group for group in groups])


@pytest.mark.parametrize(
    "method", ["cfl(mean_norm=0)", "cfl(client_norm=1000)", "cfl(gamma=1)", "cfl(clusters=1)"]
)
def test_where_nothing_splits_it_is_fedavg(lab, planted, method):
    ours, theirs = (
        lab.run(m, federation=planted((0, 1, 0, 1)), rounds=2, participation_rate=0.7)
        for m in (method, "fedavg")
    )
    lab.close(ours.params, theirs.params)
    first = {name: leaf[0] for name, leaf in ours.servers[-1]["slots"][PART]["models"].items()}
    lab.close(first, theirs.params[-1])
    assert set(clusters_of(ours)) == {0}


def test_parts_are_the_least_alike_of_all():
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        points = torch.randn(7, 3, generator=generator, dtype=torch.float64)
        units = torch.nn.functional.normalize(points)
        similarity = units @ units.T
        alpha, first = best_parts(similarity)
        second = bipartition(similarity)
        assert not second[0]
        assert similarity[~second][:, second].max() == pytest.approx(alpha, rel=1e-12)
        assert {i for i in range(7) if not second[i]} == first
