"""FedBABU (Oh, Kim, Yun, ICLR 2022): the body alone is trained and averaged, then each client fine-tunes."""

import pytest

from idiolect import UserError

PART = "fixed_head"
HEAD = ["units.2.linear.weight"]
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"participation_rate": 0.7, "rounds": 2, "weight_decay": 0.01, "momentum": 0.5}


def is_head(name):
    return name in HEAD


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_head_is_that_of_the_initial_model_on_everyone_for_ever(lab, net, engine):
    """Neither momentum nor weight decay nor an average moves a bit of it."""
    trace, fedavg = (lab.run(m, net=net, engine=engine, **TRAINING) for m in ("fedbabu", "fedavg"))
    first = fedavg.params[0]
    for client in range(5):
        head = trace.slot(PART, client, 2)
        assert head
        lab.same(head, {name: first[name] for name in head})
    assert all(not set(server["params"]) & set(head) for server in trace.servers)
    assert lab.differ(trace.params[2], trace.params[0])


@ENGINES
def test_empty_head_is_exactly_fedavg_with_fine_tuning(lab, engine):
    a, b = (
        lab.run(m, engine=engine, **TRAINING)
        for m in ("fedbabu(count=0, epochs=2, lr_scale=1)", "fedavg_lu(epochs=2)")
    )
    lab.same(a.params, b.params)
    for client in range(5):
        lab.same(a.end[client]["slots"]["fine_tune"], b.end[client]["slots"]["fine_tune"])


def test_head_that_is_the_whole_network_is_refused(lab):
    with pytest.raises(UserError, match="leaves no layer"):
        lab.start("fedbabu(count=3)").setting.method.check(
            lab.start("fedavg").setting.task.structure, lab.start("fedavg").setting.experiment.scene
        )


@ENGINES
@pytest.mark.parametrize(
    ("tuned", "trained"),
    [("all", lambda n: True), ("head", is_head), ("body", lambda n: not is_head(n))],
)
def test_reference_agrees(lab, plain, tuned, trained, engine):
    """theta_B <- mean of the bodies trained under theta_H(0); at the end tau_f epochs from (theta_B, theta_H(0))."""
    trace = lab.run(
        f"fedbabu(epochs=2, lr_scale=0.5, tuned={tuned})", engine=engine, weighting="samples", **TRAINING
    )
    check = plain(trace)
    head = trace.slot(PART, 0, 0)

    def local(body, client, t):
        batches = check.batches(client, t, check.steps(client, 1))
        model = check.sgd({**body, **head}, batches, check.cross_entropy, trained=lambda n: not is_head(n))
        return {name: model[name] for name in body}

    path = check.federated(trace.params[0], local)
    lab.close(trace.params, path)
    for client in range(5):
        batches = check.batches(client, 2, check.steps(client, 2))
        final = check.sgd({**path[-1], **head}, batches, check.cross_entropy, 0.5, trained)
        lab.close(trace.end[client]["slots"]["fine_tune"]["params"], final)
        x, _ = check.rows(client, "test")
        found = trace.logits()[client]
        lab.close(found["LU"], check.forward(final, x)[1])
        lab.close(found["composed"], check.forward({**path[-1], **head}, x)[1])
