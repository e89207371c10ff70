"""FedLC (Zhang et al., ICML 2022): logits calibrated by how many samples a client has of each class."""

import pytest
import torch

ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 2, "weight_decay": 0.01, "weighting": "samples"}
BALANCED = ((0, 1, 2, 3),)


@ENGINES
def test_no_calibration_is_exactly_fedavg(lab, engine):
    a, b = (lab.run(method, engine=engine, **TRAINING) for method in ("fedlc(calibration=0)", "fedavg"))
    lab.same(a.params, b.params)


@ENGINES
def test_client_with_equally_many_of_every_class_trains_as_in_fedavg(lab, engine):
    """Equal margins cancel in a softmax over all classes; the missing classes of other clients do not."""
    equal = lab.federation(sizes=(8, 12), held=BALANCED * 2)
    a, b = (lab.run(m, engine=engine, federation=equal, rounds=2) for m in ("fedlc(calibration=3)", "fedavg"))
    lab.close(a.params, b.params)
    assert lab.differ(lab.run("fedlc", rounds=1).params[1], lab.run("fedavg", rounds=1).params[1])


@ENGINES
def test_missing_class_has_no_gradient(lab, engine):
    """Its weights never move, because the client's softmax leaves it out."""
    alone = lab.federation(sizes=(9,), held=((0, 2),))
    trace = lab.run("fedlc", engine=engine, federation=alone, rounds=2)
    head = [params["units.2.linear.weight"] for params in trace.params]
    lab.same(head[2][[1, 3]], head[0][[1, 3]])
    assert lab.differ(head[2][[0, 2]], head[0][[0, 2]])


def test_client_with_one_class_learns_nothing_and_stays_finite(lab):
    for form in ("all", "others"):
        trace = lab.run(
            f"fedlc(denominator={form})", federation=lab.federation(sizes=(9,), held=((1,),)), rounds=2
        )
        lab.same(trace.params[2], trace.params[0])


@ENGINES
@pytest.mark.parametrize(("tau", "form"), [(0.5, "all"), (2.0, "all"), (1.0, "others")])
def test_reference_of_two_rounds_agrees(lab, plain, tau, form, engine):
    """The quotient of exponentials, summed class by class over those that the client holds."""
    trace = lab.run(f"fedlc(calibration={tau}, denominator={form})", engine=engine, **TRAINING)
    check = plain(trace)

    def local(w, client, t):
        counts = check.counts(client)
        held = [c for c in range(len(counts)) if counts[c] > 0]

        def loss(v, x, y):
            z = check.forward(v, x)[1]
            raised = {c: torch.exp(z[:, c] - tau / counts[c] ** 0.25) for c in held}
            total = 0
            for row, label in enumerate(y.tolist()):
                rivals = [c for c in held if form == "all" or c != label]
                below = sum(raised[c][row] for c in rivals)
                total = total - torch.log(raised[label][row] / below) if rivals else total + 0 * z[row].sum()
            return total / len(y)

        return check.sgd(w, check.batches(client, t, check.steps(client, 1)), loss)

    lab.close(trace.params, check.federated(trace.params[0], local))
