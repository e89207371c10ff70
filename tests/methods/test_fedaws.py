"""FedAwS (Yu et al., ICML 2020): after the average the server pushes the classifier's rows apart."""

import pytest
import torch

from idiolect import run
from idiolect.errors import UserError
from idiolect.federation import select
from idiolect.methods import method
from idiolect.statistics import curve

HEAD = "units.2.linear.weight"
SCENE = {"rounds": 3, "participation_rate": 0.6, "weighting": "samples", "momentum": 0.5}


def distance(a, b):
    return (1 - (a @ b) / (a.norm() * b.norm())) / 2


def spread(rows, margin):
    """The mean over all ordered pairs of classes; one beside itself costs nothing."""
    n = len(rows)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return sum(torch.relu(margin - distance(rows[i], rows[j])) ** 2 for i, j in pairs) / n**2


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("options", ["steps=0", "margin=0"])
def test_neutral_spread_is_exactly_fedavg(lab, options, net, engine):
    settings = {**SCENE, "net": net, "engine": engine}
    fedaws, fedavg = lab.run(f"fedaws({options})", **settings), lab.run("fedavg", **settings)
    for a, b in zip(fedaws.servers, fedavg.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


@pytest.mark.parametrize("net", ["mlp", "bn", "one layer"])
def test_rows_of_the_classifier_alone_are_moved(lab, net):
    settings = {**SCENE, "net": net, "rounds": 1}
    fedaws, fedavg = lab.run("fedaws(margin=0.9)", **settings), lab.run("fedavg", **settings)
    last = max(int(name.split(".")[1]) for name in fedavg.params[1])
    for name, tensor in fedavg.params[1].items():
        if name == f"units.{last}.linear.weight":
            assert lab.differ(fedaws.params[1][name], tensor)
        else:
            lab.same(fedaws.params[1][name], tensor)
    lab.same(fedaws.servers[1]["buffers"], fedavg.servers[1]["buffers"])


def served(lab, rows, options):
    """The rows after one round of a client that learns nothing."""
    simulation = lab.start(f"fedaws({options})", federation=lab.federation((9,)), learning_rate=0)
    params = {**simulation.server["params"], HEAD: rows}
    simulation.server = {**simulation.server, "params": params}
    simulation.advance()
    return simulation.server["params"][HEAD]


ORTHOGONAL = torch.diag(torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]))[:4].double()
FARTHER = torch.cat([torch.eye(4).double() - 0.25, torch.zeros(4, 1).double()], 1)  # cosines of -1/3


@pytest.mark.parametrize("margin", [0.3, 0.5])
@pytest.mark.parametrize("rows", [ORTHOGONAL, FARTHER], ids=["orthogonal", "farther"])
def test_rows_apart_by_the_margin_stay(lab, rows, margin):
    lab.close(served(lab, rows, f"margin={margin}, steps=20"), rows)


@pytest.mark.parametrize("rows", [ORTHOGONAL, FARTHER], ids=["orthogonal", "farther"])
def test_rows_nearer_than_the_margin_are_pushed_apart(lab, rows):
    turned = rows + 0.2 * torch.sin(torch.arange(20).double()).reshape(4, 5)
    after = served(lab, turned, "margin=0.9, steps=3, learning_rate=1.0")
    assert spread(after, 0.9) < 0.99 * spread(turned, 0.9)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Absolute rates: the server's steps do not follow the clients' schedule."""
    fedaws = lab.run(
        "fedaws(margin=0.8, steps=6, learning_rate=0.3, momentum=0.7)",
        engine=engine,
        lr_decay=0.5,
        **SCENE,
    )
    check = plain(fedaws)
    w = fedaws.params[0]
    for t in range(3):
        cohort = select(0.6, 5, seed=check.experiment.seed, round=t)
        batches = [check.batches(k, t, check.steps(k, 1)) for k in cohort]
        locals_ = [check.sgd(w, b, check.cross_entropy, lr_scale=0.5**t) for b in batches]
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        w = {n: sum(s * u[n] for s, u in zip(sizes, locals_, strict=True)) / sum(sizes) for n in w}
        rows = w[HEAD].clone().requires_grad_()
        sgd = torch.optim.SGD([rows], lr=0.3, momentum=0.7)
        for _ in range(6):
            sgd.zero_grad()
            spread(rows, 0.8).backward()
            sgd.step()
        w = {**w, HEAD: rows.detach()}
        lab.close(fedaws.params[t + 1], w)


def test_classifier_of_several_layers_is_refused(lab):
    setting = lab.start("fedavg").setting
    structure = setting.task.structure._replace(linear_head=False)
    with pytest.raises(UserError, match="linear"):
        method("fedaws").check(structure, setting.experiment.scene)


def test_default_learns_with_ten_classes(tmp_path):
    """The rates belong to the mean: with the sum over pairs the classifier is torn apart and stays at chance."""
    settings = {"rounds": 4, "clients": 6, "participation_rate": 1.0, "partition": "iid", "evaluate_every": 4}
    done = run("fedaws", out=tmp_path, engine="loop", model="mlpnet(hidden=32)", batch_size=64, **settings)
    assert curve(done, "global").iloc[-1] > 0.6
