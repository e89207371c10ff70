"""The contracts of methods: what must hold of every method on every network, each as a function that raises if not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor

from idiolect.core import Method, Result, ServerState, Structure, server_round
from idiolect.core.trees import stack
from idiolect.engines import CohortEngine, LoopEngine, serve, server_logits
from idiolect.experiments import Execution
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads
from idiolect.experiments.rounds.private_state_placement import (
    open_kept,
    open_private_state,
    place_kept,
    place_private_state,
)
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.federation import ByClient
from idiolect.records import load_checkpoint, save_checkpoint
from idiolect.testing.recorder import Passed
from idiolect.testing.sameness import FLOAT64, differences, leaves, states
from idiolect.testing.trial import Trial, trained_result
from idiolect.testing.watched_hooks import Watch, named_hooks

__all__ = ["CONTRACTS", "Contract", "NotTried"]


class Contract(NamedTuple):
    """One contract.

    Args:
        name: what must hold.
        check: raises if it does not hold.
        advice: what to look at then.
        advises_on: whether an error is one that the advice is about; of any other, the sentence says where to look.
    """

    name: str
    check: Callable[[Trial], None]
    advice: str
    advises_on: Callable[[Exception], bool] = lambda error: True


class NotTried(Exception):
    """A contract cannot be looked at, because of what another contract tells."""


def _hooks_write_nothing(trial: Trial) -> None:
    _refuse_breaches(trial.watch, "writes")


def _refuse_breaches(watch: Watch, rule: str) -> None:
    if found := watch.of(rule):
        raise AssertionError("; ".join(map(str, found)))
    if watch.error is not None:
        raise NotTried(f"a hook fails: {watch.error}") from watch.error


def _dry_round_works(trial: Trial) -> None:
    setting = trial.fresh()
    setting = replace(setting, method=named_hooks(setting.method))
    setting.forms  # noqa: B018 - tries the method


def _is_of_tensors(error: Exception) -> bool:
    """Returns whether a dry round fails by what PyTorch refuses, as it does for tensors without values."""
    cause = error.__cause__ or error
    return isinstance(cause, RuntimeError) or "meta" in str(cause)


def _whole_run_works(trial: Trial) -> None:
    trial.run  # noqa: B018 - makes the run


def _private_names(method: Method, structure: Structure) -> frozenset[str]:
    """Returns the parameters and statistics that never leave a client."""
    return frozenset(name for name in structure.unit_of if method.never_leaves(name, structure))


def _nothing_private_leaves(trial: Trial) -> None:
    method, structure = trial.setting.method, trial.setting.task.structure
    kept = _private_names(method, structure)
    for passed in trial.run.rounds:
        _refuse_leaks(passed, kept)
    for tree in (trial.run.simulation.server, *(passed.sent for passed in trial.run.rounds)):
        if held := {name for path in leaves(tree) for name in path} & kept:
            raise AssertionError(f"the server holds {sorted(held)[0]}, which the method declares private")
    at = trial.run.midway
    for client in at.privates:
        trained = trained_result(at, client)
        own = {name: leaf for name, leaf in _tensors_of(trained).items() if name in kept}
        messages = trial.answers["round"][client].messages
        for where, name in _leaked_tensors(messages, {(name,): leaf for name, leaf in own.items()}, at.sent):
            raise AssertionError(f"client {client}: the message {where} holds the private tensor {name}")


def _tensors_of(result: Result) -> dict[str, Tensor]:
    return {**result.params["model"], **result.buffers["model"]}


def _refuse_leaks(passed: Passed, kept: frozenset[str]) -> None:
    """Raises if a message of a round has a tensor of a private name, or holds what a slot held before the round."""
    for client, outcome in passed.outcomes.items():
        for part, (value, _) in outcome.messages.items():
            if named := {name for path in leaves(value) for name in path} & kept:
                raise AssertionError(
                    f"client {client}: the message of {part} holds {sorted(named)[0]}, which is private"
                )
        slots = leaves(passed.privates[client]["slots"])
        for where, name in _leaked_tensors(outcome.messages, slots, passed.sent):
            raise AssertionError(
                f"client {client}: the message {where} holds the contents of the slot {name}"
            )


def _leaked_tensors(
    messages: Mapping[str, tuple[Any, Tensor]], own: Mapping[tuple[str, ...], Tensor], sent: Any
) -> Iterator[tuple[str, str]]:
    """Yields the tensors of a client's messages that hold a tensor of its own, whole or as a part of them.

    Values that the server sent are no secret: a slot may begin as the first model, and a bias before batch
    normalisation stays what it was up to rounding.  Neither are whole numbers, such as counts of classes.
    """
    known = [leaf for leaf in leaves(sent).values() if leaf.is_floating_point()]
    values = leaves({part: value for part, (value, _) in messages.items()})
    for name, leaf in own.items():
        if not leaf.is_floating_point() or _is_one_of(leaf, known):
            continue
        secrets = leaf.detach().flatten()
        secrets = secrets[secrets != secrets.round()].unique()
        if len(secrets) < 2:
            continue
        for path, value in values.items():
            if value.dtype == secrets.dtype and bool(torch.isin(secrets, value.detach()).all()):
                yield "/".join(path), "/".join(name)


def _is_one_of(leaf: Tensor, known: list[Tensor]) -> bool:
    same = [other for other in known if (other.shape, other.dtype) == (leaf.shape, leaf.dtype)]
    return any(torch.allclose(leaf, other, rtol=0, atol=1e-12) for other in same)


def _client_order_changes_nothing(trial: Trial) -> None:
    at = trial.run.midway
    backwards = at.among(reversed(at.privates)).ask(LoopEngine(trial.setting.work))
    _refuse_other_answers(backwards, trial.answers, None, "asked last to first")
    _refuse_ordered_merge(trial)


def _refuse_ordered_merge(trial: Trial) -> None:
    """Raises if the server makes another model of the same messages in another order."""
    setting, program = trial.setting, trial.run.midway.program
    plan = setting.method.plan(program.scene, program.clock)
    outcomes = list(trial.answers["round"].values())

    def merged(order: list[Any]) -> ServerState:
        messages = stack([outcome.messages for outcome in order])
        server = server_round(setting.method, trial.run.server, messages, program.clock, setting.work.noise)
        return serve(program, setting.work, server, messages) if plan.server else server

    if found := next(differences(merged(outcomes[::-1]), merged(outcomes), FLOAT64), None):
        raise AssertionError(f"the server's state depends on the order of the uploads: {found}")


def _refuse_other_answers(
    found: dict[str, dict[int, Any]],
    expected: dict[str, dict[int, Any]],
    tolerance: float | None,
    when: str,
) -> None:
    for call, clients in expected.items():
        for client, answer in clients.items():
            if off := next(differences(found[call][client], answer, tolerance), None):
                raise AssertionError(f"client {client}, {call}, {when}: {off}")


def _padding_changes_nothing(trial: Trial) -> None:
    expected = {call: dict(got) for call, got in trial.answers.items() if call != "valid"}
    expected["round"] = {c: outcome._replace(before={}, after={}) for c, outcome in expected["round"].items()}
    padded = trial.run.midway.ask_padded()
    _refuse_other_answers(padded, expected, FLOAT64, "with rows and steps of padding")


def _cohort_equals_single_clients(trial: Trial) -> None:
    at = trial.run.midway
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = at.ask(CohortEngine(trial.setting.work))
    _refuse_other_answers(found, trial.answers, FLOAT64, "in a vmapped cohort")
    for warning in said:
        if "client by client" in str(warning.message):
            raise AssertionError(f"the method does not run under vmap: {warning.message}")


def _slots_keep_their_form(trial: Trial) -> None:
    _refuse_breaches(trial.watch, "form")


def _resumed_run_is_the_same(trial: Trial) -> None:
    """Writes the state before the last round to a checkpoint and takes the run up from there."""
    run, setting = trial.run, trial.fresh()
    with TemporaryDirectory() as name:
        folder = Path(name)
        placement = place_private_state(setting, folder, Execution(checkpoint_every=1, store="disk"))
        store = open_private_state(setting, placement, folder)
        before = run.kept[run.midway.round]
        store.write(ByClient(list(before), list(before.values())))
        kept = _kept_anew(setting, folder)
        kept.kept.write(*run.records)
        tables = {"rows": run.simulation.rows.table()[:0], "rounds": run.simulation.rounds.table()[:0]}
        save_checkpoint(
            folder, run.midway.round, {**run.state, "private": store.save(), **kept.save()}, tables
        )
        store.saved()
        for opened in (store, kept):
            opened.close()
        found, store = load_checkpoint(folder), open_private_state(setting, placement, folder)
        assert found is not None
        kept = _kept_anew(setting, folder)
        resumed = Simulation.start(setting, LoopEngine(setting.work), store, kept.kept)
        resumed.participants.check_outputs = False
        resumed.restore(found[0], found[1])
        resumed.advance()
        resumed.finish()
        off = next(differences(states(resumed), states(run.simulation), FLOAT64), None)
        store.close()
        kept.close()
    if off is not None:
        raise AssertionError(f"a run that was taken up from a checkpoint ends otherwise: {off}")


def _kept_anew(setting: Setting, folder: Path) -> PersonalDownloads:
    """Returns what the server keeps of each client, in a folder, before anything is read from there."""
    placement = place_kept(setting, folder, Execution(checkpoint_every=1, store="disk"))
    return PersonalDownloads.of(setting, open_kept(setting, placement, folder))


def _copy_gives_the_same_answers(trial: Trial) -> None:
    if trial.pickled is None:
        cloudpickle.dumps(trial.setting.method)
    copy = replace(trial.run.midway, setting=trial.fresh())
    found = copy.ask(LoopEngine(copy.setting.work))
    _refuse_other_answers(found, trial.answers, None, "from a copy of the method")


def _hooks_are_pure(trial: Trial) -> None:
    _refuse_breaches(trial.watch, "impure")


def _idle_clients_are_served(trial: Trial) -> None:
    run, setting = trial.run, trial.setting
    cohorts = [set(passed.outcomes) for passed in run.rounds]
    for round, cohort in enumerate(cohorts):
        _refuse_changed_idle_clients(setting.method, cohort, *run.kept[round : round + 2])
    idle = set(run.kept[-1]) - set(chain(*cohorts))
    assert idle, "the tiny federation has a client that is never selected"
    downloads = run.simulation.participants.downloads
    for client in sorted(idle):
        program, private = setting.program(setting.experiment.rounds), {client: run.kept[-1][client]}
        sent = downloads.for_follow_up(program, run.simulation.server, [client])
        (logits,) = LoopEngine(setting.work).evaluate(program, sent.shared, sent.with_own(private), "test")
        _refuse_not_finite(logits, f"client {client}, which was never selected")


def _refuse_changed_idle_clients(
    method: Method, cohort: set[int], before: Mapping[int, Any], after: Mapping[int, Any]
) -> None:
    """Raises if the private state of a client outside the cohort changes; all write slots of parts that ``score``."""
    scoring = {part.name for part in method.parts if part.score}
    for client in before.keys() - cohort:
        was, now = (_without(state[client], scoring) for state in (before, after))
        if off := next(differences(now, was, None), None):
            raise AssertionError(f"client {client} is not selected and its state changes: {off}")


def _without(private: dict[str, Any], parts: set[str]) -> dict[str, Any]:
    slots = {name: slot for name, slot in private["slots"].items() if name not in parts}
    return {**private, "slots": slots}


def _refuse_not_finite(logits: Mapping[str, Tensor], whose: str) -> None:
    for name, found in logits.items():
        if not bool(torch.isfinite(found).all()):
            raise AssertionError(f"{whose}: the predictor {name!r} gives logits that are not finite")


def _predictors_evaluate(trial: Trial) -> None:
    run, setting, n_classes = trial.run, trial.setting, trial.setting.federation.n_classes
    _refuse_unscored_headline(run.simulation)
    for client, logits in trial.answers["valid"].items():
        rows = len(setting.federation.clients[client].valid)
        _refuse_not_finite(logits, f"client {client}")
        for name, found in logits.items():
            if tuple(found.shape) != (rows, n_classes):
                raise AssertionError(
                    f"client {client}: the predictor {name!r} gives {tuple(found.shape)} logits for {rows} rows "
                    f"and {n_classes} classes"
                )
    if setting.method.is_complete(setting.task.structure):
        x = torch.from_numpy(setting.federation.server_x).to(setting.work.x)
        program, server = setting.program(setting.experiment.rounds), run.simulation.server
        _refuse_not_finite({"global": server_logits(program, server, x)}, "the server")


def _refuse_unscored_headline(run: Simulation) -> None:
    """Raises unless the method's headline is scored on every client after the last round, newcomers included."""
    setting = run.setting
    last = [row for row in run.rows.table().to_pylist() if row["round"] == setting.experiment.rounds]
    for population, clients in (
        ("all", range(setting.federation.population)),
        ("new", range(setting.federation.population, len(setting.federation.clients))),
    ):
        rows = [row for row in last if row["population"] == population and row["split"] == "test"]
        scored = {
            row["client"]
            for row in rows
            if (row["predictor"], row["metric"]) == (setting.headline, setting.primary_metric)
        }
        if missing := sorted(set(clients) - scored):
            known = ", ".join(sorted({row["predictor"] for row in rows}))
            raise AssertionError(
                f"client {missing[0]}: the headline {setting.headline!r} is not among its predictors ({known})"
            )


NAMED = "the hook that the sentence names"
CONTRACTS = (
    Contract(
        "inputs unmutated",
        _hooks_write_nothing,
        "return new tensors and dictionaries: no add_, no index assignment, no .data",
    ),
    Contract(
        "purity",
        _hooks_are_pure,
        "a hook depends on its arguments alone: randomness from Part.draws, memory in slots",
    ),
    Contract(
        "slots keep their form",
        _slots_keep_their_form,
        "finish and merge return the names, shapes and dtypes of init_client and init_server",
    ),
    Contract(
        "dry round",
        _dry_round_works,
        "no .item(), no branch on a tensor (torch.where), new tensors like the given ones (zeros_like, new_ones)",
        _is_of_tensors,
    ),
    Contract("whole run", _whole_run_works, NAMED),
    Contract(
        "nothing private leaves",
        _nothing_private_leaves,
        "upload returns what Part.private does not claim, and nothing out of view.private",
    ),
    Contract(
        "client order changes nothing",
        _client_order_changes_nothing,
        "no memory between clients; on the server only what is the same in any order of the uploads",
    ),
    Contract(
        "padding changes nothing",
        _padding_changes_nothing,
        "means over a batch weigh rows by batch.mask and divide by its sum",
    ),
    Contract(
        "cohort equals single clients",
        _cohort_equals_single_clients,
        "sums over axes that exist for one client alone, and operations that vmap knows",
    ),
    Contract(
        "resume equals uninterrupted",
        _resumed_run_is_the_same,
        "all that a later round needs lies in slots, nothing in a closure",
    ),
    Contract(
        "a copy in another process",
        _copy_gives_the_same_answers,
        "hooks can be pickled by cloudpickle (no locks, files or generators) and keep no memory of earlier calls",
    ),
    Contract(
        "a client that is never selected",
        _idle_clients_are_served,
        "init_client gives a state that predictors can use as it is",
    ),
    Contract(
        "predictors evaluate",
        _predictors_evaluate,
        "predictors reports the headline for every client, before and after its local work",
    ),
)
