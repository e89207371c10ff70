"""Observation studies: what is trained, what is recorded, and the figures made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from idiolect.data import load
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.federation import plan_batches
from idiolect.models import BatchContext, build
from idiolect.records import RowBuffer
from idiolect.reports import features_figure, gather
from idiolect.reproduction import reproduce
from idiolect.reproduction.studies import Study, run_study, studies_of, training
from idiolect.reproduction.studies.head_observations import observe_epoch
from idiolect.reproduction.studies.training import StudyFederation

CPU = {"engine": "loop", "device": "cpu"}
TINY = Study("fashion-mnist-12k", "lenet_2d(relu=False)", 3, (3,), 2, 0.01, 0.9, 1e-5, 16)


def cut(data):
    """80 training and 60 test samples."""
    return replace(
        data,
        train_x=data.train_x[:80],
        train_y=data.train_y[:80],
        test_x=data.test_x[:60],
        test_y=data.test_y[:60],
    )


@pytest.fixture
def few(monkeypatch):
    """Of the embedded data few samples; the classes of those that were trained on are kept."""
    seen = []
    honest, federation_of = training.load, StudyFederation.of

    def of(study, data, engine):
        found = federation_of(study, data, engine)
        seen.append(np.flatnonzero(found.setting.federation.class_counts()[0]).tolist())
        return found

    monkeypatch.setattr(training, "load", lambda name, data_dir: cut(honest(name, data_dir)))
    monkeypatch.setattr(StudyFederation, "of", of)
    return seen


def test_rows_of_an_epoch_are_those_computed_by_hand():
    """Two observed classes at (3, 0) and (0, 4), two missing ones at (0, 0) and (0, 1)."""
    weight = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0], [0.0, 1.0]])
    logits = torch.eye(4)[[0, 1, 1, 2]]
    rows = RowBuffer()
    study = replace(TINY, observed=2, targets=(1, 2, 4))
    observe_epoch(rows, 5, study, weight, torch.ones(4), logits, torch.tensor([0, 0, 1, 3]))
    found = rows.table().to_pandas().set_index(["metric", "client"])["value"]
    assert found["proxy norm"].tolist() == [3, 4, 0, 1]
    assert found["distance O-O", -1] == pytest.approx(2 * 5 / 4)
    assert found["distance O-M", -1] == pytest.approx((3 + math.sqrt(10) + 4 + 3) / 4)
    assert found["distance M-M", -1] == pytest.approx(2 * 1 / 4)
    assert found["accuracy"].tolist() == pytest.approx([1 / 2, 2 / 3, 2 / 4])


def test_study_trains_on_the_observed_classes_alone_and_repeats(few, tmp_path):
    first = run_study(TINY, Execution(out=tmp_path / "a", **CPU))
    assert few == [[0, 1, 2]]
    again = run_study(TINY, Execution(out=tmp_path / "b", **CPU))
    pd.testing.assert_frame_equal(first.rows, again.rows)
    run_study(TINY, Execution(out=tmp_path / "a", **CPU))
    assert len(few) == 2, "a finished study was trained again"
    other = run_study(replace(TINY, seed=1), Execution(out=tmp_path / "a", **CPU))
    assert not np.allclose(other.rows["value"], first.rows["value"])
    features = first.rows[first.rows["predictor"] == "features"]
    assert set(features[features["metric"] == "label"]["value"]) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize("model", ["lenet_2d(relu=False)", "lenet_bn"])
def test_epochs_are_those_of_plain_torch_on_the_same_batches(model):
    """Two epochs, momentum anew in each: the head, and its gradients summed over the epoch; lenet_bn normalises."""
    data = cut(load(TINY.dataset, None))
    study = replace(TINY, model=model, weight_decay=0.1)
    ours = StudyFederation.of(study, data, Execution(**CPU).engine_choice())
    now, samples = ours.start(), ours.setting.federation
    net = build(model, data.shape, data.n_classes)
    net.load_state_dict(now.server["params"] | now.server["buffers"])
    head = net.get_parameter(ours.setting.task.structure.classifier)
    rows = np.flatnonzero(data.train_y < 3)
    assert sorted(samples.clients[0].train) == rows.tolist(), (
        "not all rows of the observed classes are trained on"
    )
    x, y = torch.from_numpy(samples.x), torch.from_numpy(samples.y)
    for epoch in range(2):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1)
        plan = plan_batches(
            samples.clients[0].train, -(-len(rows) // 16), 16, seed=0, position=("main", epoch, 0)
        )
        total = torch.zeros_like(head)
        for index, mask, key in zip(*plan, strict=True):
            how = BatchContext(torch.ones(mask.sum()), (True,) * net.n_units, torch.from_numpy(key[mask]))
            optimiser.zero_grad()
            F.cross_entropy(net(x[index[mask]], how)[1], y[index[mask]]).backward()
            total += head.grad
            optimiser.step()
        now = ours.advance(epoch, now)
        torch.testing.assert_close(ours.head(now), head.detach(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(now.gradients, total, rtol=1e-4, atol=1e-5)
    features, logits, _ = net(torch.from_numpy(samples.server_x), BatchContext.plain(60, net.n_units))
    torch.testing.assert_close(ours.tested(now, at_once=16), (features, logits), rtol=1e-3, atol=1e-4)


def test_network_learns(few, tmp_path):
    """On two classes, which it is then tested on, more often right than by chance."""
    study = replace(TINY, model="mlpnet", observed=2, targets=(2,), epochs=10, batch_size=4)
    rows = run_study(study, Execution(out=tmp_path, **CPU)).rows
    accuracy = rows[rows["metric"] == "accuracy"]["value"]
    assert accuracy.iloc[-1] > 0.8


def test_studies_have_the_numbers_of_their_scenarios():
    found = studies_of("features", ("map-o1-8", "map-o1-5", "map-o1-2"), 0, quick=False)
    assert [one.study.observed for one in found] == [8, 8, 5, 5, 2, 2]
    assert {(s.dataset, s.epochs, s.learning_rate, s.momentum) for s in (one.study for one in found)} == {
        ("mnist", 50, 0.01, 0.9)
    }
    assert found[1].study.model == "lenet_2d(relu=False)"
    (head,) = studies_of("proxies", ("map-o2",), 0, quick=False)
    assert (head.study.dataset, head.study.observed, head.study.learning_rate) == ("cifar10", 8, 0.03)
    assert head.study.model == "vgg11(normalised=True)"
    subsets = studies_of("subsets", ("map-o3",), 0, quick=False)
    assert [one.study.observed for one in subsets] == [10, 20, 30, 40, 50, 60, 70, 80, 100]
    assert subsets[-1].label == "M2" and subsets[-1].study.targets == tuple(range(10, 90, 10))


@pytest.mark.parametrize(("id", "entries"), [("map-fig5", 2), ("map-fig6", 7), ("map-fig7", 16)])
def test_figure_of_studies_gives_numbers_points_and_a_picture(id, entries, few, tmp_path):
    asked = {"columns": ["map-o1-2"]} if id == "map-fig5" else {}
    done = reproduce(id, quick=True, out=tmp_path, **asked, **CPU)
    assert len(done.numbers) == entries and all(one.value is not None for one in done.numbers)
    assert (done.folder / f"{id}.png").read_bytes().startswith(b"\x89PNG")
    assert len((done.folder / f"{id}-points.csv").read_text().splitlines()) > entries
    with pytest.raises(UserError, match="no finished run"):
        gather([tmp_path], lambda sentence: None)


def test_study_without_its_data_is_listed_with_the_command(tmp_path):
    done = reproduce("map-fig6", out=tmp_path, data_dir=tmp_path / "none", **CPU)
    (one,) = done.numbers
    assert one.value is None and "cifar10 is not on this machine" in one.missing


def test_arrows_of_missing_classes_are_white():
    points = pd.DataFrame(
        [
            ("p", "sample", 0, 1.0, 1.0, True),
            ("p", "proxy", 0, 0.5, 0.0, True),
            ("p", "proxy", 1, 0.0, 0.2, False),
        ],
        columns=["panel", "what", "label", "x", "y", "observed"],
    )
    (axes,) = features_figure(points).axes
    arrows = [text.arrow_patch for text in axes.texts]
    assert [arrow.get_facecolor()[:3] == (1.0, 1.0, 1.0) for arrow in arrows] == [False, True]
    assert [tuple(text.xy) for text in axes.texts] == [(5.0, 0.0), (0.0, 2.0)]
