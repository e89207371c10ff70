"""The conformance suite passes what keeps the contracts, and names the contract that a part breaks."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    GatherView,
    Initial,
    Loss,
    Message,
    Messages,
    Method,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Slot,
    Stage,
    View,
    chain,
)
from idiolect.core.trees import tree_map
from idiolect.errors import UserError
from idiolect.methods import names
from idiolect.parts import average, dp_sgd, private_layers
from idiolect.testing import ConformanceError, check_method, tiny_run, tiny_setting
from idiolect.testing.contracts import CONTRACTS
from idiolect.testing.watched_hooks import HOOKS
from tests.contracts.cases import VARIANTS, spelt

ROOT = Path(__file__).parents[2]
MLP = ["mlpnet(hidden=4)"]


def adding(term: Callable[[Flats, Batch, Out, View], Tensor]) -> Part:
    """A part that adds a term to the loss."""

    def loss(inner: Loss, view: View) -> Loss:
        return lambda params, batch, out: inner(params, batch, out) + term(params, batch, out, view)

    return Part("broken", loss=loss)


def leaks_private_layers() -> Method:
    """Sends the private head under another name, as one long row."""

    def upload(results: Results, view: View) -> Message:
        trained = results[UPLOAD].params["model"]
        head = [trained[name].flatten() for name in trained if name not in view.origin.params]
        return Message({"statistics": torch.cat(head)}, view.facts.weight)

    return chain(average(), private_layers(1), Part("broken", upload=upload))


def leaks_its_slot() -> Part:
    def init_client(initial: Initial) -> Slot:
        return {"secret": initial.draw("secret", True).params}

    def upload(results: Results, view: View) -> Message:
        first = next(iter(view.private["secret"].values()))
        return Message({"first": first}, view.facts.weight)

    return Part("broken", init_client=init_client, upload=upload)


def counts() -> Part:
    """Counts its rounds in a slot, as it should."""

    def init_client(initial: Initial) -> Slot:
        return {"count": torch.zeros_like(next(iter(initial.params.values()))[0, 0])}

    return Part(
        "broken", init_client=init_client, finish=lambda _, view: {"count": view.private["count"] + 1}
    )


def writes_into_its_slot() -> Part:
    def finish(results: Results, view: View) -> Slot:
        return {"count": view.private["count"].add_(1)}

    return counts()._replace(finish=finish)


def writes_behind_the_back_of_autograd() -> Part:
    def shrink(params: Flats, batch: Batch, out: Out, view: View) -> Tensor:
        for leaf in params["model"].values():
            leaf.data.mul_(0.99)
        return 0 * out.logits.sum()

    return adding(shrink)


def writes_into_the_trained_tensors() -> Part:
    def shrink(params: Flats, batch: Batch, out: Out, view: View) -> Tensor:
        for leaf in params["model"].values():
            leaf.mul_(0.99)
        return 0 * out.logits.sum()

    return adding(shrink)


def writes_into_a_dictionary() -> Part:
    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        params["spare"] = {"zero": torch.zeros_like(view.facts.samples)}
        return params, buffers

    return Part("broken", start=start)


def bounds_ever_less() -> Part:
    calls: list[None] = []

    def release(messages: Messages, view: GatherView) -> Messages:
        calls.append(None)
        return {
            name: (tree_map(lambda leaf: leaf * len(calls), value), w)
            for name, (value, w) in messages.items()
        }

    return Part("broken", release=release)


def takes_the_first_upload() -> Part:
    def objective(view: View) -> Loss:
        return lambda params, batch, out: 0 * sum(leaf.sum() for leaf in params["model"].values())

    def stages(plan: Plan, scene: Any, clock: Any) -> Plan:
        return plan._replace(server=(Stage("first", "broken", objective=objective, steps=1, split="none"),))

    def serve(results: Results, view: View, model: Model) -> Model:
        return Model({name: leaf[0] for name, leaf in view.uploads["params"].items()}, model.buffers)

    return Part("broken", stages=stages, serve=serve, individual=True)


def remembers_clients() -> Part:
    seen: list[Tensor] = []

    def upload(results: Results, view: View) -> Message:
        seen.append(view.facts.samples)
        return Message({"place": view.facts.samples * len(seen)}, view.facts.weight)

    return Part("broken", upload=upload)


def remembers_rounds() -> Part:
    """Gives the same answer to the same inputs at one time, and another later."""
    rounds: set[int] = set()

    def finish(results: Results, view: View) -> Slot:
        rounds.add(view.clock.round)
        return {"count": view.private["count"] + len(rounds)}

    return counts()._replace(finish=finish)


def holds_a_lock() -> Part:
    lock = Lock()

    def finish(results: Results, view: View) -> Slot:
        with lock:
            return {"count": view.private["count"] + 1}

    return counts()._replace(finish=finish)


def ignores_padding() -> Part:
    return adding(lambda params, batch, out, view: (out.features**2).mean())


def draws_from_torch() -> Part:
    return adding(lambda params, batch, out, view: (torch.randn_like(out.logits) * out.logits).mean(1).sum())


def slot_of_another_shape() -> Part:
    return counts()._replace(finish=lambda _, view: {"count": view.private["count"].reshape(1)})


def slot_of_other_names() -> Part:
    return counts()._replace(finish=lambda _, view: {"rounds": view.private["count"]})


def server_slot_of_another_shape() -> Part:
    def init_server(shared: Flat, initial: Initial) -> Slot:
        return {"rounds": next(iter(shared.values())).new_zeros(())}

    def upload(results: Results, view: View) -> Message:
        return Message({"one": torch.ones_like(view.facts.weight)}, view.facts.weight)

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        return params, {"rounds": torch.cat([slot["rounds"].reshape(-1), mean["one"].reshape(-1)])}

    return Part("broken", init_server=init_server, upload=upload, merge=merge)


def diverges() -> Part:
    return adding(lambda params, batch, out, view: out.logits.sum() * float("nan"))


def reads_a_number() -> Part:
    return adding(lambda params, batch, out, view: out.logits.sum() * out.logits.detach().abs().max().item())


def branches_on_a_tensor() -> Part:
    return adding(lambda p, batch, out, view: out.logits.sum() * (1 if out.logits.sum() > 0 else 2))


def divides_by_its_rounds() -> Part:
    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        count = view.private["count"]
        mean = {name: leaf * count / count for name, leaf in view.origin.params.items()}
        return {"mean": Predictor.of(Model(mean, view.origin.buffers))}

    return counts()._replace(predictors=predictors)


def adds_up_in_place() -> Part:
    """Works for one client; a sum that all clients share cannot take the term of each."""

    def term(params: Flats, batch: Batch, out: Out, view: View) -> Tensor:
        total = next(iter(view.origin.params.values())).new_zeros(())
        total += (out.logits.pow(2).sum(1) * batch.mask).sum()
        return total

    return adding(term)


def promises_a_predictor() -> Part:
    return Part("broken", headline="companion")


class Broken(NamedTuple):
    make: Callable[[], Part | Method]
    contracts: set[str]
    says: str


WRITES, PURE, FORM, DRY = "inputs unmutated", "purity", "slots keep their form", "dry round"
LEAK, ORDER, PADDING = "nothing private leaves", "client order changes nothing", "padding changes nothing"
COHORT, RESUME = "cohort equals single clients", "resume equals uninterrupted"
RUN, COPY = "whole run", "a copy in another process"
IDLE, PREDICTORS = "a client that is never selected", "predictors evaluate"
BROKEN = [
    Broken(leaks_private_layers, {LEAK}, "message broken/statistics holds the private tensor units."),
    Broken(leaks_its_slot, {LEAK}, "message broken/first holds the contents of the slot broken/secret/"),
    Broken(
        writes_into_its_slot, {WRITES}, "hook 'finish' of the part 'broken' writes into its input view.pr"
    ),
    Broken(writes_behind_the_back_of_autograd, {WRITES}, "hook 'loss' of the part 'broken' writes into"),
    Broken(writes_into_the_trained_tensors, {WRITES}, "hook 'loss' of the part 'broken' writes into a"),
    Broken(writes_into_a_dictionary, {WRITES}, "hook 'start' of the part 'broken' writes into its input"),
    Broken(takes_the_first_upload, {ORDER}, "depends on the order of the uploads: params/"),
    Broken(remembers_clients, {PURE}, "hook 'upload' of the part 'broken' returns two answers"),
    Broken(bounds_ever_less, {PURE}, "hook 'release' of the part 'broken' returns two answers"),
    Broken(remembers_rounds, {RESUME, COPY}, "slots/broken/count is another tensor"),
    Broken(holds_a_lock, {COPY}, "cannot pickle '_thread.lock' object"),
    Broken(ignores_padding, {PADDING, COHORT}, "with rows and steps of padding"),
    Broken(draws_from_torch, {PURE}, "hook 'loss' of the part 'broken' draws from a global random state"),
    Broken(slot_of_another_shape, {FORM}, "count is (1,) of torch.float64 and was () of"),
    Broken(slot_of_other_names, {FORM}, "count is missing"),
    Broken(
        server_slot_of_another_shape, {FORM}, "hook 'merge' of the part 'broken' returns the server slot in"
    ),
    Broken(diverges, {RUN}, "client 2 got parameters that are not finite in round 1"),
    Broken(reads_a_number, {DRY}, "in the hook 'loss' of the part 'broken'"),
    Broken(branches_on_a_tensor, {DRY}, "in the hook 'loss' of the part 'broken'"),
    Broken(
        divides_by_its_rounds, {IDLE, PREDICTORS}, "client 0, which was never selected: the predictor 'me"
    ),
    Broken(adds_up_in_place, {COHORT, PADDING}, "vmap"),
    Broken(promises_a_predictor, {PREDICTORS}, "the headline 'companion' is not among its predictors"),
]


ALSO_BROKEN = {
    writes_into_the_trained_tensors,
    writes_into_a_dictionary,
    remembers_clients,
    holds_a_lock,
    slot_of_other_names,
    branches_on_a_tensor,
    adds_up_in_place,
    server_slot_of_another_shape,
    diverges,
}  # much like another one
CASES = [
    pytest.param(broken, id=broken.make.__name__, marks=[pytest.mark.slow] * (broken.make in ALSO_BROKEN))
    for broken in BROKEN
]


@pytest.mark.parametrize("broken", CASES)
def test_contract_that_is_broken_is_named(broken: Broken) -> None:
    report = check_method(broken.make(), models=MLP, raise_on_failure=False)
    assert set(report.failed) == broken.contracts
    assert broken.says in str(report)


def test_every_contract_has_a_part_that_breaks_it() -> None:
    assert {name for broken in BROKEN for name in broken.contracts} == {c.name for c in CONTRACTS}


def test_error_names_contract_hook_and_advice() -> None:
    with pytest.raises(ConformanceError, match=r"(?s)average \+ broken does not conform.*FAILED") as caught:
        check_method(writes_into_its_slot(), models=MLP)
    assert isinstance(caught.value, AssertionError)
    assert "inputs unmutated: on mlpnet(hidden=4), the hook 'finish' of the part 'broken'" in str(
        caught.value
    )
    assert "look at: return new tensors" in str(caught.value)
    assert caught.value.report.failed[0] == WRITES


def test_error_in_a_hook_is_told_once_and_with_advice_that_is_about_it() -> None:
    def finish(results: Results, view: View) -> Slot:
        return {"count": view.private["nothing"]}

    def read(results: Results, view: View) -> Slot:
        return {"count": view.private["count"] + view.private["count"].item()}

    for hook, end in (
        (finish, "look at: the hook that the sentence names"),
        (read, "(zeros_like, new_ones)"),
    ):
        report = check_method(counts()._replace(finish=hook), models=MLP, raise_on_failure=False)
        detail = next(finding.detail for finding in report.findings if finding.passed is False)
        assert detail.count("in the hook 'finish' of the part 'broken'") == 1 and detail.endswith(end)


def test_contracts_after_a_failed_dry_round_are_not_tried() -> None:
    report = check_method(reads_a_number(), models=MLP, raise_on_failure=False)
    later = {finding.contract: finding for finding in report.findings}
    assert later[LEAK].passed is None and "dry round" in later[LEAK].detail
    assert not report.passed


@pytest.mark.parametrize("name", ["scaffold", "fedper"])
def test_method_of_the_package_passes(name: str) -> None:
    assert check_method(name, models=MLP).passed


@pytest.mark.parametrize("task", ["regression", pytest.param("multilabel", marks=pytest.mark.slow)])
def test_method_passes_where_there_are_no_classes(task: str) -> None:
    assert check_method("fedper", models=MLP, task=task).passed
    with pytest.raises(UserError, match=f"cannot be used for {task}"):
        check_method("fedrs", models=MLP, task=task)


def test_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match="the task of check_method must be one of classification, multilabel"):
        check_method("fedavg", task="tasks")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names(), *VARIANTS])
def test_every_method_passes(name: str) -> None:
    assert check_method(spelt(name)).passed


@pytest.mark.slow
def test_noise_on_uploads_is_tried_where_running_statistics_stay_with_clients() -> None:
    assert check_method("fedavg + client_dp", models=["lenet_bn"]).passed


def test_part_of_the_example_passes() -> None:
    part = runpy.run_path(str(ROOT / "examples" / "new_part.py"))["small_features"]
    assert check_method(part(weight=0.1), models=MLP).method == "average + small_features"


def test_method_of_the_example_passes() -> None:
    method = runpy.run_path(str(ROOT / "examples" / "new_method.py"))["heirs"]
    assert check_method(method(), models=MLP).method == "heirs"


def test_part_that_keeps_a_count_in_its_slot_passes() -> None:
    assert check_method(counts(), models=MLP).passed


def test_network_that_the_method_refuses_is_left_out() -> None:
    def check(structure: Any, scene: Any) -> None:
        if structure.convolutional:
            raise UserError("this part takes no convolutions")

    part = Part("choosy", check=check)
    assert check_method(part, models=["lenet_bn", *MLP]).passed
    with pytest.raises(UserError, match="no convolutions"):
        check_method(part, models=["lenet_bn"])


def test_global_random_state_stays_as_it_was() -> None:
    before = torch.get_rng_state()
    check_method(draws_from_torch(), models=MLP, raise_on_failure=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_hook_that_sees_one_example_at_a_time_is_watched() -> None:
    """DP-SGD differentiates single examples under vmap; there too a hook must answer alike."""
    seen: list[None] = []

    def count(params: Flats, batch: Batch, out: Out, view: View) -> Tensor:
        seen.append(None)
        return len(seen) * out.logits.sum()

    broken, sound = (
        chain(average(), adding(term), dp_sgd()) for term in (count, lambda p, b, out, v: out.logits.sum())
    )
    report = check_method(broken, models=MLP, raise_on_failure=False)
    assert PURE in report.failed
    assert "hook 'loss' of the part 'broken' returns two answers" in str(report)
    check_method(sound, models=MLP)


def test_every_hook_is_watched() -> None:
    """Hooks that get no tensors of a run need no watch."""
    plain = {"private", "stages", "check", "draws", "noise", "scalars", "scalars_down"}
    hooks = {name for name, kind in Part.__annotations__.items() if re.search("Callable", str(kind))}
    assert hooks - plain == set(HOOKS)


def test_tiny_run_trains_a_part() -> None:
    plain, regularised = (tiny_run(part, rounds=1, model=MLP[0]) for part in (counts(), ignores_padding()))
    assert any(
        not plain.server["params"][name].equal(leaf) for name, leaf in regularised.server["params"].items()
    )


def test_tiny_setting_names_its_method() -> None:
    assert tiny_setting("fedper(count=2)").experiment.method == "fedper(count=2)"
    assert tiny_setting("feddf").experiment.public > 0
