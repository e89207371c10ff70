"""Clients who join after the last round: each method's own rule, against direct computations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from idiolect.core import broadcast
from idiolect.experiments.rounds.newcomers import JoinedNewcomers, join

NEW, ROUNDS = 4, 3  # the last of five clients never trains
HEAD = "units.2.linear.weight"
TRAINING = {"local_epochs": 2, "rounds": ROUNDS, "momentum": 0.5, "weight_decay": 0.01}


class Case(NamedTuple):
    trace: Any
    joined: JoinedNewcomers
    server: dict[str, Any]

    def slot(self, part: str) -> Any:
        return self.joined.privates[NEW]["slots"][part]


def newcomer(lab, method: str, **settings: Any) -> Case:
    federation = replace(lab.federation(), newcomers=(NEW,))
    trace = lab.run(method, federation=federation, **{**TRAINING, **settings})
    simulation = trace.simulation
    assert set(trace.privates[0]) == set(range(4))
    sent = simulation.participants.sent_to_newcomers(simulation.server, simulation.round)
    joined = join(simulation.setting, simulation.engine, sent, simulation.round)
    return Case(trace, joined, simulation.server)


def after(case: Case, predictor: str) -> torch.Tensor:
    return case.joined.after[0][predictor]


def test_global_and_locally_trained_model_are_scored(lab, plain):
    case = newcomer(lab, "fedavg")
    check = plain(case.trace)
    x, _ = check.rows(NEW, "test")
    server = case.server["params"]
    lab.close(after(case, "global"), check.forward(server, x)[1])
    tuned = check.sgd(server, check.batches(NEW, ROUNDS, check.steps(NEW, 2)), check.cross_entropy)
    lab.close(after(case, "after-local"), check.forward(tuned, x)[1])
    lab.same(case.joined.before[0]["global"], after(case, "global"))


def test_local_update_starts_from_the_final_shared_model(lab, plain):
    case = newcomer(lab, "fedavg_lu(epochs=3)")
    check = plain(case.trace)
    batches = check.batches(NEW, ROUNDS, check.steps(NEW, 3))
    tuned = check.sgd(case.server["params"], batches, check.cross_entropy)
    lab.close(case.slot("fine_tune")["params"], tuned)


@pytest.mark.parametrize(
    ("method", "part", "epochs", "private"),
    [
        ("fedper", "private_layers", 2, lambda name: name == HEAD),
        ("fedper(count=2)", "private_layers", 2, lambda name: not name.startswith("units.0")),
        ("fedrep(head_epochs=3, body_epochs=2)", "alternating_layers", 3, lambda name: name == HEAD),
        ("lg_fedavg", "private_layers", 2, lambda name: name != HEAD),
        ("local", "private_layers", 2, lambda name: True),
    ],
)
def test_fresh_private_layers_are_trained_with_the_shared_ones_frozen(
    lab, plain, method, part, epochs, private
):
    case = newcomer(lab, method)
    check = plain(case.trace)
    fresh = case.trace.simulation.setting.first_private(NEW)["slots"][part]
    whole = {**case.server["params"], **fresh}
    batches = check.batches(NEW, ROUNDS, check.steps(NEW, epochs))
    trained = check.sgd(whole, batches, check.cross_entropy, trained=private)
    lab.close(case.slot(part), {name: w for name, w in trained.items() if private(name)})
    assert lab.differ(case.slot(part), fresh)
    lab.close(after(case, "composed"), check.forward(trained, check.rows(NEW, "test")[0])[1])
    lab.same(after(case, "after-local"), after(case, "composed"))


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_nothing_private_is_fedavgs_rule(lab, engine):
    """Without private layers there is no head to train: the newcomer takes part as in FedAvg."""
    fedper, fedavg = (newcomer(lab, method, engine=engine) for method in ("fedper(count=0)", "fedavg"))
    lab.same(after(fedper, "after-local"), after(fedavg, "after-local"))


def test_frozen_base_keeps_its_statistics(lab):
    case = newcomer(lab, "fedper", net="bn")
    assert case.joined.privates[NEW]["buffers"] == {}
    lab.same(after(case, "composed"), after(case, "after-local"))


@pytest.mark.parametrize("form", ["fo", "hf"])
def test_meta_learnt_model_takes_one_step(lab, plain, form):
    case = newcomer(lab, f"perfedavg_{form}(inner_rate=0.05)")
    check = plain(case.trace)
    (batch,) = check.batches(NEW, ROUNDS, 1, "adapt")
    leaves = {name: w.clone().requires_grad_() for name, w in case.server["params"].items()}
    grads = torch.autograd.grad(check.cross_entropy(leaves, *batch), list(leaves.values()))
    stepped = {name: w - 0.05 * g for (name, w), g in zip(case.server["params"].items(), grads, strict=True)}
    lab.close(case.slot("meta_gradient")["params"], stepped)


def test_teacher_is_the_final_shared_model(lab, plain):
    case = newcomer(lab, "persfl(lambdas=(0,), temperatures=(1,), epochs=2)")
    slot = case.slot("optimal_teacher")
    lab.same(slot["teacher"]["params"], case.server["params"])
    check = plain(case.trace)
    loss = float(check.cross_entropy(case.server["params"], *check.rows(NEW, "valid")))
    assert float(slot["loss"]) == pytest.approx(loss, rel=1e-9)
    batches = check.batches(NEW, ROUNDS, check.steps(NEW, 2), "distil")
    lab.close(slot["student"]["params"], check.sgd(case.server["params"], batches, check.cross_entropy))
    assert {"companion", "teacher", "global"} <= set(case.joined.after[0])


OWN = [
    "fedphp",
    "map",
    "scamap",
    "fedphp(hpm_init=theta0, schedule=mu_b)",
    "map(hpm_init=theta0, schedule=mu_c)",
]


@pytest.mark.parametrize("method", OWN)
def test_inherited_model_is_the_personalised_one(lab, method):
    """First participation: no transfer, whatever the HPM would start from, and HPM := what was trained."""
    case = newcomer(lab, method)
    part = "inherited_teacher" if "fedphp" in method else "inherited_model"
    assert float(case.slot(part)["seen"]) == 1
    if "fedphp" in method:
        lab.same(after(case, "companion"), after(case, "after-local"))
    lazy = newcomer(lab, method.partition("(")[0] + "()")
    if "map" in method:  # its shared path does not see the HPM: the same server, so the same newcomer
        lab.same(case.slot(part)["params"], lazy.slot(part)["params"])


def test_inherited_teacher_sees_no_transfer(lab):
    """With the whole loss a transfer, a newcomer that had a teacher would not train on labels."""
    case = newcomer(lab, "fedphp(hpm_init=theta0, transfer=kd, transfer_weight=1.0)")
    plain = newcomer(lab, "fedavg")
    program, engine = plain.joined.program, plain.trace.simulation.engine
    setting = plain.trace.simulation.setting
    sent = {**broadcast(setting.method, plain.server), "params": case.server["params"]}
    (outcome,) = engine.round(program, sent, {NEW: setting.first_private(NEW)}, True)
    lab.close(after(case, "companion"), outcome.after["after-local"])


@pytest.mark.parametrize("method", ["superfed_mm", "superfed_lm"])
def test_own_model_is_trained_in_the_second_phase(lab, method):
    case = newcomer(lab, method)
    setting = case.trace.simulation.setting
    first = setting.first_private(NEW)["slots"]["mixed_subspace"]
    assert lab.differ(case.slot("mixed_subspace"), first)
    assert {f"mix({a / 10:.1f})" for a in range(11)} <= set(case.joined.after[0])
    never = newcomer(lab, f"{method}(phase_one=1.0)")
    lab.same(never.slot("mixed_subspace"), first)


def test_mixing_coefficient_is_chosen_on_the_newcomers_validation_data(lab):
    simulation = newcomer(lab, "superfed_mm").trace.simulation
    rows = simulation.rows.table().to_pandas().query("population == 'new' and metric == 'accuracy'")
    valid = rows[rows["split"] == "valid"].set_index("predictor")["value"]
    picked = simulation.picks["mix(validated) of newcomers"]
    assert valid[picked] == valid.max()
    test = rows[(rows["split"] == "test") & (rows["moment"] == "after")].set_index("predictor")["value"]
    assert test["mix(validated)"] == test[picked]
    assert test["mix(oracle)"] == test[[f"mix({a / 10:.1f})" for a in range(11)]].max()


def test_coefficient_is_chosen_for_the_models_that_are_scored(lab):
    """Validation and test scores of a mixture are those of one model: the trained shared one mixed with the own."""
    case = newcomer(lab, "superfed_mm(orthogonality=0, proximity=0)", local_epochs=4)
    setting = case.trace.simulation.setting
    program, sent = case.joined.program, broadcast(setting.method, case.server)
    as_sent = case.trace.simulation.engine.evaluate(program, sent, case.joined.privates, "valid")[0]
    lab.close(case.joined.valid[0]["mix(1.0)"], as_sent["mix(1.0)"])
    assert lab.differ(case.joined.valid[0]["mix(0.0)"], as_sent["mix(0.0)"])
    lab.close(after(case, "mix(0.0)"), after(case, "after-local"))


@pytest.mark.parametrize("method", ["fedrod + fine_tune", "flda + fine_tune"])
def test_later_stages_add_models_and_leave_those_of_the_round(lab, method):
    case, without = newcomer(lab, method), newcomer(lab, method.partition(" ")[0])
    lab.same(after(case, "composed"), after(without, "composed"))
    assert "LU" in case.joined.after[0]


def test_companion_is_trained_from_its_start_near_the_final_model(lab, plain):
    case = newcomer(lab, "ditto(weight=0.5)")
    check, server = plain(case.trace), case.server["params"]

    def near(w, x, y):
        return check.cross_entropy(w, x, y) + 0.25 * sum(((w[n] - server[n]) ** 2).sum() for n in w)

    batches = check.batches(NEW, ROUNDS, check.steps(NEW, 2))
    expected = check.sgd(case.trace.params[0], batches, near)
    lab.close(case.slot("proximal_companion")["params"], expected)


AS_ANYONE = [
    "flda",
    "feddml",
    "apfl",
    "pfedme",
    "fedrod",
    "fedproto",
    "moon",
    "scaffold",
    "fedcurv",
    "feddyn",
    "ditto",
]


@pytest.mark.parametrize("method", AS_ANYONE)
def test_other_methods_let_a_newcomer_take_part_as_anyone_the_first_time(lab, method):
    case = newcomer(lab, method)
    simulation = case.trace.simulation
    setting = simulation.setting
    program, sent = setting.program(ROUNDS), broadcast(setting.method, simulation.server)
    (outcome,) = simulation.engine.round(program, sent, {NEW: setting.first_private(NEW)}, True)
    lab.same(case.joined.privates[NEW], outcome.private)
    lab.same(case.joined.after[0], outcome.after)


def test_rows_of_newcomers_are_apart(lab):
    rows = newcomer(lab, "fedper").trace.simulation.rows.table().to_pandas()
    assert set(rows.query("population == 'new'")["client"]) == {NEW}
    assert NEW not in set(rows.query("population != 'new'")["client"])
