"""The limits of uploads: fewer than half of the sites can neither put honest sites out nor choose their own limit."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable

import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.core import Messages
from idiolect.deploy.configuration import Deployment
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.keys import private_key
from idiolect.deploy.signed_messages import SignedMessage, load, sign
from idiolect.deploy.upload_limits import odd_ones, overlong, overweight
from idiolect.methods import method

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import grid_of, play

pytestmark = pytest.mark.usefixtures("without_pauses")

BOUND = 1e6
TINY = 1e-300


def uploads(*numbers: float, weight: float | None = None) -> dict[str, Messages]:
    """By site, an upload with this number as its weight; where a weight is given, with this norm."""
    made = [(n, 1.0) if weight is None else (weight, n) for n in numbers]
    return {
        f"site-{site}": {"average": ({"w": torch.tensor([norm]).double()}, torch.tensor(heavy).double())}
        for site, (heavy, norm) in enumerate(made)
    }


def sites_out(found: Iterable[str]) -> list[int]:
    return sorted(int(site.removeprefix("site-")) for site in found)


@pytest.mark.parametrize(
    ("own", "weights", "out"),
    [
        (False, [1, 1, 1], []),
        (False, [1, 1, TINY], []),
        (False, [1, 1, 1, TINY, 0.5], []),
        (False, [1, 1, 0.5, 1e3], [3]),
        (False, [1, 0.5], []),
        (False, [1.664], [0]),
        (True, [1.664], []),
        (True, [1.664, TINY], []),
        (True, [1.664, 30.5, TINY], []),
        (True, [1.664, 30.5, 4.0, TINY, TINY], []),
        (True, [1e7, 3e7, 2e7, TINY, TINY], []),
        (True, [1.664, 2.5, 1e9], [2]),
        (True, [1.664, 2.5, 4.0, 1e9, 1e9], [3, 4]),
    ],
)
def test_weights(own: bool, weights: list[float], out: list[int]) -> None:
    sent = uploads(*weights)
    found = overweight(sent, dict.fromkeys(sent, 1.0), {"average"} if own else set(), BOUND)
    assert sites_out(found) == out, found


@pytest.mark.parametrize(
    ("floor", "norms", "out"),
    [
        (0.0, [1, 2, 1e-200], []),
        (0.0, [1, 1e-200], []),
        (0.0, [1, 2, 3, 1e-200, 1e-200], []),
        (0.0, [1, 2, 1e38], [2]),
        (0.0, [1, 2, 3, 1e38, 1e38], [3, 4]),
        (5.0, [1, 1e-200], []),
        (5.0, [1, 1e38], [1]),
        (5.0, [1e38], [0]),
    ],
)
def test_norms(floor: float, norms: list[float], out: list[int]) -> None:
    model = {"params": {"w": torch.tensor([floor]).double()} if floor else {}, "buffers": {}, "slots": {}}
    assert sites_out(overlong(uploads(*norms, weight=1.0), model, BOUND)) == out


@pytest.mark.parametrize(
    ("kinds", "out"),
    [
        ("", []),
        ("a", []),
        ("aa", []),
        ("aba", [1]),
        ("ab", [0, 1]),
        ("ba", [0, 1]),
        ("aabbc", [0, 1, 2, 3, 4]),
    ],
)
def test_first_answer_does_not_decide_which_kind_is_usual(kinds: str, out: list[int]) -> None:
    answers: dict[str, Hashable] = {f"site-{site}": kind for site, kind in enumerate(kinds)}
    assert sites_out(odd_ones(answers)) == out


def test_parts_that_make_their_weights_say_so() -> None:
    assert method("fedas").own_weights == {"informed_average", "buffers"}
    assert method("fedper").own_weights == method("fedproto").own_weights == frozenset()


@pytest.mark.parametrize(
    ("name", "where", "number"),
    [
        ("fedper", "/1/", TINY),
        ("fedper", "/1/", 0.5),
        ("fedas", "/1/", TINY),
        ("fedproto", "/0/", 1e-200),
    ],
)
def test_a_site_that_sends_tiny_numbers_puts_nobody_out(
    deploy: Deploy, name: str, where: str, number: float
) -> None:
    """Two honest sites of three; the third sends a tiny weight, or numbers as small."""
    deployment = deploy(
        DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=3), method=name, rounds=1
    )
    found = play(deployment, grid_with(deployment, 2, where, number))
    assert found["status"] == "finished", found["message"]
    assert not [event for event in found["events"] if "left out" in event]


def test_single_site_with_weights_of_its_own_trains(deploy: Deploy) -> None:
    deployment = deploy(method="fedas", rounds=1)
    grid = grid_with(deployment, 0, "/1/", 1.664)
    grid.away = {101, 102}
    found = play(deployment, grid)
    assert found["status"] == "finished", found["message"]


def grid_with(deployment: Deployment, site: int, where: str, number: float) -> FakeGrid:
    """A grid on which one site uploads this number in all tensors with this in their names."""
    grid, member = grid_of(deployment), deployment.sites[site]
    key = private_key(deployment.site_folder(member) / "key")

    def change(answer: SignedMessage) -> SignedMessage:
        header = json.loads(answer.header)
        if header["site"] != member.name or "loss" not in header:
            return answer
        tensors = load(answer.body)
        for tensor in (one for name, one in tensors.items() if where in f"{name}/"):
            tensor.fill_(number)
        return sign(header, tensors, key)

    grid.change = change
    return grid
