"""What a site refuses, what the server refuses, and what is said before a method starts."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import individual_uploads, read_site, write_site
from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment
from idiolect.deploy.keys import write_key_pair
from idiolect.deploy.signed_messages import SignedMessage, from_record, to_record
from idiolect.deploy.site import Site
from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.methods.catalogue import METHODS

from .conftest import EXPERIMENT, Deploy
from .played import grid_of, play
from .server_requests import Server


@pytest.fixture
def server(deploy: Deploy) -> Server:
    return Server(deploy())


def test_message_of_the_server_is_answered(server: Server) -> None:
    assert "loss" in server.ask()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"experiment": "another"}, "knows the experiment .* and not another"),
        ({"code": "changed"}, "the method's code is changed where site-0 agreed to"),
        ({"site": "site-1"}, "a message for site-1 came to site-0"),
        ({"serial": [0, 1]}, "repetition"),
    ],
)
def test_site_refuses_what_it_did_not_agree_to(
    server: Server, changes: dict[str, Any], sentence: str
) -> None:
    server.ask()
    answer = server.ask(**changes)
    assert "loss" not in answer
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(answer["refused"])


def test_site_refuses_a_parameter_of_unexpected_shape_and_keeps_its_state(server: Server) -> None:
    name = next(iter(server.sent))
    answer = server.ask({**server.sent, name: torch.zeros(1)})
    assert f"{name} is float32[1] where" in answer["refused"]
    assert server.site.store.versions() == []


def test_site_refuses_a_tampered_message(server: Server) -> None:
    message = server.message()
    answer = server.open(server.site.reply(message._replace(body=message.body[:-1] + b"\1")))
    assert "does not carry the signature of the server" in answer.header["refused"]
    assert server.site.store.versions() == []


def test_site_refuses_a_repeated_message(server: Server) -> None:
    message = server.message()
    assert "loss" in server.open(server.site.reply(message)).header
    assert "repetition" in server.open(server.site.reply(message)).header["refused"]


OWN = """
from idiolect.methods import method, register
from idiolect.methods.catalogue import METHODS

if "mine" not in METHODS:
    register("mine", lambda: method("fedper"))
"""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (SafetensorError("I/O error: No space left on device"), "its private state cannot be written"),
    ],
)
def test_site_whose_disk_is_full_says_so_and_trains_when_there_is_space_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, fault: Exception, reason: str
) -> None:
    def write(*given: object) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr("idiolect.deploy.private_store.write_tensors", write)
        assert server.ask()["refused"] == f"the folder of site-0 cannot be used: {reason}; its log says more"
    assert "loss" in server.ask()


def test_own_method_is_deployed_and_a_changed_one_does_not_start(deploy: Deploy, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    deployment = deploy(DeploymentOptions(plain=True, wait=0.5, code=own), method="mine")
    assert play(deployment)["status"] == "finished"
    folder = deployment.site_folder(deployment.sites[0])
    (folder / "own.py").write_text(OWN + "# changed\n")
    with pytest.raises(UserError, match=r"the method's code is .* where site-0 agreed to"):
        Site.open(folder)
    METHODS.pop("mine")


def test_site_of_another_experiment_does_not_start(deploy: Deploy) -> None:
    deployment = deploy()
    config = read_site(deployment.site_folder(deployment.sites[0]))
    write_site(replace(config, experiment="another"))
    with pytest.raises(UserError, match="knows the experiment another and not"):
        Site.open(config.folder)


def test_server_leaves_out_an_answer_that_was_tampered_with(deploy: Deploy) -> None:
    deployment = deploy()
    grid = grid_of(deployment)

    def change(message: SignedMessage) -> SignedMessage:
        if b'"loss"' in message.header and b"site-1" in message.header:
            return message._replace(body=message.body[:-1] + bytes([message.body[-1] ^ 1]))
        return message

    grid.change = change
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any("site-1 refused: a message does not carry the signature" in event for event in found["events"])
    assert "round" not in found["sites"]["site-1"]


def test_node_without_a_members_key_stays_a_stranger(deploy: Deploy) -> None:
    deployment = deploy(DeploymentOptions(plain=True, wait=0.3, grace=0.1, min_sites=2))
    grid = grid_of(deployment)
    write_key_pair(deployment.site_folder(deployment.sites[2]))
    found = play(deployment, grid)
    assert found["status"] == "finished"
    assert any("signature of site-2" in event for event in found["events"])
    assert "round" not in found["sites"].get("site-2", {})


def test_record_that_is_no_message_of_ours_is_refused(deploy: Deploy) -> None:
    server = Server(deploy())
    record = to_record(server.message())
    del record["envelope"]
    with pytest.raises(UserError, match="not made by Idiolect"):
        from_record(record)


def test_method_that_looks_at_single_uploads_says_so() -> None:
    assert "looks at each site's upload by itself" in individual_uploads(method("feddf"))
    assert individual_uploads(method("fedper")) == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            DeploymentOptions(plain=True, address="192.168.0.7:9093"),
            "plain connections are for trials on loopback",
        ),
        (DeploymentOptions(address="nowhere"), "address must be host:port"),
        (DeploymentOptions(address="[::1]:9093"), "the server listens at an IPv4 address"),
        (DeploymentOptions(min_sites=4), "min_sites must be in"),
        (DeploymentOptions(code=Path("missing.py")), "there is no file missing.py"),
    ],
)
def test_init_refuses_and_leaves_nothing(tmp_path: Path, options: DeploymentOptions, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        create_deployment(EXPERIMENT, tmp_path / "made", options)
    assert not (tmp_path / "made").exists()
