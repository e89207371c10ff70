"""IFCA (Ghosh et al., NeurIPS 2020): k models, of which each client trains the one that fits its data best."""

from dataclasses import replace

import pytest
import torch

from idiolect import UserError
from idiolect.testing import tiny_run

PART = "chosen_clusters"
TRAINING = {"local_epochs": 2, "batch_size": 8, "weighting": "samples", "weight_decay": 0.01}
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])


def models_of(server):
    """The parameters of every cluster, whole."""
    others = server["slots"][PART].values()
    return [server["params"], *({**server["params"], **other["params"]} for other in others)]


def clusters_of(trace):
    """The record of which client is in which cluster."""
    rows = trace.simulation.rows.table().to_pandas()
    return rows[rows["metric"] == "cluster"].sort_values("client")["value"].astype(int).tolist()


def choice(check, models, client):
    losses = [float(check.cross_entropy(w, *check.rows(client, "train"))) for w in models]
    return losses.index(min(losses))


def ragged(federation):
    """The same clients with unlike numbers of rows, so that weights by samples differ."""
    clients = (c._replace(train=c.train[: 24 - i]) for i, c in enumerate(federation.clients))
    return replace(federation, clients=tuple(clients))


@ENGINES
@pytest.mark.parametrize("options", ["clusters=3", "clusters=3, averaging=gradient", "clusters=3, count=1"])
def test_reference_of_four_rounds_agrees(lab, plain, planted, engine, options):
    """Losses, choices, local training and the means of algorithm 1, client by client."""
    gradient, shared = "gradient" in options, "count" in options
    settings = TRAINING | {"rounds": 4, "participation_rate": 0.7, "seed": 1}
    federation = ragged(planted((0, 1, 1, 0, 1, 0, 1)))
    trace = lab.run(f"ifca({options})", federation=federation, engine=engine, **settings)
    check, setting = plain(trace), trace.simulation.setting
    models, used, empty = models_of(trace.servers[0]), set(), 0
    last = dict.fromkeys(range(7), 0)
    own = [name for name in models[0] if not shared or name.startswith("units.2.")]
    for t in range(4):
        cohort, uploads = setting.cohort(t), {}
        for i in cohort:
            last[i] = choice(check, models, i)
            steps = 1 if gradient else check.steps(i, 2)
            uploads[i] = check.sgd(models[last[i]], check.batches(i, t, steps), check.cross_entropy)
        rows = {i: len(setting.federation.clients[i].train) for i in cohort}
        new = []
        for j, model in enumerate(models):
            members = [i for i in cohort if last[i] == j]
            empty += not members
            whole = sum(rows[i] for i in (cohort if gradient else members))
            moved = dict(model)
            for name in own if members else []:
                step = sum(rows[i] * (uploads[i][name] - model[name]) for i in members) / whole
                moved[name] = model[name] + step
            for name in set(model) - set(own):
                moved[name] = sum(rows[i] * uploads[i][name] for i in cohort) / sum(rows.values())
            new.append(moved)
        models, used = new, used | {last[i] for i in cohort}
        lab.close(models_of(trace.servers[t + 1]), models)
        assert [trace.slot(PART, i, t + 1)["cluster"].item() for i in range(7)] == list(last.values())
    assert len(used) > 1 and empty > 0
    found = [choice(check, models, i) for i in range(7)]
    assert clusters_of(trace) == found
    for i, logits in enumerate(trace.logits()):
        lab.close(logits["composed"], check.forward(models[found[i]], check.rows(i, "test")[0])[1])
        assert "global" not in logits


GROUPS = (0, 1, 0, 1, 1, 0, 1, 0, 1, 0)
PLANTED = TRAINING | {"rounds": 8, "learning_rate": 0.1}


@pytest.mark.parametrize("participation_rate", [1.0, 0.5])
def test_planted_groups_are_found_and_recorded(lab, planted, participation_rate):
    """Clients with permuted labels end in one cluster, those with the others in another, also such as sat out."""
    settings = PLANTED | {"participation_rate": participation_rate, "seed": 2}
    found = clusters_of(lab.run("ifca", federation=planted(GROUPS), **settings))
    assert found in (list(GROUPS), [1 - group for group in GROUPS])


def test_the_best_of_several_starts_finds_the_groups_where_one_of_them_does_not(lab, plain, planted):
    """From one start all clients choose the same model; as in the paper's restarts, its training loss says so."""
    losses, found = [], []
    for seed in (0, 1):
        trace = lab.run("ifca", federation=planted(GROUPS), seed=seed, **PLANTED)
        check, models = plain(trace), models_of(trace.servers[-1])
        rows = [check.rows(i, "train") for i in range(len(GROUPS))]
        losses.append(sum(min(float(check.cross_entropy(w, *each)) for w in models) for each in rows))
        found.append(clusters_of(trace))
    assert len(set(found[0])) == 1 and losses[1] < losses[0]
    assert found[1] in (list(GROUPS), [1 - group for group in GROUPS])


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_one_cluster_is_fedavg(lab, net, engine):
    settings = {"net": net, "engine": engine, "rounds": 3, "participation_rate": 0.7, "weighting": "samples"}
    one, fedavg = (lab.run(method, **settings) for method in ("ifca(clusters=1)", "fedavg"))
    lab.close(one.params, fedavg.params)
    lab.close(one.servers[-1]["buffers"], fedavg.servers[-1]["buffers"])


def test_models_begin_apart_and_one_that_nobody_chose_stays(lab):
    trace = lab.run("ifca(clusters=4)", federation=lab.federation((12,) * 3, ((0, 1, 2, 3),) * 3), rounds=1)
    first, second = (models_of(server) for server in trace.servers)
    for j, model in enumerate(first):
        assert all(lab.differ(model, other) for other in first[j + 1 :])
    taken = {int(trace.slot(PART, i, 1)["cluster"]) for i in range(3)}
    for j in range(4):
        assert lab.differ(first[j], second[j]) == (j in taken)


def statistics_of(trace):
    """The running statistics of every cluster after each round."""
    return [
        [server["buffers"], *(slot["buffers"] for slot in server["slots"][PART].values())]
        for server in trace.servers
    ]


@pytest.mark.parametrize(
    ("buffers", "averaging"),
    [("average", "model"), ("average", "gradient"), ("private", "model"), ("frozen", "model")],
)
def test_statistics_are_those_of_a_clusters_members(lab, planted, buffers, averaging):
    """What its members measured is averaged, by their rows; a cluster without members keeps what it had.

    Gradients are divided by the whole cohort, statistics by the members alone.
    """
    federation = ragged(planted((0, 1, 0, 1)))
    rows = [len(client.train) for client in federation.clients]
    settings = {"federation": federation, "net": "bn", "rounds": 1, "seed": 2, "weighting": "samples"}
    method = f"ifca(clusters=3, averaging={averaging})"
    trace = lab.run(method, buffers=buffers, **settings)
    measured = lab.run(method, buffers="private", **settings).privates[1]
    before, after = statistics_of(trace)
    members = [[i for i in range(4) if trace.slot(PART, i, 1)["cluster"] == j] for j in range(3)]
    assert sorted(map(len, members)) == [0, 1, 3]
    for j, each in enumerate(members):
        expected = before[j]
        if buffers == "average" and each:
            expected = {
                name: sum(rows[i] * measured[i]["buffers"][name] for i in each) / sum(rows[i] for i in each)
                for name in before[j]
            }
        lab.close(after[j], expected)


def test_clients_that_sat_out_choose_after_the_last_round(lab, plain, planted):
    trace = lab.run("ifca(clusters=3)", federation=planted((0, 1) * 4), rounds=1, participation_rate=0.4)
    check, cohort = plain(trace), trace.simulation.setting.cohort(0)
    expected = [choice(check, models_of(trace.servers[1]), i) for i in range(8)]
    assert clusters_of(trace) == expected
    assert any(expected[i] for i in range(8) if i not in cohort)


def test_statistics_of_one_member_are_what_it_measured(lab):
    """A single client is a whole cluster, whose statistics are those of FedAvg begun at its model."""
    alone = lab.federation((12,), ((0, 1, 2, 3),))
    ours = lab.run("ifca(clusters=1)", federation=alone, net="bn", rounds=2)
    theirs = lab.run("fedavg", federation=alone, net="bn", rounds=2)
    lab.close(ours.servers[-1]["buffers"], theirs.servers[-1]["buffers"])


@ENGINES
def test_rows_beyond_a_full_batch_count_no_more_than_the_others(lab, plain, engine):
    """A loss is a mean over rows, also where they are read in batches of 256 and a single one is left over."""
    federation = lab.federation((257,) * 8, ((0, 1, 2, 3),) * 8)
    trace = lab.run("ifca(clusters=4)", federation=federation, engine=engine, rounds=1, batch_size=256)
    check, models = plain(trace), models_of(trace.servers[0])
    found = [int(trace.slot(PART, i, 1)["cluster"]) for i in range(8)]
    assert found == [choice(check, models, i) for i in range(8)]

    def by_batches(client):
        x, y = check.rows(client, "train")
        parts = slice(256), slice(256, None)
        losses = [sum(float(check.cross_entropy(w, x[part], y[part])) for part in parts) for w in models]
        return losses.index(min(losses))

    assert found != [by_batches(i) for i in range(8)], "the row left over would decide"


def test_layers_that_clusters_share_travel_once(lab):
    trace = lab.run("ifca(clusters=3, count=1)", rounds=1)
    names = trace.servers[0]["params"]
    assert any(name.startswith("units.0.") for name in names)
    for slot in trace.servers[1]["slots"][PART].values():
        assert slot["params"] and all(name.startswith("units.2.") for name in slot["params"])


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("ifca(clusters=0)", "clusters"),
        ("ifca(averaging=median)", "averaging must be one of"),
        ("ifca(count=9)", "the network has 3 units"),
        ("ifca + median", "averages each cluster by itself"),
        ("ifca + dp_sgd", "chosen_clusters measures the examples without noise"),
        ("ifca + cfl", "cannot be combined"),
    ],
)
def test_what_does_not_fit_is_refused(method, reason):
    with pytest.raises(UserError, match=reason):
        tiny_run(method, model="mlpnet(hidden=8)", rounds=1)


def test_all_models_travel_down_and_one_up(lab):
    trace = lab.run("ifca(clusters=3)", rounds=1)
    (row,) = trace.simulation.rounds.table().to_pylist()
    scalars = sum(leaf.numel() for leaf in trace.params[0].values())
    assert row["bytes_down"] == 4 * 5 * 3 * scalars
    assert row["bytes_up"] == 4 * 5 * (scalars + 3)


def test_seed_of_the_run_draws_the_models(lab):
    one, other = (models_of(lab.run("ifca", rounds=1, seed=seed).servers[0]) for seed in (0, 1))
    assert all(lab.differ(a, b) for a, b in zip(one, other, strict=True))
    torch.testing.assert_close(models_of(lab.run("ifca", rounds=1, seed=0).servers[0]), one, rtol=0, atol=0)


def test_clients_are_scored_with_the_statistics_of_their_cluster(lab, planted):
    trace = lab.run("ifca", federation=planted((0, 1, 0, 1)), net="bn", rounds=2, seed=2)
    setting, last = trace.simulation.setting, trace.servers[-1]
    slot = last["slots"][PART]["cluster 2"]
    clusters = clusters_of(trace)
    assert set(clusters) == {0, 1}
    for i, found in enumerate(trace.logits()):
        params = {**last["params"], **slot["params"]} if clusters[i] else last["params"]
        buffers = slot["buffers"] if clusters[i] else last["buffers"]
        rows = setting.federation.clients[i].test
        batch = setting.work.single(rows, rows >= 0, rows, {})
        lab.close(found["composed"], setting.task.forward(params, buffers, batch, False)[0].logits)
