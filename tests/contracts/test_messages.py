"""What leaves a client: nothing that its method keeps private, and exactly as much as the method declares."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.testing.recorder import Passed, Recorder

from .declared import declared, kept_names, secret_names
from .sameness import leaves
from .tiny import finished_run, make_engine, play, setting_of


@lru_cache(maxsize=2)
def recorded(method: str) -> tuple[Simulation, list[Passed]]:
    setting = setting_of(method)
    recorder = Recorder(make_engine("loop", setting))
    return play(setting, recorder), recorder.rounds


def values(passed: Passed, client: int) -> dict[tuple[str, ...], Tensor]:
    """The tensors a client sends up, by part and name; weights are no secret of the model's."""
    return leaves({part: value for part, (value, _) in passed.outcomes[client].messages.items()})


def test_no_message_holds_a_private_tensor(method: str) -> None:
    run, rounds = recorded(method)
    structure = run.setting.task.structure
    kept = secret_names(method, structure)
    public = ({*structure.params, *structure.buffers} - kept) | declared(method).names
    for passed in rounds:
        for client in passed.outcomes:
            for path in values(passed, client):
                assert path[-1] in public
                assert not kept & set(path)


def test_no_message_holds_the_contents_of_a_slot(method: str) -> None:
    _, rounds = recorded(method)
    for passed in rounds:
        for client, private in passed.privates.items():
            sent = list(leaves([passed.sent, private.get("download", {})]).values())
            held = {key: tree for key, tree in private.items() if key != "download"}
            slots = [leaf for leaf in leaves(held).values() if leaf.numel() > 1]
            own = {_bytes(leaf) for leaf in slots if not _is_one_of(leaf, sent)}
            assert not any(_bytes(leaf) in own for leaf in values(passed, client).values())


def _is_one_of(leaf: Tensor, known: list[Tensor]) -> bool:
    """Up to rounding: a slot may begin as the first model, and a bias before batch normalisation stays what it was."""
    same = [other for other in known if (other.shape, other.dtype) == (leaf.shape, leaf.dtype)]
    return any(torch.allclose(leaf, other, rtol=0, atol=1e-12) for other in same)


def test_server_sends_and_keeps_no_private_tensor(method: str) -> None:
    run, rounds = recorded(method)
    kept = secret_names(method, run.setting.task.structure)
    for tree in (run.server, *(passed.sent for passed in rounds)):
        assert not any(kept & set(path) for path in leaves(tree))


def test_messages_have_the_declared_size(method: str) -> None:
    run, rounds = recorded(method)
    parameters, _, shared = _sizes(method, run)
    expected = shared + declared(method).up(parameters, run.setting.task.structure)
    for passed in rounds:
        assert len(passed.outcomes) == 3
        for client in passed.outcomes:
            assert sum(leaf.numel() for leaf in values(passed, client).values()) == expected


def test_recorded_bytes_are_the_declared_ones(method: str) -> None:
    run, rounds = recorded(method)
    structure, promise = run.setting.task.structure, declared(method)
    parameters, down, shared = _sizes(method, run)
    one_down = down + promise.down(parameters, structure)
    clients = _receivers(run)
    for row, passed, receivers in zip(run.rounds.table().to_pylist(), rounds, clients, strict=True):
        assert row["cohort"] == len(passed.outcomes)
        assert row["bytes_down"] == 4 * one_down * receivers
        if promise.wire is None:
            travelled = len(passed.outcomes) * (shared + promise.up(parameters, structure))
        else:
            wire = promise.wire
            travelled = sum(shared + wire(_classes(run, client), structure) for client in passed.outcomes)
        assert row["bytes_up"] < 4 * travelled if promise.at_most else row["bytes_up"] == 4 * travelled


@pytest.mark.parametrize("buffers", ["average", "private", "frozen"])
@pytest.mark.parametrize("text", ["fedavg", "fedper", "scaffold"])
def test_statistics_travel_both_ways_or_neither(text: str, buffers: str) -> None:
    run = finished_run(text, buffers=buffers)
    structure, promise = run.setting.task.structure, declared(text)
    parameters, shared, _ = _sizes(text, run)
    kept, tensors = kept_names(text, structure), run.setting.initial(0).buffers
    statistics = sum(leaf.numel() for name, leaf in tensors.items() if name not in kept)
    assert statistics > 0
    network = shared if buffers == "average" else shared - statistics
    for row in run.rounds.table().to_pylist():
        assert row["bytes_down"] == 4 * 3 * (network + promise.down(parameters, structure))
        assert row["bytes_up"] == 4 * 3 * (network + promise.up(parameters, structure))


def test_local_server_holds_no_parameters() -> None:
    assert leaves(finished_run("local").server) == {}


def test_fedper_server_never_holds_the_head() -> None:
    run, rounds = recorded("fedper")
    head = {"units.2.linear.weight", "units.2.linear.bias"}
    assert head <= set(run.setting.task.structure.params)
    held = {
        name
        for tree in (run.server, rounds[0].sent, rounds[-1].sent)
        for path in leaves(tree)
        for name in path
    }
    assert "units.1.convolution.weight" in held
    assert not head & held


def _bytes(leaf: Tensor) -> bytes:
    return leaf.contiguous().numpy().tobytes()


def _sizes(method: str, run: Simulation) -> tuple[int, int, int]:
    """Parameters of the model; parameters and statistics that the method shares, of all models sent down and up."""
    initial = run.setting.initial(0)
    kept = kept_names(method, run.setting.task.structure)
    tensors = {**initial.params, **initial.buffers}
    parameters = sum(leaf.numel() for leaf in initial.params.values())
    shared = sum(leaf.numel() for name, leaf in tensors.items() if name not in kept)
    promise = declared(method)
    up = promise.models if promise.models_up is None else promise.models_up
    return parameters, promise.models * shared, up * shared


def _receivers(run: Simulation) -> list[int]:
    """Downloads of each round: the cohort's; with PersFL every client's after each merge, the cohort's once."""
    cohort, population, rounds = 3, run.setting.federation.population, run.setting.experiment.rounds
    if "optimal_teacher" in [part.name for part in run.setting.method.parts]:
        return [population + cohort, *[population] * (rounds - 1)]
    return [cohort] * rounds


def _classes(run: Simulation, client: int) -> int:
    return int((run.setting.work.facts(client).class_counts > 0).sum())
