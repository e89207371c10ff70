"""Text and natural clients through whole runs: tokens reach the network as they are, and K follows from the data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Experiment, prepare, run
from idiolect.models import Net, zoo
from idiolect.models.sharing_unit import Unit

SEEN: list[tuple[torch.dtype, int]] = []
MASKS: list[torch.dtype] = []


class Heard(Unit):
    """Remembers of which type the masks of batches are; a network's digest comes from a pass over two rows alone."""

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        if len(mask) > 2:
            MASKS.append(mask.dtype)
        return super().forward(x, mask, train, key)


class Watched(nn.Embedding):
    """Remembers of which type and length the rows are that it is given; the mean of their tokens' vectors."""

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append((x.dtype, x.shape[-1]))
        return super().forward(x).mean(-2)


def bag_of_tokens(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    assert (in_channels, image_size) == (1, (1, 80))
    return Net([Heard(embedding=Watched(81, 6), activation=nn.Tanh()), Unit(linear=nn.Linear(6, n_classes))])


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Four roles with 12 to 30 windows."""
    entry = zoo.ZooEntry(bag_of_tokens, (1, 1, 80), "for this test")
    monkeypatch.setitem(zoo.ZOO, "bag_of_tokens", entry)
    random, letters = np.random.default_rng(0), list("abcdefgh ")
    roles = {f"role {k}": ["".join(random.choice(letters, 80 + n))] for k, n in enumerate((12, 30, 20, 16))}
    (tmp_path / "shakespeare_roles.json").write_text(json.dumps({"users": list(roles), "user_data": roles}))
    SEEN.clear()
    MASKS.clear()
    return Experiment(
        dataset="shakespeare-roles",
        partition="natural",
        clients=0,
        model="bag_of_tokens",
        rounds=2,
        participation_rate=1.0,
        local_epochs=1,
        batch_size=8,
        valid=0.2,
        precision="float64",
        evaluate_every=1,
    )


def test_run_on_text_serves_every_role(text, tmp_path):
    done = run(text, out=tmp_path / "runs", engine="loop", device="cpu", data_dir=tmp_path)
    assert done.manifest["dropped"]["n_clients"] == 4
    assert done.manifest["dropped"]["ids"] == [0, 1, 2, 3]
    assert done.manifest["source"]["owners"] == [f"role {k}" for k in range(4)]
    assert set(SEEN) == {(torch.int64, 80)}
    assert set(MASKS) == {torch.float64}
    assert (done.rows["split"] == "server").sum() > 0


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedcurv", "superfed_mm", "fedproto", "map"])
def test_engines_agree_on_text(text, tmp_path, method):
    rows = {}
    for engine in ("loop", "cohort"):
        done = run(
            method, **vars_of(text), out=tmp_path / engine, engine=engine, device="cpu", data_dir=tmp_path
        )
        rows[engine] = done.rows["value"].to_numpy()
    np.testing.assert_allclose(rows["loop"], rows["cohort"], rtol=1e-9)


def vars_of(experiment: Experiment) -> dict:
    return {name: value for name, value in vars(experiment).items() if name != "method"}


def test_network_of_the_other_kind_is_refused_in_a_sentence(text, tmp_path):
    where = EngineChoice("loop", "cpu", "as asked")
    for augmentation in ("none", "crop_flip"):
        images = replace(text, model="mlpnet", augmentation=augmentation)
        with pytest.raises(UserError, match="model mlpnet reads images and shakespeare-roles holds tokens"):
            prepare(images, where, tmp_path)
    with pytest.raises(
        UserError, match="model char_lstm cannot take images of 28x28: it reads rows of tokens"
    ):
        prepare(Experiment(model="char_lstm"), where)


def test_number_of_clients_follows_from_the_data(tmp_path):
    where = EngineChoice("loop", "cpu", "as asked")
    whole = Experiment(partition="semantic_tiny(groups=5, low=100, high=400)", clients=0)
    setting = prepare(whole, where)
    assert setting.federation.population == setting.partition_report["n_clients"] > 30
    assert setting.partition_report["n_rows"] == 10_000 and setting.partition_report["dropped"] == {}


def test_no_number_of_clients_is_refused_where_the_data_do_not_tell():
    with pytest.raises(UserError, match="iid: n_clients=0 must be a whole number from 1"):
        prepare(Experiment(partition="iid", clients=0), EngineChoice("loop", "cpu", "as asked"))
