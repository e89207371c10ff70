"""Local training: nothing shared, so nothing about other clients can matter."""

from dataclasses import replace

import pytest
import torch

PART = "private_layers"


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_client_does_not_depend_on_the_data_of_others(lab, engine):
    federation = lab.federation()
    x, y = federation.x.copy(), federation.y.copy()
    others = torch.cat([torch.from_numpy(rows) for c in (0, 1, 3, 4) for rows in federation.clients[c]])
    x[others], y[others] = -2 * x[others], (y[others] + 1) % lab.classes
    a = lab.run("local", engine=engine, federation=federation)
    b = lab.run("local", engine=engine, federation=replace(federation, x=x, y=y))
    for t in range(4):
        lab.same(a.slot(PART, 2, t), b.slot(PART, 2, t))
    assert lab.differ(a.slot(PART, 1, 3), b.slot(PART, 1, 3))


def test_single_client_trains_exactly_as_fedavg_with_one_client(lab):
    federation = lab.federation((9,))
    local, fedavg = lab.run("local", federation=federation), lab.run("fedavg", federation=federation)
    for t in range(4):
        lab.same(local.slot(PART, 0, t), fedavg.params[t])


def test_all_clients_start_from_the_initial_model_and_the_server_holds_nothing(lab):
    local, fedavg = lab.run("local"), lab.run("fedavg")
    for client in range(5):
        lab.same(local.slot(PART, client, 0), fedavg.params[0])
    assert all(server["params"] == {} and server["buffers"] == {} for server in local.servers)


def test_only_selected_clients_train(lab):
    local = lab.run("local", participation_rate=0.4, rounds=1)
    changed = [lab.differ(local.slot(PART, c, 1), local.slot(PART, c, 0)) for c in range(5)]
    assert sum(changed) == 2


def test_reference_of_three_rounds_agrees(lab, plain):
    local = lab.run("local", participation_rate=0.6, local_epochs=2, weight_decay=0.01)
    check = plain(local)
    models = {client: local.slot(PART, client, 0) for client in range(5)}

    def train(w, client, t):
        models[client] = check.sgd(
            models[client], check.batches(client, t, check.steps(client, 2)), check.cross_entropy
        )
        return models[client]

    check.federated(models[0], train)
    for client in range(5):
        lab.close(local.slot(PART, client, 3), models[client])
