"""After its local work a client is scored with the models that it has then, not with halves of two moments."""

from __future__ import annotations

import pytest

from idiolect.core import Batch, Model, Predictor, Result, Tree
from idiolect.engines.device_data import in_order
from idiolect.testing.trial import trained_result

from .midway import Midway, answers, midway
from .sameness import assert_exact
from .tiny import make_engine

AS_SENT = {"global", "teacher"}  # names for what the server sent, now or in an earlier round


def test_predictors_are_those_of_a_client_whose_own_model_is_sent_back(method: str) -> None:
    """If the server answered with what the client has trained, the client would predict as it does already."""
    at, outcomes = midway(method), answers(method, "loop").found["round"]
    for client, outcome in outcomes.items():
        sent_back = at.sent | _shared(at, trained_result(at, client))
        engine = make_engine("loop", at.setting)
        private = outcome.private | _own(at, client, trained_result(at, client))
        (expected,) = engine.evaluate(at.program, sent_back, {client: private}, "test")
        assert outcome.after.keys() - {"after-local"} == expected.keys() - {"after-local"}
        ours = outcome.after.keys() - AS_SENT - {"after-local"}
        assert_exact({n: outcome.after[n] for n in ours}, {n: expected[n] for n in ours})


def test_shared_model_is_scored_as_it_was_sent(method: str) -> None:
    for outcome in answers(method, "loop").found["round"].values():
        sent = outcome.after.keys() & AS_SENT
        assert_exact({n: outcome.after[n] for n in sent}, {n: outcome.before[n] for n in sent})


def test_locally_trained_model_is_the_bare_network_on_what_was_trained(method: str) -> None:
    at, outcomes = midway(method), answers(method, "loop").found["round"]
    if any(part.name == "feature_fusion" for part in at.setting.method.parts):
        pytest.skip("its network also reads the features of the received extractor")
    for client, outcome in outcomes.items():
        assert "after-local" in outcome.after or not any(p.name == "average" for p in at.setting.method.parts)
        if "after-local" in outcome.after:
            trained = trained_result(at, client)
            predictor = Predictor.of(Model(trained.params["model"], trained.buffers["model"]))
            assert_exact(outcome.after["after-local"], at.program.predict(predictor, _test_batch(at, client)))


def _shared(at: Midway, trained: Result) -> Tree:
    names = {"params": at.sent["params"], "buffers": at.sent["buffers"]}
    own = {"params": trained.params["model"], "buffers": trained.buffers["model"]}
    found = {kind: {name: own[kind][name] for name in held} for kind, held in names.items()}
    return found | {"slots": {part: _trained_trees(slot, trained) for part, slot in at.sent["slots"].items()}}


def _own(at: Midway, client: int, trained: Result) -> Tree:
    """Returns what the client alone was sent and has trained beside the model, as it was trained."""
    sent = at.privates[client].get("download", {})
    return {
        "download": {
            part: slot | trained.params[part] for part, slot in sent.items() if part in trained.params
        }
    }


def _trained_trees(slot: Tree, trained: Result) -> Tree:
    """Returns a slot with whole models in it, which train beside the main one or in its place, as they were trained."""
    in_place = {name: "model" if name.startswith("cluster ") else name for name in slot}
    trees = {name: tree for name, tree in in_place.items() if tree in trained.buffers}
    also = {name: (trained.params[tree], trained.buffers[tree]) for name, tree in trees.items()}
    return slot | {name: {"params": params, "buffers": buffers} for name, (params, buffers) in also.items()}


def _test_batch(at: Midway, client: int) -> Batch:
    work = at.setting.work
    ((index, mask, key),) = zip(*in_order(work.federation.clients[client].test), strict=True)
    return work.single(index[mask], mask[mask], key[mask], {})
