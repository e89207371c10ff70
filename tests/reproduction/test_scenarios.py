"""Scenarios: their numbers against the papers', typed in by hand; presets; what a method gets of its own."""

from __future__ import annotations

import dataclasses

import pytest

from idiolect.data import describe as data_rows
from idiolect.data.availability import availability
from idiolect.engines.cohort.tracing import fingerprint
from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.methods import method
from idiolect.models import build
from idiolect.partition import partition
from idiolect.reproduction.papers import figures, tables
from idiolect.reproduction.scenarios import (
    find_scenario,
    refuse_missing_data,
    scenario,
    scenario_uses,
    scenarios,
)
from idiolect.reproduction.scenarios.catalogue import read_scenarios

# dataset, partition, model, clients, rounds, rate, epochs, batch, learning rate
NUMBERS = {
    "php-c10": ("cifar10", "label_k(k=5)", "vgg11_fc", 100, 1000, 0.1, 2, 64, 0.03),
    "php-c100": ("cifar100", "label_k(k=20)", "vgg11_fc", 100, 1000, 0.1, 2, 64, 0.03),
    "php-femnist": ("femnist", "natural", "leaf_cnn", 0, 1000, 0.01, 10, 50, 4e-3),
    "php-c10-tf": ("cifar10", "label_k(k=5)", "tfcnn_fc", 100, 1000, 0.1, 2, 64, 0.03),
    "php-c100-tf": ("cifar100", "label_k(k=20)", "tfcnn_fc", 100, 1000, 0.1, 2, 64, 0.03),
    "php-silo": ("cifar100", "label_k(k=5)", "vgg11_fc", 20, 1000, 1.0, 2, 64, 0.03),
    "php-shake": ("shakespeare-leaf", "natural", "char_lstm", 0, 1000, 0.01, 2, 10, 1.47),
    "map-fa-mlpnet": ("fashion-mnist", "map_incomplete", "mlpnet", 100, 150, 0.2, 5, 64, 0.03),
    "map-fa-lenet": ("fashion-mnist", "map_incomplete", "lenet5", 100, 150, 0.2, 5, 64, 0.03),
    "map-c10-tfcnn": ("cifar10", "map_incomplete", "tfcnn", 100, 150, 0.2, 10, 64, 0.03),
    "map-c10-vgg8": ("cifar10", "map_incomplete", "vgg8", 100, 150, 0.2, 10, 64, 0.03),
    "map-c100-vgg8bn": ("cifar100", "map_incomplete", "vgg8_bn", 100, 150, 0.2, 20, 64, 0.03),
    "map-c100-vgg11": ("cifar100", "map_incomplete", "vgg11", 100, 150, 0.2, 20, 64, 0.03),
    "map-cinic-resnet20": ("cinic-10", "map_incomplete", "resnet20", 100, 150, 0.2, 40, 64, 0.05),
    "map-cinic-resnet56": ("cinic-10", "map_incomplete", "resnet56", 100, 150, 0.2, 40, 64, 0.05),
    "map-dir-fa-lenet": (
        "fashion-mnist",
        "dirichlet_client(alpha=0.5)",
        "lenet5",
        100,
        150,
        0.2,
        5,
        64,
        0.03,
    ),
    "map-dir-c10-tfcnn": ("cifar10", "dirichlet_client(alpha=0.5)", "tfcnn", 100, 150, 0.2, 10, 64, 0.03),
    "map-dir-c100-vgg8bn": (
        "cifar100",
        "dirichlet_client(alpha=0.5)",
        "vgg8_bn",
        100,
        150,
        0.2,
        20,
        64,
        0.03,
    ),
    "map-femnist-q10-e2": ("femnist", "natural", "femnistnet", 0, 100, 0.1, 2, 64, 0.004),
    "map-femnist-q10-e5": ("femnist", "natural", "femnistnet", 0, 100, 0.1, 5, 64, 0.004),
    "map-femnist-q10-e10": ("femnist", "natural", "femnistnet", 0, 100, 0.1, 10, 64, 0.004),
    "map-femnist-q30-e2": ("femnist", "natural", "femnistnet", 0, 100, 0.3, 2, 64, 0.004),
    "map-femnist-q30-e5": ("femnist", "natural", "femnistnet", 0, 100, 0.3, 5, 64, 0.004),
    "map-femnist-q30-e10": ("femnist", "natural", "femnistnet", 0, 100, 0.3, 10, 64, 0.004),
    "map-o4": ("mnist", "two_client_demo", "lenet_2d(relu=False)", 2, 10, 1.0, 5, 64, 0.01),
    "persfl-c10-ds1": ("cifar10", "label_k(k=4)", "persfl_cnn", 10, 50, 1.0, 4, 128, 0.01),
    "persfl-c10-ds2": ("cifar10", "dirichlet_class(alpha=0.9)", "persfl_cnn", 10, 25, 1.0, 4, 128, 0.01),
    "persfl-c10-ds3": ("cifar10", "lognormal_2class", "persfl_cnn", 10, 100, 1.0, 4, 128, 0.01),
    "persfl-mnist-ds1": ("mnist", "label_k(k=4)", "persfl_dnn", 10, 100, 1.0, 4, 128, 0.01),
    "persfl-mnist-ds2": ("mnist", "dirichlet_class(alpha=0.9)", "persfl_dnn", 10, 50, 1.0, 4, 128, 0.01),
    "persfl-mnist-ds3": ("mnist", "lognormal_2class", "persfl_dnn", 10, 100, 1.0, 4, 128, 0.01),
    "super-c10": ("cifar10", "pathological_shards", "superfed_cnn", 100, 200, 0.1, 10, 20, 0.01),
    "super-c100": ("cifar100", "pathological_shards", "superfed_cnn", 100, 300, 0.1, 10, 20, 0.01),
    "super-emnist": ("emnist(split=byclass)", "semantic_emnist", "superfed_cnn", 0, 100, 0.1, 10, 20, 0.01),
    "super-tiny": ("tiny-imagenet", "semantic_tiny", "superfed_cnn", 0, 500, 0.1, 10, 20, 0.01),
    "super-L": ("cifar10", "pathological_shards", "superfed_cnn", 100, 200, 0.1, 10, 20, 0.01),
    "super-abl": ("cifar10", "pathological_shards", "superfed_cnn", 100, 100, 0.1, 10, 20, 0.01),
    "super-traj": ("cifar10", "pathological_shards", "superfed_cnn", 100, 2000, 0.1, 10, 20, 0.01),
    "super-BE": ("cifar10", "pathological_shards", "superfed_cnn", 100, 100, 0.1, 10, 20, 0.01),
}
NETS = {"mobilenet": "mobilenet_v1(blocks=11)", "resnet34": "resnet34"}
FLICKR = "natural(min_samples=60, max_samples=290)"
for data, name, ks in (("c10", "cifar10", (4, 8, 10)), ("c100", "cifar100", (40, 80, 100))):
    for short, net in NETS.items():
        for k in ks:
            NUMBERS[f"fedper-{data}-k{k}-{short}"] = (
                *(name, f"label_k(k={k})", net),
                *(10, 100, 1.0, 4, 128, 0.01),
            )
        least = (name, f"label_k(k={ks[0]})", net, 10, 100, 1.0, 4, 128, 0.01)
        NUMBERS[f"fedper-{data}-kp-{short}"] = least
for short, net in NETS.items():
    NUMBERS[f"fedper-ft-c100-{short}"] = ("cifar100", "label_k(k=40)", net, 10, 100, 1.0, 4, 128, 0.01)
    NUMBERS[f"fedper-flickr-{short}"] = ("flickr-aes", FLICKR, net, 30, 100, 1.0, 4, 4, 0.01)
    NUMBERS[f"fedper-ft-flickr-{short}"] = ("flickr-aes", FLICKR, net, 30, 100, 1.0, 4, 4, 0.01)
for name, net in (("fedper-linear-c100", "mobilenet_v1"), ("fedper-linear-c100-resnet34", "resnet34")):
    base = f"linear_base(net={net}, units=2)"
    NUMBERS[name] = ("cifar100", "label_k(k=40)", base, 10, 100, 1.0, 4, 128, 0.01)
base = "linear_base(net=mobilenet_v1, units=2, side=1)"
NUMBERS["fedper-linear-flickr"] = ("flickr-aes", FLICKR, base, 30, 100, 1.0, 4, 4, 0.01)

# momentum, weight decay, weighting, valid, test
OPTIMISER = {
    "fedphp": (0.9, 0.0, "uniform", 0.0, 0.2),
    "map": (0.9, 1e-5, "uniform", 0.0, 0.2),
    "persfl": (0.0, 0.0, "uniform", 0.2, 0.2),
    "superfed": (0.9, 0.0, "samples", 0.0, 0.2),
    "fedper": (0.0, 0.0, "samples", 0.0, 0.0),  # FLICKR-AES holds a fifth out
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_scenario_are_the_papers(name):
    e = scenario(name)
    found = (
        *(e.dataset, e.partition, e.model, e.clients, e.rounds, e.participation_rate),
        *(e.local_epochs, e.batch_size, e.learning_rate),
    )
    assert found == NUMBERS[name]
    rest = (e.momentum, e.weight_decay, e.weighting, e.valid, 0.0 if e.dataset == "flickr-aes" else e.test)
    assert rest == OPTIMISER[find_scenario(name).paper]
    assert (e.clip_norm, e.warmup_rounds, e.lr_decay, e.initialisation) == (None, 0, 1.0, "default")


def test_every_scenario_is_checked_or_says_that_it_cannot_be_run():
    refused = {found.name for found in scenarios() if found.cannot}
    assert refused == {"map-o1-8", "map-o1-5", "map-o1-2", "map-o2", "map-o3"}
    assert {found.name for found in scenarios()} == set(NUMBERS) | refused
    with pytest.raises(UserError, match="scenario map-o2 cannot be run: it follows norms"):
        scenario("map-o2")


def test_every_setting_that_changes_numbers_is_stated():
    """A scenario does not move when a default of the library does."""
    free = {"method", "seed", "data_seed", "precision", "score_valid", "metrics", "under"}
    for found in scenarios():
        assert {f.name for f in dataclasses.fields(Experiment)} - free == set(found.settings())


def test_network_of_every_scenario_takes_its_data():
    rows = {row.name: row for row in data_rows()}
    pairs = {
        (s.settings(p)["model"].value, s.dataset.partition("(")[0]) for s in scenarios() for p in s.presets
    }
    for model, dataset in sorted(pairs):
        row = rows[dataset]
        *_, last = build(model, row.shape, row.classes).parameters()
        assert row.classes in last.shape, (model, dataset)


def test_partition_of_every_scenario_is_known():
    """One that is not, or has no such option, is refused by another sentence than that of its tiny data."""
    texts = {s.settings(p)["partition"].value for s in scenarios() for p in s.presets}
    for text in sorted(texts):
        with pytest.raises(UserError) as refusal:
            partition(text, [0, 1], 3, 0, ids=[0, 0])
        assert "unknown partition" not in str(refusal.value) and "has no option" not in str(refusal.value)


def test_papers_and_scenarios_fit_together():
    used = {name for table in tables() for cell in table.cells for name in cell.scenarios}
    used |= {name for figure in figures() for name in figure.scenarios}
    assert used == {found.name for found in scenarios()}


def test_expected_clients_are_the_papers():
    counts = {"php-femnist": 3550, "php-shake": 1129, "map-femnist-q30-e2": 3550, "super-emnist": 1543}
    counts |= {"super-tiny": 390, "fedper-flickr-resnet34": 30, "php-silo": 20, "map-fa-lenet": 100}
    assert {name: find_scenario(name).expected_clients for name in counts} == counts


@pytest.mark.parametrize("name", [n for n in NUMBERS if n.startswith("map-") and n != "map-o4"])
def test_official_preset_of_map_clips_and_warms_up(name):
    paper, official, clipped = (scenario(name, preset) for preset in ("paper", "official", "clipped"))
    assert (paper.clip_norm, paper.warmup_rounds) == (None, 0)
    assert (official.clip_norm, official.warmup_rounds, official.min_local_steps) == (100.0, 5, 5)
    assert (clipped.clip_norm, clipped.warmup_rounds, clipped.min_local_steps) == (100.0, 0, 0)
    rates = [official.learning_rate_at(r) / official.learning_rate for r in range(7)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("map-fa-mlpnet", {"model": "mlpnet(official=True)", "batch_size": 32, "initialisation": "map"}),
        ("map-dir-fa-lenet", {"model": "lenet_map", "batch_size": 32}),
        ("php-c100", {"model": "vgg11", "weight_decay": 1e-5, "clip_norm": 100.0, "warmup_rounds": 0}),
        ("super-c10", {"lr_decay": 0.999, "weight_decay": 1e-4, "initialisation": "xavier"}),
        ("super-L", {"calibration": "per_batch"}),
        ("super-BE", {"partition": "pathological_shards(deterministic=True)"}),
    ],
)
def test_official_preset_has_the_settings_of_the_authors_code(name, settings):
    found = scenario(name, "official")
    assert {key: getattr(found, key) for key in settings} == settings


def test_augmentation_of_the_authors_code_is_carried():
    assert scenario("map-c10-tfcnn", "official").augmentation == "crop_flip"
    assert scenario("map-c10-tfcnn").augmentation == "none"
    assert scenario("map-fa-lenet", "official").augmentation == "none"


def test_scenes_of_fedphp_look_at_the_selected_in_every_round():
    assert {s.name for s in scenarios() if s.settings()["observe"].value == "always"} == {
        *("php-c10", "php-c100", "php-femnist", "php-c10-tf", "php-c100-tf", "php-silo", "php-shake"),
    }


def test_colour_scenes_of_map_warn_in_preset_paper_alone():
    warned = {found.name for found in scenarios() if found.warning_of("paper")}
    assert warned == {
        *("map-c10-tfcnn", "map-c10-vgg8", "map-c100-vgg8bn", "map-c100-vgg11"),
        *("map-cinic-resnet20", "map-cinic-resnet56", "map-dir-c10-tfcnn", "map-dir-c100-vgg8bn"),
    }
    assert "diverge to chance" in find_scenario("map-c10-tfcnn").warning_of("paper")
    assert not any(find_scenario(name).warning_of("official") for name in warned)


@pytest.mark.parametrize(
    ("name", "asked", "preset", "text"),
    [
        ("map-fa-lenet", "fedavg", "paper", "fedavg"),
        ("map-fa-lenet", "map", "paper", "map(alpha=0.9, transfer=kd, transfer_weight=0.01)"),
        ("map-fa-lenet", "MAP(alpha=0.5)", "paper", "map(alpha=0.5, transfer=kd, transfer_weight=0.01)"),
        ("map-dir-fa-lenet", "fedrs", "paper", "fedrs(alpha=0.9, rule=freq)"),
        ("map-dir-fa-lenet", "fedrs", "official", "fedrs(preset=official, alpha=0.9, rule=freq_max)"),
        ("php-femnist", "fedphp", "paper", "fedphp(transfer=mmd, transfer_weight=0.1, hpm_init=theta0)"),
        ("super-c10", "fedprox", "official", "fedprox(preset=official, weight=0.01, form=norm)"),
        ("super-c10", "apfl + fine_tune(epochs=2)", "paper", "apfl(alpha=0.25) + fine_tune(epochs=2)"),
        ("super-c10", "proximal(weight=1.0)", "paper", "proximal(weight=1.0)"),
        ("persfl-c10-ds1", "persfl(lambdas=(0.0, 0.5))", "paper", "persfl(lambdas=(0.0, 0.5))"),
    ],
)
def test_method_gets_the_options_of_the_scenario_and_keeps_its_own(name, asked, preset, text):
    found = scenario(name, preset, asked)
    assert found.method == text
    assert method(found.method).parts


# eta, eta_p, lambda, beta, batch, rounds; then inner and outer rate and rounds of Per-FedAvg
PERSFL = {
    "persfl-c10-ds1": ((0.01, 0.001, 15, 1, 128, 800), (0.001, 0.001, 800)),
    "persfl-c10-ds2": ((0.01, 0.0025, 15, 1, 128, 1000), (0.01, 0.0025, 800)),
    "persfl-c10-ds3": ((0.01, 0.05, 30, 2, 20, 800), (0.01, 0.0025, 1000)),
    "persfl-mnist-ds1": ((0.02, 0.0025, 15, 1, 128, 800), (0.001, 0.001, 800)),
    "persfl-mnist-ds2": ((0.01, 0.0075, 15, 1, 128, 800), (0.01, 0.01, 800)),
    "persfl-mnist-ds3": ((0.01, 0.05, 30, 2, 20, 800), (0.01, 0.01, 800)),
}


@pytest.mark.parametrize("name", PERSFL)
def test_baselines_of_persfl_have_settings_of_their_own(name):
    (eta, eta_p, weight, beta, batch, rounds), (inner, outer, adapted) = PERSFL[name]
    options = find_scenario(name).options["pfedme"]
    assert (options["outer_rate"], options["inner_rate"], options["weight"]) == (eta, eta_p, weight)
    assert (options["beta"], options["inner_steps"], options["steps"]) == (beta, 5, 20)
    moreau, meta = scenario(name, method="pfedme"), scenario(name, method="perfedavg_fo")
    assert (moreau.batch_size, moreau.rounds) == (batch, rounds)
    assert find_scenario(name).options["perfedavg_fo"] == {"inner_rate": inner, "outer_rate": outer}
    assert (meta.batch_size, meta.rounds, meta.min_local_steps) == (128, adapted, 20)


def test_rounds_of_persfl_are_those_of_its_table_7():
    for cell in next(table for table in tables() if table.id == "persfl-table7").cells:
        assert scenario(cell.scenarios[0], method=cell.method).rounds == cell.value, cell


def test_uses_name_tables_figures_and_methods():
    found = scenario_uses("map-fa-lenet")
    assert found.tables == ("map-table1", "map-table2")
    assert found.figures == ("map-fig10", "map-fig11")
    assert {"fedavg", "map", "scamap", "fedproto", "fedavg_lu(epochs=5)"} <= set(found.methods)


def test_unknown_name_or_preset_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="unknown scenario 'map-c10-tfcn'; did you mean map-c10-tfcnn"):
        scenario("map-c10-tfcn")
    with pytest.raises(UserError, match="scenario fedper-linear-c100 has no preset 'official'; known: paper"):
        scenario("fedper-linear-c100", "official")
    assert find_scenario("super-l") is find_scenario("super-L")


def test_missing_data_are_refused_with_the_command(tmp_path):
    assert not availability("cifar10", tmp_path).present
    with pytest.raises(
        UserError, match=r"needs the dataset cifar10, .*`idiolect datasets get cifar10 --data-dir"
    ):
        refuse_missing_data(find_scenario("map-c10-tfcnn"), tmp_path)
    assert availability("synthetic(skew=0.5)").present


SMALL = """
paper = "map"
[common.paper]
clients = 2
[[scenario]]
name = "a"
line = "l"
"""


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('warnin = "w"', "unknown warnin"),
        ("paper = { rouns = 3 }", "no setting rouns"),
        ("settings = { fedavg = { rouns = 3 } }", "no setting rouns"),
        ('[[scenario]]\nname = "a"\nline = "again"', "scenario a stands twice"),
    ],
)
def test_file_that_is_not_as_it_should_be_is_refused_on_loading(more, problem):
    assert read_scenarios(SMALL)[0].name == "a"
    with pytest.raises(ValueError, match=problem):
        read_scenarios(SMALL + more)


def test_officially_complete_map_is_what_the_official_scenes_of_complete_classes_run():
    official = find_scenario("map-dir-fa-lenet").method_text("map", "official")
    assert "preset=official" in official
    assert fingerprint(method("map(preset=complete_official)").parts) == fingerprint(method(official).parts)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name.startswith("php-")])
def test_scenes_of_fedphp_take_the_papers_features_and_declare_no_difference(name):
    assert not any("features" in sentence for sentence in find_scenario(name).differs)
