"""How a run is made, as one value or as keywords of ``run``; refused values are refused before anything is prepared."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

import idiolect
from idiolect import Execution, UserError
from idiolect.experiments import Experiment, Silent, run
from idiolect.experiments.execution import split_keywords


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"engine": "lop"}, "unknown engine 'lop'; did you mean loop?"),
        ({"device": "gpu"}, "device must be one of auto, cpu, cuda; got 'gpu'"),
        ({"engine": "pool", "workers": 0}, "workers must be in [1, "),
        ({"engine": "loop", "workers": 2}, "workers are for the engines pool and ray"),
        ({"engine": "loop", "gpus_per_worker": 0.5}, "are for --engine ray; the engine here is loop"),
        ({"store": "tape"}, "store must be one of auto, device, host, disk; got 'tape'"),
        ({"store_cache": -1}, "store_cache must be at least 0, got -1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        ({"checkpoint_every": "foo"}, "checkpoint_every must be int, got 'foo'"),
        ({"log": ["comet"]}, "log must be one of tensorboard, mlflow, wandb; got 'comet'"),
    ],
)
def test_value_that_cannot_work_is_refused(keywords, sentence, tmp_path):
    with pytest.raises(UserError) as refused:
        Execution(**keywords)
    assert sentence in str(refused.value)
    with pytest.raises(UserError) as refused:
        run("fedavg", out=tmp_path / "out", **keywords)
    assert sentence in str(refused.value) and not (tmp_path / "out").exists()


def test_no_name_is_a_setting_and_a_field_of_the_execution():
    assert not {one.name for one in fields(Execution)} & {one.name for one in fields(Experiment)}


def test_keywords_win_over_the_execution_and_the_others_are_settings():
    base = Execution(engine="loop", store="host", log=["mlflow"])
    execution, settings = split_keywords(base, {"store": "disk", "rounds": 3})
    assert execution == replace(base, store="disk") and settings == {"rounds": 3}
    assert execution.log == ("mlflow",)


def test_watcher_is_no_part_of_what_an_execution_is():
    assert Execution(watcher=Silent()) == Execution() and hash(Execution()) == hash(
        Execution(watcher=Silent())
    )


@pytest.mark.parametrize(("word", "near"), [("enigne", "engine"), ("learning_rat", "learning_rate")])
def test_unknown_keyword_names_the_nearest_of_both(word, near):
    for call in (idiolect.run, lambda **words: idiolect.compare(["fedavg"], **words)):
        with pytest.raises(UserError, match=rf"there is no setting '{word}'; known: .*did you mean {near}"):
            call(**{word: 1})


def test_run_of_an_execution_is_that_of_its_keywords(tiny, tmp_path):
    made = run(
        tiny, execution=Execution(engine="loop", device="cpu", out=tmp_path / "a", notes=["of the test"])
    )
    same = run(tiny, engine="loop", device="cpu", out=tmp_path / "b", notes=["of the test"])
    assert made.rows.equals(same.rows) and made.manifest["notes"] == same.manifest["notes"]
    assert "of the test" in made.manifest["notes"]


def test_one_tracker_may_be_given_as_a_word():
    assert Execution(engine="loop", log="tensorboard").log == ("tensorboard",)


def test_execution_of_another_kind_is_refused():
    with pytest.raises(UserError, match="execution must be an Execution, got 'loop'"):
        split_keywords("loop", {})
