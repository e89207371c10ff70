"""Requests are counted, not dated: clocks play no part, and a lost count is found again."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.answer_schema import training_answer
from idiolect.deploy.configuration import Deployment, read_plan
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.keys import private_key
from idiolect.deploy.private_store import SEEN
from idiolect.deploy.server import run_server, server_setting
from idiolect.deploy.server_memory import MEMORY
from idiolect.deploy.signed_messages import SignedMessage, sign
from idiolect.deploy.site import Site
from idiolect.deploy.site_requests import REFUSED_SECONDS, ConnectedSites, SiteConnection
from idiolect.deploy.tensor_names import flatten

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import assert_parity, grid_of, play
from .server_requests import Server
from .test_life import Killed, kill_in_round

pytestmark = pytest.mark.usefixtures("without_pauses")

TWO = DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=2)
FAR = 2_000_000_000_000_000_000  # nanoseconds from 1970: the year 2033


def requests(grid: FakeGrid, kind: str) -> list[SignedMessage]:
    return [message for message in grid.log if json.loads(message.header).get("kind") == kind]


def killed_in_round(
    deployment: Deployment, grid: FakeGrid, round: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_in_round(patch, round, "advance")
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)


def test_starts_are_counted_and_hold_no_time(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)
    killed_in_round(deployment, grid, 1, monkeypatch)
    play(deployment, grid)
    serials = [json.loads(message.header)["serial"] for message in requests(grid, "train")]
    assert {start for start, _ in serials} == {1, 2}
    assert_parity(deployment)


def test_site_that_has_seen_a_far_date_is_counted_from_there(deploy: Deploy) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)
    folder = grid.sites[101].store.folder
    folder.mkdir(parents=True)
    (folder / SEEN).write_text(json.dumps({"serial": [FAR, 5]}))
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert not [event for event in found["events"] if "repetition" in event]
    serials = {
        (header["site"], header["serial"][0])
        for header in (json.loads(message.header) for message in requests(grid, "train"))
    }
    assert serials == {("site-0", 1), ("site-1", FAR + 1), ("site-2", 1)}
    assert_parity(deployment)


@pytest.mark.parametrize("damaged", ["{", '{"start": 1e400, "era": ""}', f'{{"start": {10**30}, "era": ""}}'])
def test_lost_memory_of_the_server_costs_nothing(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    deployment = deploy(TWO)
    grid = grid_of(deployment)
    killed_in_round(deployment, grid, 1, monkeypatch)
    (deployment.server / MEMORY).write_text(damaged)
    found = play(deployment, grid)
    assert any(f"{MEMORY} was damaged and is kept as memory.damaged" in event for event in found["events"])
    assert not [event for event in found["events"] if "repetition" in event]
    assert_parity(deployment)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"serial": 5}',
        b'{"serial": ["a"]}',
        b"[1, 2]",
        b"\xff\xfe",
        b'{"serial": [1e400, 0]}',
        b'{"serial": [%d, 0]}' % 10**30,
        b'{"serial": [1]}',
        b"[" * 100_000,
    ],
)
def test_damaged_count_of_a_site_is_mended_and_no_work_is_done_twice(server: Server, content: bytes) -> None:
    message = server.message()
    assert "loss" in server.open(server.site.reply(message)).header
    (server.site.store.folder / SEEN).write_bytes(content)
    said: list[str] = []
    again = Site(server.site.config, server.plan, server.site.setting, server.site.store, said.append)
    assert "repetition" in server.open(again.reply(message)).header["refused"]
    assert any("was damaged and is kept as seen.damaged" in sentence for sentence in said)
    assert "loss" in server.open(again.reply(server.message())).header


def test_count_that_is_gone_is_that_of_the_private_state(server: Server) -> None:
    message = server.message()
    server.site.reply(message)
    (server.site.store.folder / SEEN).unlink()
    assert "repetition" in server.open(server.site.reply(message)).header["refused"]


@pytest.fixture
def server(deploy: Deploy) -> Server:
    return Server(deploy())


def test_greeting_says_what_a_site_has_accepted_and_changes_nothing(server: Server) -> None:
    assert server.ask(kind="hello")["seen"] is None
    server.ask()
    greeting = server.message(kind="hello")
    for _ in range(2):
        assert server.open(server.site.reply(greeting)).header["seen"] == [1, 2]


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    at: float = 0.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += max(seconds, 0.05)


@pytest.fixture
def connection(deploy: Deploy) -> tuple[SiteConnection, FakeGrid, Clock]:
    deployment = deploy(TWO)
    plan, clock, grid = read_plan(deployment.server), Clock(), grid_of(deployment)
    connected = ConnectedSites(deployment.sites, deployment.server / "sites")
    key = private_key(deployment.server / "key")
    return SiteConnection(grid, plan, connected, key, sleep=clock.sleep, now=clock.now), grid, clock


def test_lost_site_costs_its_grace_once(
    connection: tuple[SiteConnection, FakeGrid, Clock], deploy: Deploy
) -> None:
    made, grid, clock = connection
    setting = server_setting(made.plan, made.connected.keys.parent)
    names = [site.name for site in made.connected.sites]

    def seconds() -> float:
        began = clock.at
        made.request(
            {
                name: {"kind": "train", "round": 0, "observe": False, "known": None, "era": "", "keep": 2}
                for name in names
            },
            dict.fromkeys(names, flatten(setting.first_server())),
            deadline=3600,
            grace=30,
            enough=2,
            schemas={site.name: training_answer(setting, False) for site in made.connected.sites},
        )
        return clock.at - began

    assert seconds() < 5
    grid.away = {102}
    clock.sleep(2)
    assert 30 < seconds() < 35
    assert [seconds() < 5 for _ in range(4)] == [True] * 4
    grid.away = set()
    clock.sleep(2)
    assert seconds() < 5
    grid.away = {102}
    clock.sleep(2)
    assert 30 < seconds() < 35


def test_site_that_refused_its_greeting_is_greeted_again_after_a_while(
    connection: tuple[SiteConnection, FakeGrid, Clock], deploy: Deploy
) -> None:
    made, grid, clock = connection
    said: list[str] = []
    made.heard = lambda site, what: said.append(f"{site} {what}")
    site = grid.sites[102]
    answer, refusals = site.reply, ["busy", "busy"]

    def reply(message: SignedMessage) -> SignedMessage:
        found = answer(message)
        if not refusals:
            return found
        header = {**json.loads(found.header), "refused": refusals.pop()}
        return sign(header, {}, private_key(site.config.folder / "key"))

    object.__setattr__(site, "reply", reply)
    made.wait_for(["site-2"], 200)
    assert "site-2" in made.connected.sessions()
    assert 2 * REFUSED_SECONDS <= clock.at < 3 * REFUSED_SECONDS
    assert said.count("site-2 refused: busy") == 1
    assert said[-1] == "site-2 is connected"
    assert len(requests(grid, "hello")) == 5
