"""What the server sends to single clients, on every engine, after a resume and in bytes; slots that it trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import idiolect
from idiolect.core import Messages, broadcast, chain, keep_uploads
from idiolect.core.trees import count_scalars
from idiolect.engines import CohortEngine, LoopEngine, PoolEngine
from idiolect.errors import UserError
from idiolect.experiments import FinishedRun, Simulation
from idiolect.federation import KEPT_ROWS, KeptUploads
from idiolect.methods import register
from idiolect.methods.catalogue import METHODS
from idiolect.parts import average
from idiolect.testing import check_method, tiny_run, tiny_setting
from idiolect.testing.recorder import Recorder
from idiolect.testing.sameness import assert_equal, assert_exact, states
from idiolect.testing.tiny_federation import play

from ..told_apart import NAME, drawn_slot, remembering, told_apart

SETTINGS = {"model": "mlpnet(hidden=8)", "rounds": 4, "participation_rate": 0.6}


@pytest.fixture
def registered() -> Iterator[str]:
    register("told_apart", told_apart)
    yield "told_apart"
    del METHODS["told_apart"]


def test_each_client_gets_the_middle_of_the_shared_model_and_its_own_last_upload() -> None:
    setting = tiny_setting(told_apart(), **SETTINGS)
    recorder = Recorder(LoopEngine(setting.work))
    simulation = Simulation.start(setting, recorder)
    uploads: dict[int, Any] = {}
    heard: dict[int, int] = {}
    for round in range(4):
        shared = simulation.server["params"]
        simulation.advance()
        passed = recorder.rounds[round]
        assert passed.sent["params"] == {}, "nothing that is replaced travels"
        for client, private in passed.privates.items():
            last = uploads.get(client, setting.initial(0).params)
            expected = {name: (last[name] + shared[name]) / 2 for name in shared}
            assert_equal(private["download"][NAME]["params"], expected)
            assert float(private["download"][NAME]["times"]) == heard.get(client, 0)
        for client, outcome in passed.outcomes.items():
            uploads[client] = outcome.messages[NAME][0]
            heard[client] = heard.get(client, 0) + 1
            assert set(outcome.private) == {"buffers", "slots"}, "a download is not kept"
    assert max(heard.values()) > 1
    assert float(simulation.server["slots"][NAME]["uploads"]) == sum(heard.values())


@pytest.mark.parametrize("scored", [True, False])
def test_a_part_with_downloads_keeps_all_contracts(scored: bool) -> None:
    check_method(told_apart(scored))


def test_clients_are_scored_with_what_they_would_be_sent_only_where_the_part_says_so() -> None:
    with_own, without = (tiny_run(told_apart(scored), **SETTINGS) for scored in (True, False))
    assert_exact(states(with_own), states(without))
    setting, everyone = with_own.setting, range(with_own.setting.federation.population)
    program, privates = setting.program(4), with_own.store.rows(everyone)
    for run, differs in ((with_own, True), (without, False)):
        sent = run.participants.downloads.for_follow_up(program, run.server, everyone)
        given = sent.with_own(privates)
        mine = LoopEngine(setting.work).evaluate(program, sent.shared, given, "test")
        shared = LoopEngine(setting.work).evaluate(
            program, broadcast(setting.method, run.server), privates, "test"
        )
        same = [torch.equal(one["mine"], other["mine"]) for one, other in zip(mine, shared, strict=True)]
        assert same.count(True) == (0 if differs else len(same))


ENGINES: dict[str, Callable[..., Any]] = {
    "cohort": lambda work: CohortEngine(work, compile="none"),
    "traced": lambda work: CohortEngine(work, compile="flat"),
    "pool": lambda work: PoolEngine(work, workers=2),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree(engine: str) -> None:
    loop = tiny_run(told_apart(), **SETTINGS)
    other = play(loop.setting, ENGINES[engine](loop.setting.work))
    assert_equal(states(other), states(loop))
    heard = list(loop.participants.downloads.kept.heard)
    kept = [run.participants.downloads.kept.together(heard) for run in (other, loop)]
    assert_equal(*kept)


@pytest.mark.slow
def test_ray_agrees_and_keeps_no_rows_with_its_workers() -> None:
    ray = pytest.importorskip("idiolect.engines.ray.engine")
    loop = tiny_run(told_apart(), **SETTINGS)
    assert_equal(states(play(loop.setting, ray.RayEngine(loop.setting.work, workers=2))), states(loop))


def test_bytes_are_those_of_the_download_and_not_those_that_it_replaces() -> None:
    setting = tiny_setting(told_apart(), **SETTINGS)
    run = play(setting, recorder := Recorder(LoopEngine(setting.work)))
    table = run.rounds.table().to_pylist()
    for row, passed in zip(table, recorder.rounds, strict=False):
        each = [count_scalars(passed.sent) + count_scalars(p["download"]) for p in passed.privates.values()]
        assert row["bytes_down"] == 4 * sum(each)
        assert each == [setting.n_parameters + 1] * len(passed.outcomes)


def test_an_interrupted_run_goes_on_with_what_the_server_kept(
    registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(out: Path, **more: Any) -> FinishedRun:
        data = {"dataset": "synthetic(n_clients=5, samples_per_client=30, n_features=6, n_classes=3)"}
        common = {**SETTINGS, **data, "partition": "by_id", "clients": 5, "engine": "loop", "newcomers": 1}
        return idiolect.run(registered, **common, out=out, checkpoint_every=1, quiet=True, **more)

    whole = made(tmp_path / "whole")
    run_module = sys.modules["idiolect.experiments.run"]
    real, count = run_module._checkpoint, iter(range(9))

    def interrupted(*given: Any) -> int:
        last = real(*given)
        if next(count) == 1:
            raise KeyboardInterrupt
        return last

    monkeypatch.setattr(run_module, "_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "cut")
    monkeypatch.undo()
    resumed = made(tmp_path / "cut", resume=True)
    assert_exact(resumed.server, whole.server)
    assert resumed.rows.equals(whole.rows)
    assert len(list((resumed.folder / KEPT_ROWS).rglob("rows"))) == 1, "a finished run keeps one generation"
    assert resumed.manifest["kept_by_server"]["store"] == "disk"
    for client in whole.clients:
        ours, theirs = (dict(run.model(client).named_parameters()) for run in (resumed, whole))
        assert_exact(ours, theirs)
    sent = whole.downloads(whole.setting).send(whole.program, whole.server, [0])
    served = list(whole.model(whole.clients[0]).parameters())
    for leaf in sent.own[NAME]["params"].values():
        assert any(torch.equal(parameter, leaf[0]) for parameter in served), "scored with its own download"


def test_of_two_uploads_of_a_client_the_later_one_is_kept() -> None:
    setting = tiny_setting(told_apart(), **SETTINGS)
    program, server = setting.program(0), setting.first_server()
    kept = KeptUploads.in_memory(setting.first_kept, 5)
    value = {name: torch.stack([0 * p, 0 * p + 1, 0 * p + 2]) for name, p in server["params"].items()}
    messages: Messages = {NAME: (value, torch.ones(3))}
    after, clients, rows = keep_uploads(program, server, [1, 3, 3], messages, kept.of, seed=0)
    kept.write(clients, rows)
    assert clients == [1, 3] == list(kept.heard)
    assert float(after["slots"][NAME]["uploads"]) == 2
    for client, number in ((3, 2), (1, 0)):
        assert {float(leaf.mean()) for leaf in kept.of(NAME).rows([client])["model"].values()} == {number}


def test_a_download_of_another_form_in_a_later_round_is_refused_before_training() -> None:
    part = remembering()

    def growing(clients: Any, view: Any) -> Any:
        found = part.personal_download(clients, view)
        more = {"heard": torch.zeros(len(clients), len(view.kept.clients))}
        return {**found, **more}

    setting = tiny_setting(chain(part._replace(personal_download=growing), name="growing"))
    with pytest.raises(UserError, match="a download has one form in all rounds"):
        setting.forms  # noqa: B018 - tries the method


def test_methods_say_that_their_server_reads_single_uploads() -> None:
    assert told_apart().reads_single_uploads and told_apart().downloads and told_apart().keeps
    plain = chain(average())
    assert not (plain.reads_single_uploads or plain.downloads or plain.keeps)


# ---- slots that the server trains


def test_the_server_trains_a_slot_by_its_own_stage() -> None:
    """Two steps of SGD of rate 1/2 on |s - draw - target|^2 / 2: s <- (s + draw + target) / 2."""
    setting = tiny_setting(chain(average(), drawn_slot(), name="slotted"), **SETTINGS)
    simulation = Simulation.start(setting, recorder := Recorder(LoopEngine(setting.work)))
    slot, head = torch.zeros(3, dtype=torch.float64), setting.task.structure.classifier
    for round in range(2):
        simulation.advance()
        program = setting.program(round)
        heads = [o.messages["average"][0][head] for o in recorder.rounds[round].outcomes.values()]
        stage = program.method.plan(program.scene, program.clock).server[0]
        draws = setting.work.draws(program, stage, 2, "server", round)["drawn_slot"]
        for draw in torch.from_numpy(draws):
            slot = (slot + draw + torch.stack(heads).mean()) / 2
        torch.testing.assert_close(simulation.server["slots"]["drawn_slot"]["own"], slot, rtol=1e-12, atol=0)
    assert len(set(slot.tolist())) == 3


def test_a_slot_trained_on_the_server_keeps_all_contracts_and_the_model() -> None:
    check_method(chain(average(), drawn_slot(), name="slotted"))
    with_slot, plain = (
        tiny_run(chain(average(), *more, name="m"), **SETTINGS) for more in ([drawn_slot()], [])
    )
    assert_exact(with_slot.server["params"], plain.server["params"])


def test_a_slot_of_another_shape_is_refused() -> None:
    part = drawn_slot()._replace(serve_slot=lambda results, view: {})
    setting = tiny_setting(chain(average(), part, name="slotted"))
    with pytest.raises(UserError, match="serve_slot returned a slot of another shape"):
        replace(setting).forms  # noqa: B018 - tries the method
