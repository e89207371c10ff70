"""FedAS (Yang, Huang, Ye, CVPR 2024): aligned bodies, private heads, and clients weighed by Fisher information."""

import pytest
import torch

from idiolect.federation import select

HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "momentum": 0.5}


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_equal_clients_without_alignment_are_exactly_fedper_s(lab, net, engine):
    """One client: whatever it weighs, the mean of its model is that model."""
    settings = {"federation": lab.federation(sizes=(9,)), "net": net, "engine": engine, "rounds": 2}
    a, b = (lab.run(m, **settings) for m in ("fedas(align_epochs=0)", "fedper(head_init=shared)"))
    lab.close(a.params, b.params)
    lab.close(a.slot("private_layers", 0, 2), b.slot("private_layers", 0, 2))


def test_first_participation_has_nothing_to_align_to(lab):
    a, b = (lab.run(m, rounds=2) for m in ("fedas", "fedas(align_epochs=0)"))
    lab.same(a.params[1], b.params[1])
    assert lab.differ(a.params[2], b.params[2])


def gap(check, w, x, y, wanted):
    h = check.forward(w, x)[0]
    classes = [c for c in range(len(wanted)) if (y == c).any()]
    return sum(torch.nn.functional.mse_loss(h[y == c], wanted[c].expand_as(h[y == c])) for c in classes)


@ENGINES
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_reference_of_three_rounds_agrees(lab, plain, scale, engine):
    trace = lab.run(f"fedas(align_epochs=2, align_lr_scale={scale})", engine=engine, **TRAINING)
    check, rate = plain(trace), 0.125 * scale
    heads = {k: trace.slot("private_layers", k, 0) for k in range(5)}
    means = {}

    def aligned(model, client, t):
        if client not in means:
            return model
        for x, y in check.batches(client, t, check.steps(client, 2), "alignment"):
            leaves = {n: w.clone().requires_grad_(n != HEAD) for n, w in model.items()}
            names = [n for n in model if n != HEAD]
            found = torch.autograd.grad(gap(check, leaves, x, y, means[client]), [leaves[n] for n in names])
            model = model | {n: model[n] - rate * g for n, g in zip(names, found, strict=True)}
        return model

    def information(model, x, y):
        """The mean over examples, one by one, of the squared norm of the gradient."""
        total = 0.0
        for row, label in zip(x, y, strict=True):
            leaves = {n: w.clone().requires_grad_() for n, w in model.items()}
            loss = check.cross_entropy(leaves, row[None], label[None])
            total += sum(float((g**2).sum()) for g in torch.autograd.grad(loss, list(leaves.values())))
        return total / len(y)

    def local(body, client, t):
        model = aligned({**body, **heads[client]}, client, t)
        model = check.sgd(model, check.batches(client, t, check.steps(client, 1)), check.cross_entropy)
        heads[client] = {HEAD: model[HEAD]}
        x, y = check.rows(client, "train")
        h = check.forward(model, x)[0]
        means[client] = torch.stack([h[y == c].mean(0) for c in range(4)])  # NaN where there is none
        return {n: model[n] for n in body}, information(model, x, y)

    path = [trace.params[0]]
    for t in range(3):
        cohort = select(0.7, 5, seed=check.experiment.seed, round=t)
        found = [local(path[-1], k, t) for k in cohort]
        total = sum(weight for _, weight in found)
        path.append({n: sum(weight * body[n] for body, weight in found) / total for n in path[-1]})
    lab.close(trace.params, path)
    for client in range(5):
        lab.close(trace.slot("private_layers", client, 3), heads[client])
