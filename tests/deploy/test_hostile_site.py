"""A member that answers wrongly in every way we know: each time it is left out by name, and the others train on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from torch import Tensor

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import Deployment
from idiolect.deploy.keys import private_key
from idiolect.deploy.progress import read_progress
from idiolect.deploy.server import run_server
from idiolect.deploy.signed_messages import SignedMessage, load, sign
from idiolect.records import read_run

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import assert_close, folder_of, grid_of, play, server_of
from .test_life import Killed, kill_in_round

Header = dict[str, Any]
Tensors = dict[str, Tensor]
HOSTILE = "site-2"
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
    trained("scores.before.composed.accuracy[0] is -0.1", [-0.1], *BEFORE, "accuracy"),
    trained("work[0] is -1", [-1, 1.0], "work"),
    trained("base[0] is 1000000", [10**6, 0], "base"),
    trained("digest is '../../etc/passwd'", "../../etc/passwd", "digest"),
    followed("examined[1].composed.accuracy[0] is 7.0", [7.0], *TEST, "accuracy"),
    # another client's
    trained("scores.before.composed.accuracy is a list of 2", [0.5, 0.5], *BEFORE, "accuracy"),
    trained("scores.before.'other' is not expected", {}, "scores", "before", "other"),
    trained("'clients' is not expected", [0, 1], "clients"),
    followed("examined[0][0] is 0 where 2 is expected", [0], "examined", 0),
    followed("examined[0][0] is 999 where 2 is expected", [999], "examined", 0),
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
        make: from the grid and the true answer, what arrives.
    """

    sentence: str
    make: Callable[[HostileGrid, SignedMessage], SignedMessage]


def signed(grid: HostileGrid, answer: SignedMessage, by: str, **changes: Any) -> SignedMessage:
    """The answer with changes, signed by the key of a site."""
    return sign({**json.loads(answer.header), **changes}, load(answer.body), grid.keys[by])


def raw(header: bytes) -> Callable[[HostileGrid, SignedMessage], SignedMessage]:
    """A header that is no object, with a signature that is right."""

    def make(grid: HostileGrid, answer: SignedMessage) -> SignedMessage:
        forged = sign({}, {}, grid.keys[HOSTILE])._replace(header=header)
        return resigned(forged, grid)

    return make


def resigned(message: SignedMessage, grid: HostileGrid) -> SignedMessage:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    from idiolect.deploy.signed_messages import _signed_bytes  # noqa: PLC0415

    content = _signed_bytes(message.header, message.body)
    return message._replace(signature=grid.keys[HOSTILE].sign(content, ec.ECDSA(hashes.SHA256())))


NOT_SIGNED = "does not carry the signature of site-2"
IDENTITIES = [
    Forgery(NOT_SIGNED, lambda grid, answer: signed(grid, answer, "site-0")),
    Forgery(NOT_SIGNED, lambda grid, answer: grid.honest["site-0"]),
    Forgery(NOT_SIGNED, lambda grid, answer: answer._replace(header=answer.header.replace(b'"loss"', b'"lose"'))),
    Forgery("another site than site-2", lambda grid, answer: signed(grid, answer, HOSTILE, site="site-0")),
    Forgery("another experiment than", lambda grid, answer: signed(grid, answer, HOSTILE, experiment="mine")),
    Forgery("another serial than", lambda grid, answer: grid.earlier),
    Forgery(
        "another serial than",
        lambda grid, answer: signed(grid, grid.earlier, HOSTILE, refused="", serial=[1, 1]),
    ),
    Forgery("refused: without a reason", lambda grid, answer: signed(grid, answer, HOSTILE, refused="")),
    Forgery("refused: [2Jgone", lambda grid, answer: signed(grid, answer, HOSTILE, refused="\x1b[2Jgone")),
    Forgery("its header is not an object", raw(b"[1]")),
    Forgery("cannot be read: RecursionError", raw(b"[" * 100_000)),
    Forgery("cannot be read: SafetensorError", lambda grid, answer: resigned(answer._replace(body=b"nothing"), grid)),
]  # fmt: skip
ATTACKS: list[Attack | Forgery] = [*HEADERS, *TENSORS, *IDENTITIES]


class HostileGrid(FakeGrid):
    """In round r site-2 makes the r-th attack, and no answer of it is right in any round."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(grid_of(deployment).sites)
        self.keys = {
            site.name: private_key(deployment.site_folder(site) / "key") for site in deployment.sites
        }
        self.honest: dict[str, SignedMessage] = {}
        self.earlier = sign({}, {}, self.keys[HOSTILE])
        self.change = self.attacked

    def attacked(self, answer: SignedMessage) -> SignedMessage:
        request, said = json.loads(self.log[-1].header), json.loads(answer.header)
        if request["kind"] == "hello":
            return answer
        if said["site"] != HOSTILE:
            self.honest[said["site"]] = answer
            return answer
        attack = ATTACKS[request["round"]]
        if isinstance(attack, Forgery) and request["kind"] == "train":
            forged = attack.make(self, answer)
        else:
            tensors = {name: one.clone() for name, one in load(answer.body).items()}
            is_it = isinstance(attack, Attack) and attack.kind == request["kind"]
            (attack.change if isinstance(attack, Attack) and is_it else put(GONE, "base"))(said, tensors)
            forged = sign(said, tensors, self.keys[HOSTILE])
        self.earlier = answer
        return forged


@pytest.fixture(scope="module", autouse=True)
def without_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiolect.deploy.site_requests.POLL_SECONDS", 0.0)
        patch.setattr("os.fsync", lambda handle: None)  # the disk is slow when others work
        yield


def rows_of(deployment: Deployment) -> pd.DataFrame:
    rows = read_run(folder_of(deployment)).rows
    keys = ["round", "client", "split", "predictor", "moment", "population", "metric"]
    return rows[[*keys, "value"]].sort_values(keys).reset_index(drop=True)


def test_attacks_are_as_many_as_promised() -> None:
    assert len(HEADERS) >= 20 and len(TENSORS) >= 7 and len(IDENTITIES) >= 6


def test_every_attack_is_refused_by_name_and_the_others_train_as_without_that_site(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "synthetic(n_clients=3, samples_per_client=15, n_features=8, n_classes=3)"
    settings = {"rounds": len(ATTACKS), "evaluate_every": 1, "dataset": data}
    deployment, alone = deploy(**settings), deploy(**settings)
    grid = HostileGrid(deployment)
    with monkeypatch.context() as patch:
        kill_in_round(patch, len(HEADERS), "_record_round")
        with pytest.raises(Killed):
            run_server(grid, deployment.folder)
    before = read_progress(deployment.server)
    assert before is not None
    found = play(deployment, grid)
    assert found["status"] == "finished"
    said = [*before["events"], *found["events"]]
    for round, attack in enumerate(ATTACKS, 1):
        about = [event for event in said if event.startswith(f"round {round}: {HOSTILE} ")]
        assert any(attack.sentence in event for event in about), (attack.sentence, about)
    assert "round" not in found["sites"][HOSTILE]
    without = grid_of(alone)
    without.away = {102}
    assert play(alone, without)["status"] == "finished"
    assert_close(server_of(deployment), server_of(alone))
    pd.testing.assert_frame_equal(rows_of(deployment), rows_of(alone), rtol=1e-9, check_exact=False)
