"""The seed of the data and the seed of the training, apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from idiolect import run
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.experiments.identity import family_of, hash_of
from idiolect.experiments.setting import Setting, prepare
from idiolect.reports.run_groups import group_runs

TINY = Experiment(
    dataset="fashion-mnist-12k",
    clients=6,
    newcomers=1,
    model="mlpnet",
    rounds=1,
    local_epochs=0.1,
    evaluate_every=1,
)


def _prepared(**settings: int) -> Setting:
    return prepare(replace(TINY, **settings), EngineChoice("loop", "cpu", "as asked"))


def _rows(setting: Setting) -> list[list[int]]:
    return [part.tolist() for client in setting.federation.clients for part in client]


def test_data_seed_draws_clients_and_seed_the_training() -> None:
    first, trained_again, drawn_again = (
        _prepared(seed=1, data_seed=5),
        _prepared(seed=2, data_seed=5),
        _prepared(seed=1, data_seed=6),
    )
    assert _rows(first) == _rows(trained_again) != _rows(drawn_again)
    assert first.federation.newcomers == trained_again.federation.newcomers
    weights = [next(iter(s.initial(0).params.values())).numpy() for s in (first, trained_again, drawn_again)]
    assert not np.array_equal(weights[0], weights[1]) and np.array_equal(weights[0], weights[2])
    cohorts = [[s.cohort(r) for r in range(8)] for s in (first, trained_again, drawn_again)]
    assert cohorts[0] != cohorts[1] and cohorts[0] == cohorts[2]


def test_unset_data_seed_follows_the_seed() -> None:
    assert _rows(_prepared(seed=3)) == _rows(_prepared(seed=9, data_seed=3))


def test_repetitions_are_one_family_with_names_of_their_own() -> None:
    fixed = replace(TINY, data_seed=3)
    assert hash_of(fixed) != hash_of(TINY)
    assert family_of(fixed) == family_of(replace(TINY, seed=8)) == hash_of(TINY)


def test_runs_with_one_data_seed_are_one_group(tmp_path: Path) -> None:
    runs = [run(replace(TINY, seed=s, data_seed=0), out=tmp_path, engine="loop", quiet=True) for s in (0, 1)]
    runs.append(run(replace(TINY, seed=2), out=tmp_path, engine="loop", quiet=True))
    (group,) = group_runs(runs).values()
    assert [(r.manifest["data_seed"], r.manifest["seed"]) for r in group] == [(0, 0), (0, 1), (2, 2)]
    held = runs[0].rows[(runs[0].rows["split"] == "test") & (runs[0].rows["population"] == "all")]
    expected = _prepared(seed=0).federation.clients.sizes("test")
    assert dict(zip(held["client"], held["samples"], strict=True)) == dict(enumerate(expected[:5]))


def test_negative_data_seed_is_refused() -> None:
    with pytest.raises(UserError, match="data_seed"):
        replace(TINY, data_seed=-1)
