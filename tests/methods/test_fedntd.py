"""FedNTD (Lee et al., NeurIPS 2022): the received model teaches every class but the label's."""

import pytest
import torch

from idiolect.parts.not_true_distillation import not_true_kl

ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 2, "weight_decay": 0.01, "weighting": "samples"}


@ENGINES
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_no_weight_is_exactly_fedavg(lab, net, engine):
    a, b = (lab.run(method, net=net, engine=engine, **TRAINING) for method in ("fedntd(weight=0)", "fedavg"))
    lab.same(a.params, b.params)
    assert lab.differ(lab.run("fedntd", rounds=1).params[1], lab.run("fedavg", rounds=1).params[1])


def test_two_classes_leave_nothing_to_distil(lab):
    """One class that a row is not has probability 1 on both sides."""
    student, teacher = torch.randn(2, 5, 2, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 0, 1])
    assert not_true_kl(student, teacher, labels, torch.ones(5), 2.0) == 0


def test_the_label_s_logit_has_no_part_in_the_distillation():
    student, teacher = torch.randn(2, 5, 4, dtype=torch.float64)
    student.requires_grad_()
    labels = torch.tensor([0, 1, 3, 2, 1])
    not_true_kl(student, teacher, labels, torch.ones(5), 2.0).backward()
    own = torch.nn.functional.one_hot(labels, 4) > 0
    assert not student.grad[own].any() and student.grad[~own].abs().min() > 0


@ENGINES
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (0.5, 3.0)])
def test_reference_of_two_rounds_agrees(lab, plain, beta, tau, engine):
    """KL over the remaining K - 1 classes, cut out row by row."""
    trace = lab.run(f"fedntd(weight={beta}, temperature={tau})", engine=engine, **TRAINING)
    check = plain(trace)

    def without(z, y):
        kept = [[c for c in range(z.shape[1]) if c != label] for label in y.tolist()]
        return torch.stack([row[others] for row, others in zip(z, kept, strict=True)])

    def local(w, client, t):
        def loss(v, x, y):
            ours = torch.softmax(without(check.forward(v, x)[1], y) / tau, 1)
            theirs = torch.softmax(without(check.forward(w, x)[1], y) / tau, 1)
            divergence = (theirs * torch.log(theirs / ours)).sum(1).mean()
            return check.cross_entropy(v, x, y) + beta * tau**2 * divergence

        return check.sgd(w, check.batches(client, t, check.steps(client, 1)), loss)

    lab.close(trace.params, check.federated(trace.params[0], local))
