"""A record is found again by whatever means the same, and by nothing that would give other numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch import nn

from idiolect import UserError, compare, data, register, register_model, run
from idiolect.core import Method, Part, chain
from idiolect.experiments import Experiment, identity, spec
from idiolect.experiments.identity import hash_of, name_of
from idiolect.methods.catalogue import METHODS, PARTS
from idiolect.models import from_module
from idiolect.models.registered_models import REGISTERED
from idiolect.parts import average, proximal
from idiolect.records import read_run
from idiolect.reports.run_groups import group_runs

LOOP = {"engine": "loop", "device": "cpu"}


@pytest.fixture
def catalogue() -> Iterator[None]:
    """Whatever is registered is forgotten afterwards."""
    before = dict(METHODS), dict(PARTS), dict(REGISTERED)
    yield
    for known, kept in zip((METHODS, PARTS, REGISTERED), before, strict=True):
        known.clear()
        known.update(kept)


def near(weight: float = 0.5) -> Method:
    return chain(average(), proximal(weight), name="near")


def nearer(weight: float = 0.75) -> Method:
    return near(weight)


def nothing(size: int = 1) -> Part:
    return Part("nothing")


def small(rate=0.25, activation=nn.ReLU):
    def build(*, in_channels, image_size, n_classes, width=4):
        body = nn.Sequential(nn.Flatten(), nn.Linear(8, width), activation(), nn.Dropout(rate))
        return from_module(body, nn.Linear(width, n_classes))

    return build


# ---- one run under every spelling


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"method": "map"}, {"method": "map(alpha=0.9)"}),
        ({"method": "map"}, {"method": " MAP( transfer=kd )"}),
        ({"method": "fedrs(preset=official)"}, {"method": "fedrs(rule=freq_max)"}),
        ({"method": "fedavg + fine_tune"}, {"method": "FedAvg+fine_tune(epochs=1)"}),
        ({"model": "mlpnet"}, {"model": "mlpnet(hidden=512)"}),
        ({"partition": "natural"}, {"partition": "by_id()"}),
        ({"partition": "dirichlet_client(alpha=1)"}, {"partition": "dirichlet_client(alpha=1.0)"}),
        ({"dataset": "synthetic"}, {"dataset": "synthetic(skew=1)"}),
        ({"local_epochs": 2}, {"local_epochs": 2.0}),
        ({"clip_norm": None}, {"lr_decay": 1}),
        ({"optimiser": "sgd()"}, {"schedule": "constant()", "local_schedule": " constant"}),
        ({"optimiser": "adam"}, {"optimiser": "adam(beta_one=0.9, epsilon=1e-08)"}),
        ({"schedule": "step"}, {"schedule": "step(factor=0.1)"}),
        ({"local_schedule": "cosine"}, {"local_schedule": "cosine(final=0)"}),
    ],
)
def test_spellings_of_one_run_share_a_hash(one, other):
    assert hash_of(Experiment(**one)) == hash_of(Experiment(**other))


@pytest.mark.parametrize(
    "changed",
    [
        {"optimiser": "adam"},
        {"optimiser": "adamw"},
        {"optimiser": "adam(beta_one=0.8)"},
        {"schedule": "cosine"},
        {"local_schedule": "cosine"},
        {"local_schedule": "cosine(final=0.5)"},
    ],
)
def test_optimiser_and_schedules_are_covered(changed):
    others = [Experiment(), Experiment(optimiser="adam(epsilon=1)"), Experiment(local_schedule="linear")]
    assert hash_of(Experiment(**changed)) not in [hash_of(other) for other in others]


def test_finished_run_is_found_under_another_spelling_and_shown_as_it_was_written(tiny, tmp_path):
    first = run(replace(tiny, method="fedprox(weight=0.01)"), out=tmp_path, **LOOP)
    again = run(replace(tiny, method="fedprox"), out=tmp_path, **LOOP)
    assert again.manifest == first.manifest
    assert first.manifest["method"] == "fedprox(weight=0.01)"
    assert "ran as fedprox(weight=0.01)" in first.manifest["notes"]
    assert len(list(tmp_path.iterdir())) == 1


def test_interrupted_run_goes_on_under_another_spelling(tiny, tmp_path):
    class Stops:
        def begin(self, *about):
            pass

        def advance(self, round, numbers):
            if round == 2:
                raise KeyboardInterrupt

        end = say = hint = begin

    with pytest.raises(KeyboardInterrupt):
        run(replace(tiny, method="fedprox"), out=tmp_path, watcher=Stops(), checkpoint_every=1, **LOOP)
    assert [folder.suffix for folder in tmp_path.iterdir()] == [".partial"]
    done = run(replace(tiny, method="fedprox(form=sq_half)"), out=tmp_path, resume=True, **LOOP)
    assert done.manifest["status"] == "finished" and len(list(tmp_path.iterdir())) == 1


def test_comparison_refuses_one_method_under_two_spellings(tiny, tmp_path):
    with pytest.raises(UserError, match=r"map and map\(alpha=0.9\) are one method; give it once"):
        compare(["map", "fedavg", "map(alpha=0.9)"], experiment=tiny, out=tmp_path, **LOOP)


def test_record_says_all_options_and_the_architecture(tiny, tmp_path):
    asked = replace(tiny, method="fedrs(preset=official) + fine_tune(epochs=2)")
    done = run(asked, out=tmp_path, **LOOP)
    manifest = read_run(tmp_path / done.manifest["name"]).manifest
    assert manifest["options"] == [
        ["fedrs", {"alpha": 0.9, "rule": "freq_max", "min_count": 1}],
        ["fine_tune", {"epochs": 2.0, "lr_scale": 1.0, "tuned": "all"}],
    ]
    assert manifest["architecture"] == identity.architecture(asked)
    assert manifest["spec_hash"] == hash_of(asked) and manifest["name"] == name_of(asked)


# ---- what gives other numbers is another run


@pytest.mark.usefixtures("catalogue")
def test_changed_default_is_another_run(tiny, tmp_path):
    register("near", near)
    old = run(replace(tiny, method="near"), out=tmp_path, **LOOP)
    METHODS["near"] = METHODS["near"]._replace(make=nearer)
    new = run(replace(tiny, method="near"), out=tmp_path, **LOOP)
    assert old.manifest["name"] != new.manifest["name"]
    assert list(group_runs([old, new])) == ["near (weight=0.5)", "near (weight=0.75)"]


@pytest.mark.usefixtures("catalogue")
def test_options_of_registered_parts_are_covered(tiny):
    register("nothing", nothing)
    plain = hash_of(replace(tiny, method="fedavg + nothing"))
    assert hash_of(replace(tiny, method="fedavg + nothing(size=1)")) == plain
    assert hash_of(replace(tiny, method="fedavg + nothing(size=2)")) != plain
    PARTS["nothing"] = lambda size=3: Part("nothing")
    assert hash_of(replace(tiny, method="fedavg + nothing")) != plain


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize("changed", [{"rate": 0.5}, {"activation": nn.ELU}])
def test_changed_network_under_one_name_is_another_run(tiny, tmp_path, changed):
    register_model("small", small())
    old = run(replace(tiny, model="small"), out=tmp_path, **LOOP)
    REGISTERED["small"] = small(**changed)
    new = run(replace(tiny, model="small"), out=tmp_path, **LOOP)
    assert old.manifest["name"] != new.manifest["name"]
    assert len(group_runs([old, new])) == 2
    REGISTERED["small"] = small()
    assert hash_of(replace(tiny, model="small")) == old.manifest["spec_hash"]


@pytest.mark.usefixtures("catalogue")
def test_options_of_a_network_are_covered_even_where_they_change_initial_values_alone(tiny):
    def build(*, in_channels, image_size, n_classes, gain=1.0):
        return small()(in_channels=in_channels, image_size=image_size, n_classes=n_classes)

    register_model("scaled", build)
    assert hash_of(replace(tiny, model="scaled")) != hash_of(replace(tiny, model="scaled(gain=2.0)"))
    register_model("other", build)
    assert hash_of(replace(tiny, model="scaled")) != hash_of(replace(tiny, model="other"))


# ---- settings that are added later


@dataclasses.dataclass(frozen=True)
class Later(Experiment):
    """The experiment of a later version, which has one setting more."""

    noise: float = 0.0


def test_setting_that_is_added_later_renames_no_run(tiny, tmp_path, monkeypatch):
    old = run(tiny, out=tmp_path, **LOOP)
    later = Later(**dataclasses.asdict(tiny))
    assert hash_of(later) != hash_of(tiny), "a setting without a neutral value is part of every hash"
    monkeypatch.setitem(spec.NEUTRAL, "noise", 0.0)
    assert run(later, out=tmp_path, **LOOP).manifest == old.manifest
    assert hash_of(replace(later, noise=0.5)) != hash_of(tiny)


def test_neutral_values_are_allowed_values_and_no_others_are_left_out():
    known = {field.name: field.default for field in dataclasses.fields(Experiment)}
    assert all(known[name] == value for name, value in spec.NEUTRAL.items())
    found = identity.identity(Experiment())
    assert set(found) == (set(known) - set(spec.NEUTRAL) - {"seed"}) | {"architecture"}
    assert {"rounds", "clients", "learning_rate", "evaluate_every"} <= set(found)
    assert json.dumps(found)


def test_hash_of_the_plain_experiment_is_pinned(monkeypatch):
    monkeypatch.setattr(identity, "architecture", lambda experiment: "")
    assert hash_of(Experiment())[:8] == "b2bf2358", "every run would be renamed"


# ---- what cannot run is refused as ever


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dataset": "mnst"}, "unknown dataset 'mnst'"),
        ({"model": "mlpnt"}, "unknown model 'mlpnt'"),
        ({"model": "mlpnet(wide=3)"}, "no option 'wide'"),
        ({"partition": "by_idd"}, "unknown partition 'by_idd'"),
        ({"method": "fedavgg"}, "unknown method 'fedavgg'"),
        ({"method": "fedper(counts=1)"}, "no option 'counts'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tiny, tmp_path, changed, message):
    with pytest.raises(UserError, match=message):
        run(replace(tiny, **changed), out=tmp_path, **LOOP)


@pytest.mark.parametrize("text", ["fashion-mnist-12k", "synthetic", "synthetic(n_features=5, n_classes=4)"])
def test_sizes_of_a_dataset_are_those_of_its_rows(text):
    name, _, options = text.partition("(")
    given = dict(pair.split("=") for pair in options.rstrip(")").split(", ") if pair)
    loaded = data.load(name, **{key: int(value) for key, value in given.items()})
    assert data.sizes(text) == (loaded.shape, loaded.n_classes)


def test_sizes_follow_the_options_of_a_dataset():
    assert data.sizes("emnist") == ((1, 28, 28), 62)
    assert data.sizes("emnist(split=letters)") == ((1, 28, 28), 26)
    assert data.sizes("flickr-aes")[0] == (3, 224, 224)
    assert data.sizes("flickr-aes(size=32)")[0] == (3, 32, 32)
    assert data.sizes("cifar100") == ((3, 32, 32), 100)
