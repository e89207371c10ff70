"""kNN-Per (Marfoq et al., ICML 2022): the final shared model, mixed with the labels of the nearest training rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from idiolect.core import Batch, Model, Out
from idiolect.parts.nearest_neighbours import best_share, neighbours, place_in_store, remembered

PART = "nearest_neighbours"
SCALE = 0.7
TRAINING = {"rounds": 2, "participation_rate": 0.7, "weight_decay": 0.01}


def memory(rows, cap):
    """The numbers of the rows that a client with so many remembers."""
    return (
        list(range(rows))
        if rows <= cap
        else [n for n in range(rows) if (n + 1) * cap // rows > n * cap // rows]
    )


def mixtures(check, model, client, split, shares, count, cap):
    """p_m at all rows of a split, by share, one row after the other."""
    x, y = check.rows(client, "train")
    kept = memory(len(x), cap)
    stored, labels = check.forward(model, x[kept])[0], y[kept]
    found = []
    queries, _ = check.rows(client, split)
    for features, logits in zip(*check.forward(model, queries), strict=True):
        distance = ((stored - features) ** 2).sum(1).sqrt()
        near = np.argsort(distance.numpy(), kind="stable")[:count]
        weight = torch.exp(-distance[near] / SCALE)
        q = torch.stack([weight[labels[near] == k].sum() for k in range(4)]) / weight.sum()
        found.append([share * q + (1 - share) * torch.softmax(logits, 0) for share in shares])
    return torch.stack([torch.stack(each) for each in zip(*found, strict=True)])  # [shares, rows, K]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(("count", "cap"), [(3, 8), (10, 30)])  # rows beyond the cap; places that stay empty
def test_reference_agrees(lab, plain, engine, count, cap):
    """Distances, neighbours, shares and the choice of lambda, one row after the other, beside FedAvg's own training."""
    trace = lab.run(f"knn_per(count={count}, cap={cap}, scale={SCALE})", engine=engine, **TRAINING)
    lab.same(trace.params, lab.run("fedavg", engine=engine, **TRAINING).params)
    check, model, chosen = plain(trace), trace.params[-1], set()
    grid = [share / 10 for share in range(11)]
    for client, found in enumerate(trace.logits()):
        valid = mixtures(check, model, client, "valid", grid, count, cap)[:, :cap]
        labels = check.rows(client, "valid")[1][:cap]
        own = valid[:, torch.arange(len(labels)), labels].clamp(min=1e-12).log().mean(1)
        right = (valid.argmax(2) == labels).sum(1)
        best = max(range(11), key=lambda n: (int(right[n]), float(own[n])))
        chosen.add(best)
        private = trace.end[client]["slots"][PART]
        assert private["lambda"].item() == pytest.approx(grid[best])
        assert private["held"] == min(cap, len(check.rows(client, "train")[0]))
        (expected,) = mixtures(check, model, client, "test", [grid[best]], count, cap)
        lab.close(torch.softmax(found["mix(lambda)"], 1), expected, rtol=1e-8)
    assert len(chosen) > 1 or cap == 30


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("options", ["", "share=0.7"])
def test_a_client_that_remembers_nothing_has_the_model_alone(lab, engine, options):
    """Without training rows lambda is 0, also where the labels of no neighbours would be right by chance."""
    federation = lab.federation((9, 0, 0), ((1, 2), (0,), (1, 2, 3)))
    trace = lab.run(f"knn_per({options})", federation=federation, engine=engine, rounds=2)
    for client, found in enumerate(trace.logits()):
        private, empty = trace.end[client]["slots"][PART], client > 0
        assert private["held"] == (0 if empty else 9)
        assert not empty or private["lambda"] == 0
        mixed, alone = torch.softmax(found["mix(lambda)"], 1), torch.softmax(found["global"], 1)
        assert mixed.isfinite().all()
        if empty:
            lab.close(mixed, alone, rtol=1e-8)


def test_nothing_is_near_where_the_store_is_empty():
    features = torch.rand(3, 2)
    store = {"features": torch.rand(5, 2), "labels": torch.zeros(5), "held": torch.tensor(0.0)}
    torch.testing.assert_close(neighbours(features, store, 2, 1.0, 4), torch.zeros(3, 4), rtol=0, atol=0)
    one = neighbours(features, {**store, "held": torch.tensor(1.0)}, 2, 1.0, 4)
    torch.testing.assert_close(one, torch.eye(4)[[0, 0, 0]], rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_share_of_nothing_is_the_model_and_of_all_the_neighbours(lab, share):
    trace = lab.run(f"knn_per(count=1, share={share})", rounds=1)
    for client, found in enumerate(trace.logits()):
        if share == 0:
            lab.close(torch.softmax(found["mix(lambda)"], 1), torch.softmax(found["global"], 1), rtol=1e-8)
        else:  # the only neighbour decides
            held = trace.simulation.setting.federation
            classes = set(held.y[held.clients[client].train])
            assert set(found["mix(lambda)"].argmax(1).tolist()) <= classes
            assert (found["mix(lambda)"].max(1).values == 0).all()


def test_rows_beyond_the_cap_are_left_out_at_even_distances():
    for total in (0, 3, 5, 6, 17, 1000):
        places = place_in_store(torch.arange(total), torch.tensor(total), 5).tolist()
        kept = [place for place in places if place < 5]
        assert kept == list(range(min(total, 5)))
        assert [row for row, place in enumerate(places) if place < 5] == memory(total, 5)
    spread = place_in_store(torch.arange(20), torch.tensor(20), 5)
    assert (spread < 5).nonzero().flatten().tolist() == [3, 7, 11, 15, 19]


@pytest.mark.parametrize("thin", [True, False])
def test_rows_of_several_batches_follow_each_other_without_padding(thin):
    rows = torch.arange(7.0)
    view = SimpleNamespace(
        predict=lambda model, batch: Out(batch.x, torch.stack([batch.x[:, 0], -batch.x[:, 0]], 1)),
        facts=SimpleNamespace(samples=torch.tensor(7.0)),
        task=SimpleNamespace(structure=SimpleNamespace(n_features=1, n_classes=2)),
    )
    measure = remembered(4, thin)
    store = measure.init(Model({}, {}), view)
    for part, mask in (([0, 1, 6], [1, 1, 0]), ([2, 6, 3], [1, 0, 1]), ([4, 5, 6], [1, 1, 1])):
        x = rows[part, None]
        batch = Batch(x, x[:, 0].long(), torch.tensor(mask).float(), x[:, 0].long(), {})
        store = measure.add(store, Model({}, {}), batch, view)
    kept = [float(n) for n in (memory(7, 4) if thin else range(4))]
    assert store["features"].flatten().tolist() == store["labels"].tolist() == kept
    assert store["seen"] == 7
    torch.testing.assert_close(store["predicted"][:, 0], torch.sigmoid(2 * torch.tensor(kept)))


def test_a_client_chooses_the_share_with_most_rows_right_then_the_likeliest_then_the_smallest():
    sure, unsure = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    wrong, labels, all_rows = sure.flip(1), torch.tensor([0, 1]), torch.tensor(2.0)
    assert best_share(wrong, sure, labels, all_rows) == 1
    assert best_share(sure, wrong, labels, all_rows) == 0
    assert best_share(unsure, sure, labels, all_rows) == 1
    assert best_share(sure, sure, labels, all_rows) == 0
    assert best_share(torch.cat([sure, wrong]), torch.cat([wrong, sure]), labels.repeat(2), all_rows) == 0
