"""Per-FedAvg (Fallah, Mokhtari, Ozdaglar, NeurIPS 2020): a shared model that is good after one step."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F

from idiolect.engines import EngineChoice, Workload, choose_engine
from idiolect.federation import batches_per_epoch, plan_batches

PART = "meta_gradient"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
FORMS = pytest.mark.parametrize(("form", "per_step"), [("fo", 2), ("hf", 3)])
SIZES = (9, 6)


@pytest.fixture(scope="module")
def two(lab):
    return {"federation": lab.federation(SIZES), "rounds": 2, "local_epochs": 2}


@dataclass(frozen=True)
class SecondOf(Workload):
    """Of every ``per_step`` batches the second alone, as many as make the same number of steps."""

    per_step: int = 2

    def plan(self, program, stage, client, with_keys=True):
        rows, scene = self.federation.clients[client].train, program.scene
        per_epoch = batches_per_epoch(len(rows), scene.batch_size, self.drop_single)
        steps = math.ceil(scene.local_epochs * per_epoch / self.per_step - 1e-9)
        plan = plan_batches(
            rows,
            steps * self.per_step,
            scene.batch_size,
            seed=self.seed,
            position=(stage.stream, program.clock.round, client),
            drop_single=self.drop_single,
        )
        return type(plan)(*(array[1 :: self.per_step] for array in plan)), {}


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
@FORMS
def test_inner_rate_zero_is_exactly_fedavg_on_the_second_batches(lab, two, form, per_step, net, engine):
    settings = {"net": net, "engine": engine, "learning_rate": 0.125, **two}
    fedavg = lab.start("fedavg", momentum=0.0, **settings)
    work = SecondOf(**vars(fedavg.setting.work), per_step=per_step)
    fedavg.participants.engine = choose_engine(EngineChoice(engine, "cpu", "as asked"), work)
    trace = lab.run(f"perfedavg_{form}(inner_rate=0, outer_rate=0.125)", **settings)
    for t in range(2):
        fedavg.advance()
        lab.same(trace.params[t + 1], fedavg.server["params"])
        lab.same(trace.servers[t + 1]["buffers"], fedavg.server["buffers"])
    assert lab.differ(trace.params[2], trace.params[0])


@ENGINES
@FORMS
def test_inner_rate_zero_predicts_as_the_global_model(lab, two, form, per_step, engine):
    trace = lab.run(f"perfedavg_{form}(inner_rate=0, outer_rate=0.1)", engine=engine, **two)
    for found in trace.logits():
        lab.same(found["LU"], found["global"])
    adapted = lab.run(f"perfedavg_{form}(inner_rate=0.1, outer_rate=0.1)", engine=engine, **two)
    for found in adapted.logits():
        assert lab.differ(found["LU"], found["global"])


def test_parameters_are_restored_before_the_outer_step(lab, two):
    """No outer step, no movement: what the inner step did is forgotten."""
    for form in ("fo", "hf"):
        trace = lab.run(f"perfedavg_{form}(inner_rate=0.3, outer_rate=0)", **two)
        lab.same(trace.params[2], trace.params[0])


def test_momentum_and_decay_of_the_scene_play_no_part(lab, two):
    a = lab.run("perfedavg_hf(inner_rate=0.05, outer_rate=0.1)", **two)
    b = lab.run(
        "perfedavg_hf(inner_rate=0.05, outer_rate=0.1)",
        momentum=0.2,
        weight_decay=0.3,
        learning_rate=0.5,
        **two,
    )
    lab.close(a.params, b.params)
    lab.close(a.end[0]["slots"][PART], b.end[0]["slots"][PART])


@ENGINES
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_personal_model_is_adapted_by_plain_steps_on_training_data(lab, plain, two, steps, engine):
    trace = lab.run(
        f"perfedavg_fo(inner_rate=0.2, outer_rate=0.1, adapt_steps={steps})",
        engine=engine,
        weight_decay=0.1,
        **two,
    )
    check = plain(trace)
    check.experiment = replace(check.experiment, learning_rate=0.2, momentum=0.0, weight_decay=0.0)
    for client, found in enumerate(trace.logits()):
        batches = check.batches(client, 2, steps, "adapt")
        adapted = check.sgd(trace.params[2], batches, check.cross_entropy)
        lab.close(trace.end[client]["slots"][PART]["params"], adapted)
        lab.close(found["LU"], check.forward(adapted, check.rows(client, "test")[0])[1])


# ---- a network whose loss is quadratic in its parameters


def squared(params, batch, out):
    """Half the squared distance of the logits to the one-hot label, a mean over real rows."""
    gap = (
        (out.logits - (batch.y[:, None] == torch.arange(4, device=batch.y.device)).to(out.logits)) ** 2
    ).sum(-1) / 2
    return (gap * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def plain_squared(w, x, y):
    z = x.flatten(1) @ w["units.0.linear.weight"].T + w["units.0.linear.bias"]
    return ((z - F.one_hot(y, 4)) ** 2).sum(1).mean() / 2


def gradient(loss, w, x, y):
    leaves = {n: p.clone().requires_grad_() for n, p in w.items()}
    return dict(zip(leaves, torch.autograd.grad(loss(leaves, x, y), list(leaves.values())), strict=True))


def moved(w, step, along):
    return {n: w[n] + step * along[n] for n in w}


def first_order(loss, w, a, d, batches):
    inner = gradient(loss, w, *batches[0])
    return gradient(loss, moved(w, -a, inner), *batches[1])


def hessian_free(loss, w, a, d, batches):
    g = first_order(loss, w, a, d, batches)
    up, down = (gradient(loss, moved(w, sign * d, g), *batches[2]) for sign in (1, -1))
    return {n: g[n] - a * (up[n] - down[n]) / (2 * d) for n in g}


def exact(loss, w, a, d, batches):
    """(I - a H(w; D'')) g', the Hessian by differentiating twice."""
    g = first_order(loss, w, a, d, batches)
    leaves = {n: p.clone().requires_grad_() for n, p in w.items()}
    first = torch.autograd.grad(loss(leaves, *batches[2]), list(leaves.values()), create_graph=True)
    along = sum((f * g[n]).sum() for n, f in zip(leaves, first, strict=True))
    curved = torch.autograd.grad(along, list(leaves.values()))
    return {n: g[n] - a * c for n, c in zip(leaves, curved, strict=True)}


def federated(check, loss, meta, start, per_step, a, b, d):
    def local(w, client, t):
        batches = list(
            check.batches(client, t, per_step * math.ceil(check.steps(client, 2) / per_step - 1e-9))
        )
        for i in range(0, len(batches), per_step):
            w = moved(w, -b, meta(loss, w, a, d, batches[i : i + per_step]))
        return w

    return check.federated(start, local)


@ENGINES
@pytest.mark.parametrize("difference", [1e-3, 0.5, 20.0])
def test_hessian_free_form_is_exact_maml_on_a_quadratic_for_any_difference(
    lab, plain, two, difference, engine
):
    method = f"perfedavg_hf(inner_rate=0.05, outer_rate=0.05, difference={difference})"
    simulation = lab.start(method, net="one layer", engine=engine, **two)
    setting = simulation.setting
    simulation.participants.setting = replace(setting, task=setting.task._replace(criterion=squared))
    path = [simulation.server["params"]]
    for _ in range(2):
        simulation.advance()
        path.append(simulation.server["params"])
    check = plain(lab.run("fedavg", **two))
    quadratic = (check, plain_squared)
    lab.close(path, federated(*quadratic, exact, path[0], 3, 0.05, 0.05, None), rtol=1e-8)
    assert lab.differ(path, federated(*quadratic, first_order, path[0], 3, 0.05, 0.05, None))


@ENGINES
@FORMS
def test_reference_of_two_rounds_agrees(lab, plain, two, form, per_step, engine):
    a, b, d = 0.1, 0.2, 0.01
    option = f", difference={d}" if form == "hf" else ""
    trace = lab.run(
        f"perfedavg_{form}(inner_rate={a}, outer_rate={b}{option})",
        engine=engine,
        weighting="samples",
        **two,
    )
    check = plain(trace)
    meta = {"fo": first_order, "hf": hessian_free}[form]
    lab.close(trace.params, federated(check, check.cross_entropy, meta, trace.params[0], per_step, a, b, d))


@ENGINES
@FORMS
def test_inner_rate_is_the_scenes_unless_given(lab, two, form, per_step, engine):
    settings = {"learning_rate": 0.125, "engine": engine, **two}
    unset = lab.run(f"perfedavg_{form}(outer_rate=0.05)", **settings)
    given = lab.run(f"perfedavg_{form}(outer_rate=0.05, inner_rate=0.125)", **settings)
    other = lab.run(f"perfedavg_{form}(outer_rate=0.05, inner_rate=0.25)", **settings)
    lab.close(unset.params, given.params)
    lab.close(unset.end[0]["slots"][PART], given.end[0]["slots"][PART])
    assert lab.differ(unset.params[2], other.params[2])


@ENGINES
def test_inner_rate_of_the_scene_follows_its_schedule(lab, two, engine):
    """The first of two warm-up rounds has half of the rate."""
    settings = {"warmup_rounds": 2, "engine": engine, **two}
    warm = lab.run("perfedavg_fo(outer_rate=0.05)", learning_rate=0.125, **settings)
    half = lab.run("perfedavg_fo(outer_rate=0.05, inner_rate=0.0625)", learning_rate=0.125, **settings)
    lab.close(warm.params[1], half.params[1])
    assert lab.differ(warm.params[2], half.params[2])


@pytest.mark.parametrize("name", ["perfedavg_fo", "perfedavg_hf"])
def test_outer_steps_make_up_for_the_momentum_of_the_scene(lab, name):
    """Momentum 0.75 doubles them: 1 / sqrt(1 - 0.75) = 2."""
    settings = {"rounds": 2, "learning_rate": 0.0625, "momentum": 0.75}
    lab.same(lab.run(name, **settings).params, lab.run(f"{name}(outer_rate=0.125)", **settings).params)
