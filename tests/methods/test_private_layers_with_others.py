"""Private layers beside parts that look at the received model: the client's own layers stand in their place."""

import pytest
import torch
import torch.nn.functional as F

SCENE = {"rounds": 3, "participation_rate": 0.6, "local_epochs": 2, "momentum": 0.5}
HEAD = "units.2.linear.weight"
LG = "lg_fedavg(count=1)"


def of_own(trace, client, round, keeper="private_layers"):
    """The model that a client would start the next round from."""
    return trace.params[round] | trace.slot(keeper, client, round)


def contrast(check, w, before, weight, tau):
    def cosine(a, b):
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-8)

    def loss(v, x, y):
        h = check.forward(v, x)[0]
        near, far = (torch.exp(cosine(h, check.forward(u, x)[0]) / tau) for u in (w, before))
        return check.cross_entropy(v, x, y) + weight * -torch.log(near / (near + far)).mean()

    return loss


def taught(check, w, weight, tau):
    def loss(v, x, y):
        wanted = torch.softmax(check.forward(w, x)[1] / tau, 1)
        found = F.log_softmax(check.forward(v, x)[1] / tau, 1)
        return check.cross_entropy(v, x, y) + weight * tau**2 * F.kl_div(found, wanted, reduction="batchmean")

    return loss


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("side", ["output", "input"])
@pytest.mark.parametrize("other", ["contrastive", "received_teacher"])
def test_reference_of_three_rounds_agrees(lab, plain, other, side, engine):
    options = {
        "contrastive": "contrastive(weight=0.8, temperature=0.4)",
        "received_teacher": "received_teacher(transfer=kd, weight=0.8, temperature=2)",
    }
    text = f"fedavg + private_layers(side={side}, head_init=shared) + {options[other]}"
    run = lab.run(text, engine=engine, **SCENE)
    check = plain(run)
    first = of_own(run, 0, 0)
    own = {k: {n: w for n, w in first.items() if (n == HEAD) == (side == "output")} for k in range(5)}
    last = {}

    def local(shared, client, t):
        w = shared | own[client]
        pulled = contrast(check, w, last.get(client, w), 0.8, 0.4)
        loss = pulled if other == "contrastive" else taught(check, w, 0.8, 2)
        trained = check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)
        last[client], own[client] = trained, {n: trained[n] for n in own[client]}
        return {n: trained[n] for n in shared}

    lab.close(run.params, check.federated(run.params[0], local))
    for client, kept in own.items():
        lab.close(run.slot("private_layers", client, 3), kept)


@pytest.mark.parametrize("keeper", ["private_layers", "alternating_layers"])
@pytest.mark.parametrize(
    ("other", "predictor", "share"),
    [("mixed_companion(alpha=0.3)", "mix(alpha)", 0.3), ("mixed_subspace(phase_one=0)", "mix(0.3)", 0.3)],
)
def test_mixture_is_with_the_composed_model(lab, plain, other, predictor, share, keeper):
    run = lab.run(f"fedavg + {keeper} + {other}", rounds=2)
    check, part = plain(run), other.partition("(")[0]
    for client, logits in enumerate(run.logits()):
        w, slot = of_own(run, client, 2, keeper), run.slot(part, client, 2)
        own = slot if part == "mixed_subspace" else slot["params"]
        mixture = {n: (1 - share) * w[n] + share * own[n] for n in w}
        lab.close(logits[predictor], check.forward(mixture, check.rows(client, "test")[0])[1])
        assert lab.differ(w, own)


@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize(
    "other",
    [
        "inherited_model()",
        "inherited_teacher(transfer=kd, inference=ensemble)",
        "curvature()",
        "optimal_teacher(lambdas=(0.5,), temperatures=(1,), epochs=1, teacher=fedavg)",
        "mixed_companion(learned=True, shared_first=True)",
    ],
)
def test_private_layers_below_shared_ones_run_with_whole_private_models(lab, other, net, engine):
    run = lab.run(f"{LG} + {other}", net=net, engine=engine, rounds=2)
    assert all(row["value"] == row["value"] for row in run.simulation.rows.table().to_pylist())


def test_last_shared_model_as_teacher_has_the_clients_own_layers(lab, plain):
    run = lab.run("fedper + optimal_teacher(lambdas=(0.5,), temperatures=(1,), epochs=0, teacher=fedavg)")
    check = plain(run)
    for client, logits in enumerate(run.logits()):
        wanted = check.forward(of_own(run, client, 3), check.rows(client, "test")[0])[1]
        lab.close(logits["teacher"], wanted)
        lab.close(logits["companion"], wanted)


def test_nothing_to_average_leaves_normalised_averaging_idle(lab):
    idle = lab.run("fednova + private_layers(count=None, head_init=shared)", momentum=0.0)
    local = lab.run("local", momentum=0.0)
    assert idle.params == [{}] * 4
    for client in range(5):
        lab.close(idle.slot("private_layers", client, 3), local.slot("private_layers", client, 3))


@pytest.mark.parametrize(
    "other", ["meta_gradient(form=hessian_free)", "moreau_envelope()", "control_variates()"]
)
def test_epochs_on_the_private_layers_follow_the_main_stage_in_either_order(lab, other):
    one, two = (
        lab.run(f"fedavg + {text}", rounds=2)
        for text in (
            f"private_layers(fine_tune_epochs=1) + {other}",
            f"{other} + private_layers(fine_tune_epochs=1)",
        )
    )
    lab.same(one.params, two.params)
    assert lab.differ(one.params[2], lab.run(f"fedper + {other}", rounds=2).params[2])


def test_count_of_none_keeps_everything_on_either_side(lab):
    one, two = (lab.run(f"fedavg + private_layers(count=None, side={side})") for side in ("output", "input"))
    assert one.params == two.params == [{}] * 4
    for client in range(5):
        lab.same(one.privates[3][client], two.privates[3][client])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_mixture_after_the_shared_step_follows_layers_in_turn(lab, plain, engine):
    """One round of APFL on FedRep's stages: in each, both models move only where the stage trains."""
    alpha, keeper = 0.3, "alternating_layers(head_epochs=1, body_epochs=2, head_init=shared)"
    text = f"fedavg + {keeper} + mixed_companion(alpha={alpha}, shared_first=True)"
    run = lab.run(text, engine=engine, rounds=1, momentum=0.5)
    check, rate = plain(run), 0.125
    for client in range(5):
        w = of_own(run, client, 0, "alternating_layers")
        v = dict(w)
        for epochs, names in ((1, [HEAD]), (2, [n for n in w if n != HEAD])):
            pace, own_pace = ({n: 0 * w[n] for n in names} for _ in range(2))
            for x, y in check.batches(client, 0, check.steps(client, epochs)):
                for model, velocity, share in ((w, pace, None), (v, own_pace, alpha)):
                    point = w if share is None else {n: (1 - alpha) * w[n] + alpha * v[n] for n in w}
                    leaves = {n: p.clone().requires_grad_(n in names) for n, p in point.items()}
                    grads = torch.autograd.grad(check.cross_entropy(leaves, x, y), [leaves[n] for n in names])
                    for name, grad in zip(names, grads, strict=True):
                        velocity[name] = 0.5 * velocity[name] + (share or 1) * grad
                        model[name] = model[name] - rate * velocity[name]
        lab.close(run.slot("mixed_companion", client, 1)["params"], v)
        lab.close(run.slot("alternating_layers", client, 1), {HEAD: w[HEAD]})


@pytest.mark.parametrize("keeper", ["private_layers", "alternating_layers"])
def test_gate_and_personal_head_stand_on_the_composed_model(lab, plain, keeper):
    gated, headed = (
        lab.run(f"fedavg + {keeper} + {text}", rounds=2) for text in ("gated_companion", "personal_head")
    )
    check = plain(gated)
    for client, (mixed, added) in enumerate(zip(gated.logits(), headed.logits(), strict=True)):
        x = check.rows(client, "test")[0]
        slot = gated.slot("gated_companion", client, 2)
        features, ours = check.forward(of_own(gated, client, 2, keeper), x)
        gate = torch.sigmoid(features @ slot["gate"]["v"] + slot["gate"]["b"])[:, None]
        lab.close(
            mixed["composed(gated_companion)"], gate * ours + (1 - gate) * check.forward(slot["own"], x)[1]
        )
        lab.close(mixed[f"composed({keeper})"], ours)
        features, ours = check.forward(of_own(headed, client, 2, keeper), x)
        head = headed.slot("personal_head", client, 2)["weight"]
        lab.close(added["composed(personal_head)"], ours + features @ head.T)
