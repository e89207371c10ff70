"""Secure aggregation played through in this process: the numbers are those without it, and no upload is to be seen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.core.noise import SeededNoise
from idiolect.deploy import site as site_module
from idiolect.deploy.configuration import Deployment, read_plan, read_site, write_site
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.keys import private_key
from idiolect.deploy.rollback import exclude_site, roll_back
from idiolect.deploy.server import run_server
from idiolect.deploy.signed_messages import SignedMessage, sign
from idiolect.deploy.site import Site
from idiolect.deploy.tensor_names import flatten
from idiolect.engines import Workload
from idiolect.experiments.rounds.round import FederatedRun
from idiolect.records import NO_CLIENT, read_run
from idiolect.reports import write_page
from idiolect.statistics.run_numbers import run_numbers

from .conftest import PERSFL, Deploy
from .fake_grid import FakeGrid
from .played import folder_of, grid_of, play, server_of

pytestmark = pytest.mark.usefixtures("without_pauses")

PLAIN = DeploymentOptions(plain=True, wait=0.3, grace=0.2, deadline=60, min_sites=3)
SUMS = replace(PLAIN, min_sites=None, secure_aggregation=True)
FIVE = {
    "dataset": "synthetic(n_clients=5, samples_per_client=30, n_features=8, n_classes=3)",
    "clients": 5,
    "rounds": 2,
}
STEPS = ("train", "share", "mask", "unmask")
VALUE_BITS, SITES_BITS = 16, 2  # before the binary point of a number of an upload; of three sites


class StepGrid(FakeGrid):
    """A grid that knows which step a message belongs to, and loses sites in it.

    Args:
        lost, refuses: (node, kind of request) -> whether the node is gone from then on, or refuses this request.
    """

    lost: Callable[[int, str], bool] = lambda self, node, kind: False
    refuses: Callable[[int, str], bool] = lambda self, node, kind: False

    def push_messages(self, messages: Any) -> list[str]:
        found = []
        for message in messages:
            header = json.loads(message.content["envelope"]["header"])
            node = message.metadata.dst_node_id
            if self.lost(node, header["kind"]):
                self.away.add(node)
            if self.refuses(node, header["kind"]):
                self.change = self._refusal
            found += super().push_messages([message])
            self.change = lambda answer: answer
        return found

    def _refusal(self, answer: SignedMessage) -> SignedMessage:
        said = {
            key: value for key, value in json.loads(answer.header).items() if key in ("experiment", "serial")
        }
        site = next(
            one for one in self.sites.values() if one.config.name == json.loads(answer.header)["site"]
        )
        key = private_key(site.config.folder / "key")
        return sign({**said, "site": site.config.name, "refused": "has something else to do"}, {}, key)


def steps_of(deployment: Deployment) -> StepGrid:
    return StepGrid(grid_of(deployment).sites)


def finished(deployment: Deployment, grid: FakeGrid | None = None) -> dict[str, Any]:
    found = play(deployment, grid)
    assert found["status"] == "finished", found["message"]
    return found


def largest_difference(one: Deployment, other: Deployment) -> float:
    found, expected = server_of(one), server_of(other)
    assert found.keys() == expected.keys()
    return max([float((found[name] - leaf).abs().max()) for name, leaf in expected.items()], default=0.0)


# the numbers


@pytest.mark.parametrize(
    ("method", "weighting"), [("fedper", "uniform"), ("fedper", "samples"), ("scamap", "uniform")]
)
def test_one_round_differs_by_no_more_than_the_rounding(deploy: Deploy, method: str, weighting: str) -> None:
    """A summand w v / W of the mean of three sites is rounded to 62 - 2 - 16 = 44 bits: an error of at most 2^-45 each.

    With W the next power of two after the most rows of a site, and at least half of that weight at each site, three
    errors are at most 3 * 2^-45 / (3 / 4): training rows are 60 % of 40 rows, and W is 64.  The factor 1.01 leaves room
    for the rounding of 64-bit numbers of size 1.
    """
    settings = {"method": method, "rounds": 1, "weighting": weighting, "evaluate_every": 1}
    plain, summed = deploy(PLAIN, **settings), deploy(SUMS, **settings)
    finished(plain)
    finished(summed)
    least_share = 1.0 if weighting == "uniform" else 24 / 64
    bits = 62 - SITES_BITS - VALUE_BITS
    assert 0 < largest_difference(summed, plain) <= 1.01 * 2.0 ** -(bits + 1) / least_share
    assert read_plan(summed.server).sums is not None and read_plan(summed.server).sums.rows in (1, 64)


@pytest.mark.parametrize("method", ["map", PERSFL, "local"])
def test_rounds_are_those_without_it_and_scores_are_means(deploy: Deploy, method: str) -> None:
    plain, summed = deploy(PLAIN, method=method), deploy(SUMS, method=method)
    finished(plain)
    finished(summed)
    assert largest_difference(summed, plain) < 1e-10
    assert_rows_are_means(summed, plain)


def assert_rows_are_means(summed: Deployment, plain: Deployment) -> None:
    """Every row without a client is the mean over the clients of the run without sums; losses and work are the same."""
    found, expected = read_run(folder_of(summed)), read_run(folder_of(plain))
    keys = ["round", "split", "predictor", "moment", "population", "metric"]
    clients = expected.rows[(expected.rows.split != "none") & (expected.rows.client != NO_CLIENT)]
    means = clients.groupby(keys, observed=True)["value"].mean().dropna()
    own = found.rows[~found.rows.split.isin(["none", "server"])]
    assert (own.client == NO_CLIENT).all()
    own = own.set_index(keys)["value"].astype(float)
    pd.testing.assert_series_equal(
        own.sort_index(), means.astype(float).sort_index(), rtol=1e-8, atol=1e-8, check_index_type=False
    )
    names = ["round", "cohort", "train_loss", "steps", "flops", "bytes_up", "bytes_down"]
    pd.testing.assert_frame_equal(
        found.rounds[names], expected.rounds[names], rtol=1e-9, check_exact=False, check_dtype=False
    )
    for name in ("steps", "flops", "rounds", "bytes_up"):
        assert found.costs[name].astype(float).sum() == pytest.approx(
            expected.costs[name].astype(float).sum()
        )
    assert {*found.confusion.client, *found.calibration.client} <= {NO_CLIENT}  # of the server's own test set


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "scaffold",
        "fedavgm",
        "fednova",
        "fedcurv",
        "fedproto",
        "fedfu",
        "feddbe",
        "gpfl",
        "fedem",
        "ditto",
        "fedbabu",
    ],
)
def test_other_methods_are_those_without_it(deploy: Deploy, method: str) -> None:
    plain, summed = deploy(PLAIN, method=method), deploy(SUMS, method=method)
    finished(plain)
    finished(summed)
    assert largest_difference(summed, plain) < (1e-6 if method == "fedas" else 1e-8)


@pytest.mark.parametrize("where", ["central", "local"])
def test_privacy_goes_with_it_and_no_number_is_told_even_as_a_sum(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    monkeypatch.setattr(Workload, "noise", property(lambda work: SeededNoise(work.seed)))
    method = f"fedper + client_dp(clip=0.5, noise=2, where={where})"
    plain, summed = deploy(PLAIN, method=method), deploy(SUMS, method=method)
    finished(plain)
    grid = grid_of(summed)
    found = finished(summed, grid)
    assert largest_difference(summed, plain) < 1e-10
    assert read_run(folder_of(summed)).rounds.train_loss.isna().all()
    assert not {"loss", "scores", "work", "examined"} & fields_sent(grid) and "spent" in fields_sent(grid)
    assert "epsilon" in found["sites"]["site-0"] and "mean of 3 sites" not in str(found["events"])


def test_sites_that_share_their_scores_are_in_the_record(deploy: Deploy) -> None:
    plain, summed = deploy(PLAIN, method="map"), deploy(SUMS, method="map")
    for site in summed.sites:
        share_scores(summed, site.name)
    finished(plain)
    finished(summed)
    keys = ["round", "client", "split", "predictor", "moment", "population", "metric"]
    found, expected = (
        read_run(folder_of(one)).rows.set_index(keys)["value"].astype(float).sort_index()
        for one in (summed, plain)
    )
    pd.testing.assert_series_equal(found, expected, rtol=1e-8, atol=1e-8)
    assert len(read_run(folder_of(summed)).confusion) == len(read_run(folder_of(plain)).confusion) > 0


def test_scores_of_one_site_stand_in_the_status_and_the_record_has_the_mean(deploy: Deploy) -> None:
    deployment = deploy(SUMS, rounds=1, evaluate_every=1)
    share_scores(deployment, "site-1")
    found = finished(deployment)
    assert "accuracy" in found["sites"]["site-1"] and "accuracy" not in found["sites"]["site-0"]
    assert set(read_run(folder_of(deployment)).rows.client) == {NO_CLIENT}
    assert any("mean of 3 sites: accuracy" in event for event in found["events"])


def test_newcomer_joins_and_keeps_its_scores(deploy: Deploy) -> None:
    deployment = deploy(replace(SUMS, secure_threshold=2), newcomers=1, rounds=1)
    found = finished(deployment)
    assert any("site-2 has joined" in event for event in found["events"])
    assert "new" not in set(read_run(folder_of(deployment)).rows.population)


def test_report_has_the_mean_and_no_spread(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(SUMS, method="map", rounds=1, evaluate_every=1)
    finished(deployment)
    run = read_run(folder_of(deployment))
    numbers = run_numbers(run)
    own = run.rows[
        (run.rows.split == "test") & (run.rows.population == "all") & (run.rows.moment == "before")
    ]
    mean = own[(own.predictor == "companion") & (own.metric == "accuracy")].value.item()
    assert numbers.personal == pytest.approx(mean) and numbers.clients == 0
    assert math.isnan(numbers.sd_clients) and math.isnan(numbers.worst_tenth)
    found = write_page([run], tmp_path / "page.html")
    assert found.exists()


def share_scores(deployment: Deployment, name: str) -> None:
    (site,) = (one for one in deployment.sites if one.name == name)
    write_site(replace(read_site(deployment.site_folder(site)), share_scores=True))


# what the server sees


Trained = tuple[
    dict[str, torch.Tensor], dict[str, torch.Tensor]
]  # an upload, and the model that it was trained from


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[Trained]:
    """What each site trained in each round, taken before anything is done to it."""
    whole, found = site_module.LoopEngine.round, []

    def round(self: Any, program: Any, server: Any, *others: Any) -> Any:
        outcomes = whole(self, program, server, *others)
        found.extend(({**flatten(one.messages), "loss": one.loss}, server["params"]) for one in outcomes)
        return outcomes

    monkeypatch.setattr(site_module.LoopEngine, "round", round)
    return found


def forms_of(trained: Trained, bits: int) -> Iterator[bytes]:
    """The bytes of each pair of neighbouring numbers of an upload, in the forms that a server might hold it.

    A number that training did not change is the server's own.
    """
    upload, origin = trained
    yield json.dumps(float(upload["loss"])).encode()
    for name, tensor in upload.items():
        sent = origin.get(name.rpartition("/")[2])
        if sent is None:
            continue
        is_new, numbers = (tensor != sent).reshape(-1), tensor.double().reshape(-1).numpy()
        for place in range(len(numbers) - 1):
            if is_new[place : place + 2].all():
                pair = numbers[place : place + 2]
                yield pair.astype(np.float64).tobytes()
                yield pair.astype(np.float32).tobytes()
                yield np.rint(np.ldexp(pair, bits)).astype(np.int64).tobytes()


def seen_by_the_server(deployment: Deployment, grid: FakeGrid) -> bytes:
    """Every byte that was sent to the server, and every byte of its files."""
    received = [piece for message in grid.log for piece in (message.header, message.body)]
    folders = (deployment.server, deployment.folder / "app")
    files = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\0".join([*received, *files])


def fields_sent(grid: FakeGrid) -> set[str]:
    """The names of all fields of what sites answered."""
    answers = (json.loads(message.header) for message in grid.log)
    return {field for answer in answers if "kind" not in answer for field in answer}


@pytest.mark.parametrize("options", [SUMS, PLAIN], ids=["with sums", "without"])
def test_server_holds_no_upload_of_a_single_site(
    deploy: Deploy, uploads: list[Trained], options: DeploymentOptions
) -> None:
    deployment = deploy(options, method="map", rounds=2, evaluate_every=1)
    grid = grid_of(deployment)
    finished(deployment, grid)
    seen = seen_by_the_server(deployment, grid)
    forms = [set(forms_of(trained, bits=44)) for trained in uploads]
    assert len(forms) == 6 and min(map(len, forms)) > 100
    hits = [sum(form in seen for form in each) for each in forms]
    if options.secure_aggregation:
        assert hits == [0] * 6
        assert not {"loss", "scores", "work", "examined"} & fields_sent(grid)
    else:
        assert min(hits) > 30
        assert {"loss", "scores", "work", "examined"} <= fields_sent(grid)


# sites that are lost in a step


def lost_from(site: int, step: str, round: int = 1) -> Callable[[int, str], bool]:
    """Loses a site when it is asked for this step in this round, counted from 1; follow-ups come between rounds."""
    asked = {"train": 0}

    def lost(node: int, kind: str) -> bool:
        asked["train"] += kind == "train" and node == 100
        return node == 100 + site and kind == step and asked["train"] == round

    return lost


@pytest.mark.parametrize("step", STEPS)
def test_site_lost_in_a_step(deploy: Deploy, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is that of the others, unless the site had sent its words: then it is in the sum."""
    monkeypatch.setattr("idiolect.deploy.site_requests.NODES_SECONDS", 0.0)
    settings = {**FIVE, "rounds": 1, "method": "scamap", "evaluate_every": 5}
    summed, plain = deploy(SUMS, **settings), deploy(replace(PLAIN, min_sites=4), **settings)
    grid, without = steps_of(summed), grid_of(plain)
    grid.lost = lost_from(3, step)
    without.away = set() if step == "unmask" else {103}
    found = finished(summed, grid)
    finished(plain, without)
    assert grid.away == {103}
    assert largest_difference(summed, plain) < 1e-12
    said = [event for event in found["events"] if "site-3 left out" in event]
    assert said and ("round" in found["sites"]["site-3"]) == (step == "unmask")


@pytest.mark.parametrize("step", STEPS)
def test_too_few_sites_stop_the_run_and_it_goes_on_with_the_same_numbers(deploy: Deploy, step: str) -> None:
    summed, plain = deploy(SUMS), deploy(PLAIN)
    grid = steps_of(summed)
    grid.refuses = lost_from(1, step, round=2)
    found = play(summed, grid)
    assert found["status"] == "stopped" and found["round"] == 1
    said = "a sum of the uploads of round 2 needs 3 sites and 2 answered (site-1 has something else to do)"
    assert said in found["message"]
    assert not folder_of(summed).exists()
    del grid.refuses
    finished(summed, grid)
    finished(plain)
    assert largest_difference(summed, plain) < 1e-10


def test_evaluation_without_a_sum_costs_the_scores_alone(deploy: Deploy) -> None:
    deployment = deploy(SUMS, rounds=2, evaluate_every=1, method="fedavg")
    masks: list[int] = []

    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        masks.extend([1] if "masked" in tensors else [])
        if "masked" in tensors and len(masks) == 2:
            header["refused"] = "has something else to do"

    found = finished(deployment, lying(deployment, 1, change))
    said = "goes on without a sum: a sum of the scores of round 1 needs 3 sites and 2 answered (site-1 has something"
    assert any(said in event for event in found["events"])
    rows = read_run(folder_of(deployment)).rows
    assert set(
        rows[(rows.moment == "before") & (rows.population == "all") & (rows.split == "test")]["round"]
    ) == {2}


# kills, repetitions and the way back


class Killed(BaseException):
    """The server's process is gone."""


def killed_before(deployment: Deployment, grid: FakeGrid, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a deployment whose server is lost in the second round, after its sum was made."""
    whole = getattr(FederatedRun, step)

    def killed(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.round == 1:
            raise Killed
        return whole(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, step, killed)
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)


def test_server_killed_after_a_sum_makes_the_same_sum_again(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed, plain = deploy(SUMS, method="map"), deploy(PLAIN, method="map")
    grid = grid_of(summed)
    killed_before(summed, grid, "_record_round", monkeypatch)
    finished(summed, grid)
    finished(plain)
    assert largest_difference(summed, plain) < 1e-10


def test_repeated_round_is_the_sum_of_the_same_sites(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the difference of the two sums is the upload of the site that is not in both."""
    monkeypatch.setattr("idiolect.deploy.site_requests.NODES_SECONDS", 0.0)
    deployment = deploy(SUMS, **FIVE)
    grid = grid_of(deployment)
    killed_before(deployment, grid, "_record_round", monkeypatch)
    grid.away = {103}
    found = play(deployment, grid)
    assert found["status"] == "stopped"
    assert "round 2 were added up of site-0, site-1, site-2, site-3, site-4 before" in found["message"]
    noted = deployment.server / "sums.json"
    before = noted.read_bytes()
    noted.unlink()  # a server that forgets meets sites that do not
    found = play(deployment, grid)
    assert found["status"] == "stopped"
    assert (
        "has helped to add up site-0, site-1, site-2, site-3, site-4 for the uploads of round 2"
        in found["message"]
    )
    noted.write_bytes(before)
    grid.away = set()
    finished(deployment, grid)


def test_site_lost_for_good_after_a_sum_needs_a_rollback(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.deploy.site_requests.NODES_SECONDS", 0.0)
    deployment = deploy(SUMS, **FIVE)
    grid = grid_of(deployment)
    killed_before(deployment, grid, "_record_round", monkeypatch)
    exclude_site(deployment, "site-3")
    assert "and a sum without one of them would tell" in play(deployment, grid)["message"]
    roll_back(deployment, 1, lambda sentence: None)
    found = finished(deployment, grid)
    assert found["sites"]["site-4"]["round"] == 2 and "round" not in found["sites"]["site-3"]


@pytest.mark.parametrize("step", ["share", "mask", "unmask"])
def test_site_that_restarts_in_a_step_goes_on(deploy: Deploy, step: str) -> None:
    """A new process answers each step, as with a stock SuperNode; the numbers are those of one that stays."""
    summed, plain = deploy(SUMS, rounds=2), deploy(PLAIN, rounds=2)
    grid = steps_of(summed)

    def lost(node: int, kind: str) -> bool:
        if kind == step and node == 101:
            grid.sites[101] = Site.open(summed.site_folder(summed.sites[1]))
        return False

    grid.lost = lost
    finished(summed, grid)
    finished(plain)
    assert largest_difference(summed, plain) < 1e-10


# sites that lie


def lying(
    deployment: Deployment, site: int, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]
) -> FakeGrid:
    """A grid on which one site changes its answers and signs them."""
    from idiolect.deploy.signed_messages import load  # noqa: PLC0415

    grid, member = grid_of(deployment), deployment.sites[site]
    key = private_key(deployment.site_folder(member) / "key")

    def changed(answer: SignedMessage) -> SignedMessage:
        header, tensors = json.loads(answer.header), load(answer.body)
        if header["site"] != member.name:
            return answer
        change(header, tensors)
        return sign(header, tensors, key)

    grid.change = changed
    return grid


def test_wrong_shares_are_told_apart_while_enough_are_right(deploy: Deploy) -> None:
    summed, plain = deploy(SUMS, **FIVE), deploy(replace(PLAIN, min_sites=5), **FIVE)

    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for name, share in header.get("own", {}).items():
            header["own"][name] = share[:-2] + f"{int(share[-2:], 16) ^ 1:02x}"

    found = finished(summed, lying(summed, 0, change))
    finished(plain)
    assert any("site-0 gave a wrong share of a secret of site-3" in event for event in found["events"])
    assert largest_difference(summed, plain) < 1e-10


def test_wrong_shares_stop_the_run_where_too_few_are_right(deploy: Deploy) -> None:
    deployment = deploy(SUMS)

    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for name in header.get("own", {}):
            header["own"][name] = "00" * 52

    found = play(deployment, lying(deployment, 0, change))
    assert found["status"] == "stopped"
    assert "the mask of site-0 cannot be taken away: the shares of site-0, site-1, site-2" in found["message"]


def test_words_of_another_length_leave_a_site_out(deploy: Deploy) -> None:
    deployment = deploy(SUMS, **FIVE)

    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if "masked" in tensors:
            tensors["masked"] = tensors["masked"][:-1]

    found = finished(deployment, lying(deployment, 2, change))
    assert any("site-2 left out: it sent other words than" in event for event in found["events"])


def test_words_without_masks_that_fit_stop_the_run(deploy: Deploy) -> None:
    """A site that adds anything spoils the sum, which is noticed and whose it is not."""
    deployment = deploy(SUMS)

    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if "masked" in tensors:
            tensors["masked"] = torch.zeros_like(tensors["masked"])

    found = play(deployment, lying(deployment, 2, change))
    assert found["status"] == "stopped"
    assert "larger than 3 sites within their limits make it" in found["message"]


def test_mean_that_is_too_long_is_not_merged(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deploy(replace(SUMS, norm_bound=10.0))
    whole = site_module.pack

    def pack(setting: Any, rules: Any, names: Any, said: Any, upload: Any) -> Any:
        longer = {
            part: (
                {
                    key: {n: 1e3 * leaf for n, leaf in tree.items()} if isinstance(tree, dict) else 1e3 * tree
                    for key, tree in value.items()
                },
                weight,
            )
            for part, (value, weight) in upload.items()
        }
        return whole(setting, rules, names, said, longer)

    monkeypatch.setattr(site_module, "pack", pack)
    found = play(deployment)
    assert found["status"] == "stopped"
    assert (
        "the uploads of round 1 are not merged: its upload of the mean has the norm" not in found["message"]
    )
    assert (
        "the uploads of round 1 are not merged: " in found["message"]
        and "norm_bound is 10" in found["message"]
    )


def test_number_beyond_the_range_leaves_the_site_out_by_name(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.deploy.summed_answers.VALUE_BITS", -20)
    deployment = deploy(SUMS)
    found = play(deployment)
    assert found["status"] == "stopped"
    assert (
        "site-0 /average/0/" in found["message"]
        and "a secure sum takes numbers up to 9.53674e-07" in found["message"]
    )
