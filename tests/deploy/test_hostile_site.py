"""Members that answer wrongly in every way we know: each is left out by name each time, and the others train on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from torch import Tensor

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.answer_schema import follow_up_answer
from idiolect.deploy.configuration import Deployment, read_plan
from idiolect.deploy.keys import private_key
from idiolect.deploy.progress import read_progress
from idiolect.deploy.server import run_server
from idiolect.deploy.signed_messages import SignedMessage, load, seal, sign
from idiolect.deploy.site_requests import ConnectedSites, SiteConnection
from idiolect.errors import UserError
from idiolect.records import read_run

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import assert_close, folder_of, grid_of, play, server_of
from .test_life import Killed, kill_in_round

pytestmark = pytest.mark.usefixtures("without_pauses")

Header = dict[str, Any]
Tensors = dict[str, Tensor]
HOSTILE = ("site-2", "site-3", "site-4")
WEIGHT = "/average/1"
GONE = object()


class Attack(NamedTuple):
    """A wrong answer.

    Args:
        sentence: a part of what the server says of it.
        kind: of the request that is answered so.
        change: alters header and tensors before they are signed.
    """

    sentence: str
    kind: str
    change: Callable[[Header, Tensors], None]


def put(value: Any, *path: Any) -> Callable[[Header, Tensors], None]:
    """Puts a value at a place of the header, or takes out what is there."""

    def change(header: Header, tensors: Tensors) -> None:
        inner: Any = header
        for key in path[:-1]:
            inner = inner[key]
        if value is GONE:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value

    return change


def trained(sentence: str, value: Any, *path: Any) -> Attack:
    return Attack(sentence, "train", put(value, *path))


def followed(sentence: str, value: Any, *path: Any) -> Attack:
    return Attack(sentence, "follow", put(value, *path))


BEFORE, TEST = ("scores", "before", "composed"), ("examined", 1, "composed")
HEADERS = [
    # a field is missing
    trained("base is missing", GONE, "base"),
    trained("base_digest is missing", GONE, "base_digest"),
    trained("loss is missing", GONE, "loss"),
    trained("scores is missing", GONE, "scores"),
    trained("digest is missing", GONE, "digest"),
    trained("work is missing", GONE, "work"),
    trained("scores.after is missing", GONE, "scores", "after"),
    trained("scores.before.composed.ece is missing", GONE, *BEFORE, "ece"),
    followed("examined is missing", GONE, "examined"),
    followed("base is missing", GONE, "base"),
    # of a wrong type
    trained("loss is '0.5' where a finite number", "0.5", "loss"),
    trained("loss is True where a finite number", True, "loss"),
    trained("loss is None where a finite number", None, "loss"),
    trained("base is 'first' where a list of 2", "first", "base"),
    trained("scores is a list of 0 where an object", [], "scores"),
    trained("digest is 5 where 64 hexadecimal digits", 5, "digest"),
    trained("work is an object of 0 where a list of 2", {}, "work"),
    trained("work[0] is 1.5 where a whole number", [1.5, 1.0], "work"),
    followed("examined is an object of 0 where a list of 4", {}, "examined"),
    followed("examined[1].composed.accuracy is 1.0 where a list of 1", 1.0, *TEST, "accuracy"),
    # not finite
    trained("loss is nan", float("nan"), "loss"),
    trained("loss is inf", float("inf"), "loss"),
    trained("loss is a huge number", 10**400, "loss"),
    trained("scores.before.composed.accuracy[0] is nan", [float("nan")], *BEFORE, "accuracy"),
    trained("scores.before.composed.loss[0] is inf", [float("inf")], *BEFORE, "loss"),
    trained("work[1] is inf", [1, float("inf")], "work"),
    followed("examined[1].composed.loss[0] is nan", [float("nan")], *TEST, "loss"),
    # out of range
    trained("scores.before.composed.accuracy[0] is 7", [7], *BEFORE, "accuracy"),
    trained("loss is 1.7e+308 where a finite number from -1e+30 to 1e+30", 1.7e308, "loss"),
    trained("scores.before.composed.loss[0] is 1.7e+308", [1.7e308], *BEFORE, "loss"),
    followed("examined[1].composed.loss[0] is 1.7e+308", [1.7e308], *TEST, "loss"),
    trained("scores.before.composed.accuracy[0] is -0.1", [-0.1], *BEFORE, "accuracy"),
    trained("work[0] is -1", [-1, 1.0], "work"),
    trained("base[0] is 1000000", [10**6, 0], "base"),
    trained("digest is '../../etc/passwd'", "../../etc/passwd", "digest"),
    followed("examined[1].composed.accuracy[0] is 7.0", [7.0], *TEST, "accuracy"),
    # another client's
    trained("scores.before.composed.accuracy is a list of 2", [0.5, 0.5], *BEFORE, "accuracy"),
    trained("scores.before.'other' is not expected", {}, "scores", "before", "other"),
    trained("'clients' is not expected", [0, 1], "clients"),
    followed("examined[0][0] is 0 where", [0], "examined", 0),
    followed("examined[0][0] is 999 where", [999], "examined", 0),
    followed("examined[0] is a list of 2 where a list of 1", [2, 0], "examined", 0),
]


def tensor(sentence: str, change: Callable[[Tensors], Any]) -> Attack:
    return Attack(sentence, "train", lambda header, tensors: change(tensors))


def first(tensors: Tensors) -> str:
    return next(name for name in tensors if name != WEIGHT)


def fill(number: float) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors[first(tensors)].fill_(number)


TENSORS = [
    tensor("is missing", lambda tensors: tensors.pop(first(tensors))),
    tensor("/average/0/extra is not expected", lambda tensors: tensors.update({"/average/0/extra": torch.ones(1)})),
    tensor("is float64[1] where", lambda tensors: tensors.update({first(tensors): torch.ones(1).double()})),
    tensor("is float32[", lambda tensors: tensors.update({first(tensors): tensors[first(tensors)].float()})),
    tensor("numbers that are not finite, the first in /average/0/", fill(float("nan"))),
    tensor("numbers that are not finite, the first in /average/0/", fill(float("inf"))),
    tensor(f"numbers that are not finite, the first in {WEIGHT}", lambda t: t[WEIGHT].fill_(float("nan"))),
    tensor("is usual (norm_bound is 1e+06)", fill(1e38)),
    tensor("upload of average has the norm inf", fill(1e308)),
    tensor("the weight of average in its upload is -1 ", lambda tensors: tensors[WEIGHT].fill_(-1)),
    tensor("the weight of average in its upload is 0 ", lambda tensors: tensors[WEIGHT].fill_(0)),
    tensor("the weight of average in its upload is 1e+30 ", lambda tensors: tensors[WEIGHT].fill_(1e30)),
]  # fmt: skip


class Forgery(NamedTuple):
    """An answer that somebody else could have made.

    Args:
        make: from all that its sender knows, what arrives.
    """

    sentence: str
    make: Callable[[Sender], SignedMessage]


class Sender(NamedTuple):
    """A hostile site as it answers a request.

    Args:
        answer: what it would answer.
        earlier: what it answered in the round before.
        stranger: the answer of another site.
        key, other_key: its own, and that of another site.
    """

    answer: SignedMessage
    earlier: SignedMessage
    stranger: SignedMessage
    key: ec.EllipticCurvePrivateKey
    other_key: ec.EllipticCurvePrivateKey

    def signed(self, **changes: Any) -> SignedMessage:
        """The answer with changes in its header, with a signature that is right."""
        return sign({**json.loads(self.answer.header), **changes}, load(self.answer.body), self.key)


NOT_SIGNED = "a message does not carry the signature of site-"
IDENTITIES = [
    Forgery(NOT_SIGNED, lambda sender: sender._replace(key=sender.other_key).signed()),
    Forgery(NOT_SIGNED, lambda sender: sender.stranger),
    Forgery(NOT_SIGNED, lambda sender: sender.answer._replace(header=sender.stranger.header)),
    Forgery("answers with another site than", lambda sender: sender.signed(site="site-0")),
    Forgery("answers with another experiment than", lambda sender: sender.signed(experiment="mine")),
    Forgery("answers with another serial than", lambda sender: sender.earlier),
    Forgery("answers with another serial than", lambda sender: sender.signed(refused="", serial=[1, 1])),
    Forgery("refused: without a reason", lambda sender: sender.signed(refused="")),
    Forgery("refused: [2Jgone", lambda sender: sender.signed(refused="\x1b[2Jgone")),
    Forgery("its header is not an object", lambda sender: seal(b"[1]", sender.answer.body, sender.key)),
    Forgery("cannot be read: RecursionError", lambda sender: seal(b"[" * 100_000, b"", sender.key)),
    Forgery("cannot be read: SafetensorError", lambda sender: seal(sender.answer.header, b"none", sender.key)),
]  # fmt: skip
ATTACKS: list[Attack | Forgery] = [*HEADERS, *TENSORS, *IDENTITIES]


ROUNDS = len(ATTACKS) // len(HOSTILE)


def attack_of(site: str, round: int) -> Attack | Forgery:
    """The attack that a site makes in a round, from 0."""
    return ATTACKS[HOSTILE.index(site) * ROUNDS + round]


class HostileGrid(FakeGrid):
    """Three of five sites make another attack in every round, and none of their answers is ever right."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(grid_of(deployment).sites)
        sites = deployment.sites
        self.keys = {site.name: private_key(deployment.site_folder(site) / "key") for site in sites}
        self.latest = {site.name: sign({}, {}, self.keys[site.name]) for site in sites}
        self.change = self.changed

    def changed(self, answer: SignedMessage) -> SignedMessage:
        request, header = json.loads(self.log[-1].header), json.loads(answer.header)
        if request["kind"] == "hello":
            return answer
        site = header["site"]
        earlier, self.latest[site] = self.latest[site], answer
        return self.attacked(request, header, earlier) if site in HOSTILE else answer

    def attacked(self, request: Header, header: Header, earlier: SignedMessage) -> SignedMessage:
        site, attack = header["site"], attack_of(header["site"], request["round"])
        answer, stranger = self.latest[site], self.latest["site-0"]
        if isinstance(attack, Forgery) and request["kind"] == "train":
            return attack.make(Sender(answer, earlier, stranger, self.keys[site], self.keys["site-0"]))
        tensors = {name: one.clone() for name, one in load(answer.body).items()}
        in_turn = isinstance(attack, Attack) and attack.kind == request["kind"]
        change = attack.change if isinstance(attack, Attack) and in_turn else put(GONE, "base")
        change(header, tensors)
        return sign(header, tensors, self.keys[site])


def rows_of(deployment: Deployment) -> pd.DataFrame:
    rows = read_run(folder_of(deployment)).rows
    keys = ["round", "client", "split", "predictor", "moment", "population", "metric"]
    return rows[[*keys, "value"]].sort_values(keys).reset_index(drop=True)


def test_attacks_are_as_many_as_promised() -> None:
    assert len(HEADERS) >= 20 and len(TENSORS) >= 7 and len(IDENTITIES) >= 6
    assert ROUNDS * len(HOSTILE) == len(ATTACKS)


def test_every_attack_is_refused_by_name_and_the_others_train_as_without_these_sites(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "synthetic(n_clients=5, samples_per_client=15, n_features=8, n_classes=3)"
    settings = {"rounds": ROUNDS, "evaluate_every": 1, "clients": 5, "dataset": data, "batch_size": 16}
    deployment, alone = deploy(**settings), deploy(**settings)
    grid = HostileGrid(deployment)
    with monkeypatch.context() as patch:
        kill_in_round(patch, ROUNDS // 2, "_record_round")
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)
    before = read_progress(deployment.server)
    assert before is not None
    found = play(deployment, grid)
    assert found["status"] == "finished"
    said = [*before["events"], *found["events"]]
    for site in HOSTILE:
        for round in range(ROUNDS):
            sentence = attack_of(site, round).sentence
            about = [event for event in said if event.startswith(f"round {round + 1}: {site} ")]
            assert any(sentence in event for event in about), (sentence, about)
        assert "round" not in found["sites"][site]
    without = grid_of(alone)
    without.away = {102, 103, 104}
    assert play(alone, without)["status"] == "finished"
    assert_close(server_of(deployment), server_of(alone))
    pd.testing.assert_frame_equal(rows_of(deployment), rows_of(alone), rtol=1e-9, check_exact=False)


GREETINGS = [
    (put("first", "position"), "position is 'first' where a list of 2"),
    (put([1, 2, 3], "position"), "position is a list of 3 where a list of 2"),
    (put(GONE, "seen"), "seen is missing"),
    (put([2**63, 0], "seen"), "seen[0] is 9223372036854775808 where a whole number"),
    (put("later", "seen"), "seen is 'later' where a list of 2"),
    (put(True, "trusted"), "'trusted' is not expected"),
    (put("site-0", "site"), "does not carry the signature of site-0"),
    (put("nobody", "site"), "a node that calls itself 'nobody' is no site of this deployment"),
    (put([0, 0], "serial"), "answers with another serial than"),
    (put("mine", "experiment"), "answers with another experiment than"),
]


@pytest.mark.parametrize(("change", "sentence"), GREETINGS, ids=[sentence for _, sentence in GREETINGS])
def test_site_with_a_wrong_greeting_is_not_connected(
    greeted: Callable[..., tuple[set[str], list[str]]],
    change: Callable[[Header, Tensors], None],
    sentence: str,
) -> None:
    connected, said = greeted(change)
    assert connected == {"site-0", "site-1"}
    assert any(sentence in one for one in said), said


def test_honest_greetings_connect(greeted: Callable[..., tuple[set[str], list[str]]]) -> None:
    assert greeted(lambda header, tensors: None)[0] == {"site-0", "site-1", "site-2"}


@pytest.fixture
def greeted(deploy: Deploy) -> Callable[..., tuple[set[str], list[str]]]:
    """Greets three sites, of which site-2 answers with a change; returns who is connected, and what was said."""
    deployment = deploy()
    grid, key = grid_of(deployment), private_key(deployment.site_folder(deployment.sites[2]) / "key")

    def greet(change: Callable[[Header, Tensors], None]) -> tuple[set[str], list[str]]:
        def changed(answer: SignedMessage) -> SignedMessage:
            header = json.loads(answer.header)
            if header["site"] != "site-2":
                return answer
            change(header, {})
            return sign(header, {}, key)

        grid.change, said = changed, []
        connected = ConnectedSites(deployment.sites, deployment.server / "sites")
        connection = SiteConnection(
            grid,
            read_plan(deployment.server),
            connected,
            private_key(deployment.server / "key"),
            lambda site, what: said.append(f"{site} {what}"),
        )
        connection.wait_for([site.name for site in deployment.sites], 0.1)
        return set(connected.sessions()), said

    return greet


def add_samples(bins: list[Any], cells: list[Any]) -> None:
    """Adds as many to both tables that each number alone could be true."""
    bins.append([2, next(place for place in range(15) if place not in {row[1] for row in bins}), 3, 1.0, 1])
    free = next(
        pair for pair in product(range(3), repeat=2) if pair not in {(row[1], row[2]) for row in cells}
    )
    cells.append([2, *free, 3])


COUNTS = [
    ("[0][1] says again what was said before", lambda bins, cells: bins.insert(1, bins[0])),
    ("[1][1] says again what was said before", lambda bins, cells: cells.insert(1, cells[0])),
    (
        "[0][0] is a list of 5 where no more confidence",
        lambda bins, cells: bins[0].__setitem__(4, bins[0][2] + 1),
    ),
    ("[1][0][3] is -1 where", lambda bins, cells: cells[0].__setitem__(3, -1)),
    (
        "[0][0][2] is 1000000 where a whole number from 0 to 8",
        lambda bins, cells: bins[0].__setitem__(2, 10**6),
    ),
    ("[1][0][3] is 9 where a whole number from 0 to 8", lambda bins, cells: cells[0].__setitem__(3, 9)),
    ("an object of 1 where counts of the same samples, at most 8", lambda bins, cells: cells.pop()),
    (
        "an object of 1 where counts of the same samples, at most 8",
        lambda bins, cells: add_samples(bins, cells),
    ),
    ("[1][0][0] is 0 where 2 is expected", lambda bins, cells: cells[0].__setitem__(0, 0)),
]


def test_counts_that_a_site_may_not_send_are_refused(deploy: Deploy) -> None:
    """The last answer of a run also counts predictions; all wrong ones are looked at by the schema of a real answer."""
    deployment = deploy(rounds=1)
    grid, heard = grid_of(deployment), []
    schemas: list[Any] = []

    def note(answer: SignedMessage) -> SignedMessage:
        header = json.loads(answer.header)
        if header["site"] == "site-2" and header.get("examined", [0, 0, 0, {}])[3]:
            heard.append(header)
        return answer

    def schema(*arguments: Any) -> Any:
        schemas.append((arguments[1].client, follow_up_answer(*arguments)))
        return schemas[-1][1]

    grid.change = note
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiolect.deploy.deployed_sites.follow_up_answer", schema)
        assert play(deployment, grid)["status"] == "finished"
    check = [one for client, one in schemas if client == 2][-1]
    check(heard[-1], "")
    for sentence, change in COUNTS:
        wrong = json.loads(json.dumps(heard[-1]))
        change(*wrong["examined"][3]["composed"])
        with pytest.raises(UserError, match=re.escape(sentence)):
            check(wrong, "")


@pytest.mark.parametrize("newcomers", [0, 1])
def test_counts_of_more_samples_than_a_site_has_are_refused_by_name(deploy: Deploy, newcomers: int) -> None:
    """The site multiplies all that it counts, so that its tables agree."""
    deployment = deploy(rounds=1, newcomers=newcomers)
    grid, key = grid_of(deployment), private_key(deployment.site_folder(deployment.sites[2]) / "key")

    def change(answer: SignedMessage) -> SignedMessage:
        header = json.loads(answer.header)
        scores = header["arrival"][1] if "arrival" in header else header.get("examined", [0, 0, 0, {}])
        if header["site"] != "site-2" or not scores[3]:
            return answer
        for bins, cells in scores[3].values():
            for row in bins:
                row[2:] = [1000 * number for number in row[2:]]
            for row in cells:
                row[3] *= 1000
        return sign(header, {}, key)

    grid.change = change
    found = play(deployment, grid)
    assert found["status"] == "finished"
    said = [
        event for event in found["events"] if "site-2 left out: its answer is against the schema" in event
    ]
    assert len(said) == 1 and "where a whole number from 0 to 8 is expected" in said[0], found["events"]
    record = read_run(folder_of(deployment))
    assert set(record.calibration.client) == set(record.confusion.client) == {0, 1}


def test_newcomer_that_speaks_for_others_does_not_join(deploy: Deploy) -> None:
    deployment = deploy(rounds=1, newcomers=1)
    grid, key = grid_of(deployment), private_key(deployment.site_folder(deployment.sites[2]) / "key")

    def change(answer: SignedMessage) -> SignedMessage:
        header = json.loads(answer.header)
        if "arrival" not in header:
            return answer
        header["arrival"][1][0] = [0]
        return sign(header, {}, key)

    grid.change = change
    found = play(deployment, grid)
    assert found["status"] == "finished"
    sentence = "site-2 left out: its answer is against the schema: arrival[1][0][0] is 0 where 2 is expected"
    assert any(sentence in event for event in found["events"])
    assert set(rows_of(deployment).client) == {0, 1}
