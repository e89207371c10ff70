"""Commands that list what has a name: settings, models, partitions, disturbances and metrics."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from idiolect import models, partition
from idiolect.cli.listings import _fields_of
from idiolect.evaluation.metrics import metrics_of
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.spec import ALIASES
from idiolect.federation import DISTURBANCES


def listed(idiolect, *words: str) -> list[dict]:
    answer = idiolect(*words, "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_every_setting_and_option_is_listed_with_default_and_meaning(idiolect):
    found = {entry["name"]: entry for entry in listed(idiolect, "settings")}
    for group in (Experiment, Execution):
        for field in fields(group):
            if field.name in ("notes", "watcher"):
                continue
            entry = found[field.name]
            assert entry["type"] == field.type and entry["meaning"]
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert entry["default"] == default
    assert found["engine"]["written"] == "--engine" and found["rounds"]["written"] == "rounds"


def test_setting_that_the_docstring_forgets_is_an_error():
    class Forgetful(Experiment):
        """A class.

        Args:
            method: a name.
        """

    with pytest.raises(KeyError):
        _fields_of(Forgetful, "setting")


def test_list_says_what_a_cell_says_though_it_looks_like_markup(idiolect):
    assert "softmax(logits)[label]" in idiolect("metrics").out


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("models", models.names()),
        ("partitions", (*partition.names(), "natural")),
        ("disturbances", tuple(DISTURBANCES)),
        ("metrics", [*metrics_of("classification"), *metrics_of("regression")]),
    ],
)
def test_everything_known_is_listed(command, names, idiolect):
    entries = listed(idiolect, command)
    assert {entry["name"] for entry in entries} >= set(names)
    answer = idiolect(command)
    assert answer.code == 0 and all(name in answer.out for name in names)


def test_registered_model_is_listed(idiolect, monkeypatch):
    monkeypatch.setitem(
        models.registered_models.REGISTERED, "mine", lambda input_shape, outputs, width=3: None
    )
    entry = listed(idiolect, "models", "mine")[0]
    assert (entry["idea"], entry["options"]) == ("registered", {"width": 3})


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (["settings", "participation_rate"], ["Default: 0.4", "share of the clients"]),
        (["settings", "data-dir"], ["Written: --data-dir", "IDIOLECT_DATA"]),
        (["models", "mlpnet"], ["hidden=512", "two hidden layers"]),
        (["partitions", "natural"], ["Name: by_id", "max_samples=None"]),
        (["disturbances", "late"], ["Options: share=0.2, delay=1", "Delay: rounds by which it is late"]),
        (["metrics", "rmse"], ["Better: lower", "Tasks: regression", "Range: 0 to inf"]),
    ],
    ids=" ".join,
)
def test_one_name_is_explained(words, pieces, idiolect):
    answer = idiolect(*words)
    assert answer.code == 0, answer.err
    for piece in pieces:
        assert piece in answer.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["settings", "lr"], "did you mean learning_rate?"),
        (["models", "vgg9"], "unknown model 'vgg9'; did you mean vgg8"),
        (["disturbances", "lat"], "unknown disturbance 'lat'; did you mean late"),
        (["partitions", "idd"], "unknown partition 'idd'; did you mean iid"),
        (["metrics", "acuracy"], "unknown metric 'acuracy'; did you mean accuracy"),
        (["methods", "nosuch"], "unknown method 'nosuch'; `idiolect methods` lists the "),
        (["scenarios", "zzzz"], "unknown scenario 'zzzz'; `idiolect scenarios` lists the "),
        (["reproduce", "zzzz"], "unknown table or figure 'zzzz'; `idiolect reproduce --list` lists the "),
        (["metrics", "foo"], "known: accuracy, auroc, balanced_accuracy, ece, loss, macro_f1, mae, "),
    ],
    ids=" ".join,
)
def test_unknown_name_is_refused_with_near_ones(words, sentence, idiolect, refused):
    refused(idiolect(*words), sentence)


NEAR = {
    "lr": (["--set", "lr=0.1"], "did you mean learning_rate?"),
    "epochs": (["--set", "epochs=1"], "did you mean local_epochs?"),
    "bs": (["--set", "bs=1"], "did you mean batch_size?"),
    "batch": (["--set", "batch=1"], "did you mean batch_size?"),
    "optimizer": (["--set", "optimizer=adam"], "did you mean optimiser?"),
    "case": (["--set", "BatchSize=1"], "did you mean batch_size?"),
    "dataset-case": (["--dataset", "CIFAR10"], "unknown dataset 'CIFAR10'; did you mean cifar10?"),
    "dataset-space": (["--dataset", "Fashion MNIST"], "did you mean fashion-mnist?"),
    "model-case": (["--model", "LeNet5"], "unknown model 'LeNet5'; did you mean lenet5?"),
    "partition-hyphen": (["--partition", "label-k"], "unknown partition 'label-k'; did you mean label_k?"),
    "method-hyphen": (["--method", "fed-avg"], "did you mean fedavg?"),
    "method-option": (["--method", "map(alfa=1)"], "did you mean alpha?"),
    "model-option": (["--model", "mlpnet(hiden=3)"], "did you mean hidden?"),
    "engine-case": (["--engine", "Loop"], "unknown engine 'Loop'; did you mean loop?"),
}


@pytest.mark.parametrize("case", NEAR)
def test_misspelt_name_gets_the_right_one(case, idiolect, refused, tmp_path):
    words, sentence = NEAR[case]
    method = () if "--method" in words else ("--method", "fedavg")
    refused(idiolect("run", *method, *words, "--out", tmp_path / "out"), sentence)


def test_other_programs_word_for_an_axis_is_answered_with_ours(idiolect, refused):
    refused(idiolect("sweep", "--methods", "map", "--vary", "lr=0.1,0.2"), "did you mean learning_rate?")


def test_every_alias_leads_to_a_setting_and_is_none():
    known = {field.name for field in fields(Experiment)}
    assert ALIASES.keys() <= known
    words = [word for others in ALIASES.values() for word in others.split()]
    assert not known & set(words) and len(set(words)) == len(words)
