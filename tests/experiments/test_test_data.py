"""Where training and test samples come from: the pool, the clients' test data, the server's; nothing in two places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from idiolect.data import Dataset
from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Experiment, prepare, run, with_settings
from idiolect.reproduction.quick_experiment import quick_experiment
from idiolect.reproduction.scenarios import find_scenario, scenario, scenarios

N_TRAIN, N_TEST, CLASSES = 200, 50, 10
PLACE = EngineChoice("loop", "cpu", "a test")


@pytest.fixture
def data() -> Dataset:
    """Every image is its own number, so that a sample can be recognised wherever it turns up."""
    number = np.arange(N_TRAIN + N_TEST, dtype=np.uint8).reshape(-1, 1, 1, 1)
    label = np.arange(N_TRAIN + N_TEST, dtype=np.int64) % CLASSES
    x = np.broadcast_to(number, (len(number), 1, 4, 4)).copy()
    return Dataset(
        "numbered",
        x[:N_TRAIN],
        label[:N_TRAIN],
        x[N_TRAIN:],
        label[N_TRAIN:],
        CLASSES,
        (0.0,),
        (1 / 255,),
        {},
    )


@pytest.fixture
def experiment() -> Experiment:
    return Experiment(partition="label_k(k=4)", clients=10, model="mlpnet(hidden=4)", rounds=1, valid=0.0)


def numbers(rows: np.ndarray) -> list[int]:
    return sorted(np.rint(rows[:, 0, 0, 0]).astype(int).tolist())


def held(federation, split: str) -> list[list[int]]:
    """The samples of each client's split."""
    return [numbers(federation.x[getattr(rows, split)]) for rows in federation.clients]


def everybodys(federation, split: str) -> list[int]:
    return [number for own in held(federation, split) for number in own]


def test_defaults_change_nothing(data, experiment):
    plain = prepare(experiment, PLACE, dataset=data).federation
    assert len(plain.x) == N_TRAIN and numbers(plain.server_x) == list(range(N_TRAIN, N_TRAIN + N_TEST))
    assert max(max(one) for split in ("train", "test") for one in held(plain, split)) < N_TRAIN


# ---- the official test set as the clients'


def test_official_test_set_is_shared_out_by_the_rule_for_training(data, experiment):
    """Four of ten classes on ten clients: four hold a class, floor(20 / 4) training and floor(5 / 4) test rows each."""
    chosen = replace(experiment, client_test="official", test=0.0)
    federation = prepare(chosen, PLACE, dataset=data).federation
    train, test = federation.class_counts("train"), federation.class_counts("test")
    assert (np.count_nonzero(train, axis=1) == 4).all() and set(train[train > 0]) == {5}
    assert ((test > 0) == (train > 0)).all() and set(test[test > 0]) == {1}
    everyone = everybodys(federation, "test")
    assert len(set(everyone)) == len(everyone) == 40 and min(everyone) >= N_TRAIN
    trained = everybodys(federation, "train")
    assert sorted(trained) == list(range(N_TRAIN))  # nothing is held out of the training part
    assert numbers(federation.server_x) == list(range(N_TRAIN, N_TRAIN + N_TEST))
    assert federation.server_y.tolist() == data.test_y.tolist()


def test_shares_follow_unequal_numbers(data, experiment):
    """floor(m_c n_uc / n_c), by hand from the training counts."""
    chosen = replace(
        experiment, partition="dirichlet_class(alpha=0.9)", clients=3, client_test="official", test=0.0
    )
    federation = prepare(chosen, PLACE, dataset=data).federation
    train, test = federation.class_counts("train"), federation.class_counts("test")
    for client in range(3):
        for c in range(CLASSES):
            assert test[client, c] == 5 * train[client, c] // train[:, c].sum()


def test_validation_and_public_samples_leave_the_official_test_set_alone(data, experiment):
    chosen = replace(experiment, client_test="official", test=0.0, valid=0.25, public=10)
    federation = prepare(chosen, PLACE, dataset=data).federation
    seen = set(numbers(federation.x[federation.public]))
    tested = set(everybodys(federation, "test"))
    assert len(seen) == 10 and not seen & tested and not seen & set(numbers(federation.server_x))
    assert tested <= set(numbers(federation.server_x))
    assert federation.clients.sizes("valid").tolist() == [5] * 10
    assert max(everybodys(federation, "valid")) < N_TRAIN


def test_newcomers_keep_their_own_share(data, experiment):
    chosen = replace(experiment, client_test="official", test=0.0, newcomers=3)
    federation = prepare(chosen, PLACE, dataset=data).federation
    train, test = federation.class_counts("train"), federation.class_counts("test")
    assert ((test > 0) == (train > 0)).all() and federation.population == 7


# ---- both parts as one pool


def test_pool_of_both_parts_is_shared_out_and_tested_on_what_nobody_trains_on(data, experiment):
    chosen = replace(experiment, pool="train_and_test", valid=0.2, test=0.2)
    setting = prepare(chosen, PLACE, dataset=data)
    federation = setting.federation
    parts = {split: everybodys(federation, split) for split in ("train", "valid", "test")}
    everything = sorted(parts["train"] + parts["valid"] + parts["test"])
    assert len(set(everything)) == len(everything) and max(everything) >= N_TRAIN
    assert setting.partition_report["n_rows"] == N_TRAIN + N_TEST
    assert numbers(federation.server_x) == sorted(parts["test"])
    assert not set(numbers(federation.server_x)) & set(parts["train"] + parts["valid"])


def test_run_on_the_embedded_data_scores_the_clients_on_official_samples(tmp_path):
    small = Experiment(
        partition="label_k(k=4)",
        clients=10,
        rounds=1,
        participation_rate=0.2,
        client_test="official",
        test=0.0,
    )
    done = run(small, out=tmp_path, engine="loop", device="cpu")
    assert done.manifest["spec"]["client_test"] == "official"
    assert ((done.rows["split"] == "test") & (done.rows["metric"] == "accuracy")).any()


# ---- refusals


@pytest.mark.parametrize(
    ("settings", "piece"),
    [
        ({"pool": "all"}, "pool must be one of train, train_and_test; got 'all'"),
        ({"client_test": "server"}, "client_test must be one of split, official"),
        ({"client_test": "official"}, "nothing is held out of the clients' samples; set test to 0, not 0.2"),
        ({"test": 0.0}, "every client needs samples to be scored on"),
        (
            {"pool": "train_and_test", "client_test": "official", "test": 0.0},
            "leaves no official test set; set client",
        ),
        ({"pool": "train_and_test", "public": 5}, "no official test set to draw public samples from"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, piece):
    with pytest.raises(UserError, match=piece):
        with_settings(Experiment(), settings)


@pytest.mark.parametrize("settings", [{"client_test": "official", "test": 0.0}, {"pool": "train_and_test"}])
def test_natural_clients_keep_their_own_split(tiny, data, settings):
    chosen = with_settings(tiny, settings)
    with pytest.raises(UserError, match=r"names none|names no owners|no official test set|no test part"):
        prepare(chosen, PLACE)
    owned = replace(data, train_ids=np.arange(N_TRAIN) % 4)
    with pytest.raises(
        UserError, match=r"names none; set client_test to split|names no owners; set pool to train"
    ):
        prepare(chosen, PLACE, dataset=owned)


def test_data_without_a_test_part_are_refused(data, experiment):
    whole = data.pooled()
    with pytest.raises(UserError, match="'numbered' has no official test set; set client_test to split"):
        prepare(replace(experiment, client_test="official", test=0.0), PLACE, dataset=whole)
    with pytest.raises(UserError, match="'numbered' has no test part to join"):
        prepare(replace(experiment, pool="train_and_test"), PLACE, dataset=whole)


def test_client_without_a_test_sample_is_refused_by_name(data, experiment):
    chosen = replace(experiment, partition="iid", clients=60, client_test="official", test=0.0)
    with pytest.raises(UserError, match=r"client \d+ gets none of the 50 samples of the official test set"):
        prepare(chosen, PLACE, dataset=data)


def test_deployment_splits_every_sites_own_rows(tmp_path):
    chosen = Experiment(partition="label_k(k=4)", clients=10, client_test="official", test=0.0)
    with pytest.raises(UserError, match="tests every site on rows of its own; set client_test to split"):
        create_deployment(chosen, tmp_path / "deployment", DeploymentOptions(plain=True))
    assert not (tmp_path / "deployment").exists()


# ---- scenes


def test_scenes_take_their_data_as_their_papers_do():
    """FedPer: 50 000 training and 10 000 test samples; PersFL: 60 000 of CIFAR-10, 70 000 of MNIST in one pool."""
    for found in scenarios():
        given = {key: one.value for key, one in found.settings().items()}
        official = found.paper == "fedper" and found.dataset != "flickr-aes"
        assert given["client_test"] == ("official" if official else "split"), found.name
        assert given["pool"] == ("train_and_test" if found.paper == "persfl" else "train"), found.name
        assert not any("official training set" in sentence for sentence in found.differs)
    pool = find_scenario("persfl-c10-ds1").settings()["pool"]
    assert pool.origin == "paper" and "60 000" in pool.reason
    assert find_scenario("fedper-c10-k4-resnet34").settings()["client_test"].origin == "inferred"


@pytest.mark.parametrize("name", ["fedper-c100-k40-mobilenet", "fedper-linear-c100", "persfl-mnist-ds3"])
def test_quick_scenes_can_be_prepared(name):
    setting = prepare(quick_experiment(scenario(name, method="fedper")), PLACE)
    assert min(setting.federation.clients.sizes("test")) > 0
