"""The app that Flower runs in its own way."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from idiolect.deploy.flower_app import client
from idiolect.deploy.signed_messages import from_record, to_record

from .conftest import Deploy
from .server_requests import Server


def test_client_of_the_app_answers_as_the_site_does(deploy: Deploy) -> None:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    server = Server(deploy())
    message = Message(to_record(server.message()), dst_node_id=1, message_type="query")
    where = {"site": str(server.site.config.folder)}
    context = Context(run_id=1, node_id=1, node_config=where, state=RecordDict(), run_config={})
    answer = server.open(from_record(client(message=message, context=context).content))
    assert answer.header["site"] == "site-0"
    assert "loss" in answer.header and answer.tensors
