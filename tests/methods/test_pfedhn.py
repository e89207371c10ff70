"""pFedHN (Shamsian et al., ICML 2021): a network on the server makes each client's model from its embedding."""

import pytest
import torch

from idiolect.parts.hypernetwork import first_embedding

PART = "hypernetwork"
RATE = 0.02
METHOD = f"pfedhn(learning_rate={RATE}, embedding=3, width=6, depth=2)"
TRAINING = {"participation_rate": 0.7, "rounds": 3, "weight_decay": 0.01, "weighting": "samples"}


class Hyper(torch.nn.Module):
    """The hypernetwork out of torch's own layers, with the values of a slot; a model is one vector."""

    def __init__(self, slot):
        super().__init__()
        layers = []
        for layer in slot["hidden"].values():
            linear = torch.nn.Linear(*reversed(layer["weight"].shape), dtype=torch.float64)
            linear.load_state_dict(layer)
            layers += [linear, torch.nn.ReLU()]
        self.hidden = torch.nn.Sequential(*layers)
        self.weights = torch.nn.ParameterList([w.flatten(1).clone() for w in slot["weights"].values()])
        self.biases = torch.nn.ParameterList([b.flatten().clone() for b in slot["biases"].values()])

    def forward(self, v):
        return torch.cat([self.hidden(v) @ w + b for w, b in zip(self.weights, self.biases, strict=True)])


def vector(model):
    return torch.cat([leaf.flatten() for leaf in model.values()])


def model_of(theta, like):
    pieces = theta.split([leaf.numel() for leaf in like.values()])
    return {n: piece.reshape(leaf.shape) for (n, leaf), piece in zip(like.items(), pieces, strict=True)}


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Gradients of the distance to what each client made of its model, by autograd, a client at a time."""
    trace = lab.run(METHOD, engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    like = trace.params[0]
    hyper = Hyper(trace.servers[0]["slots"][PART])
    rows = {k: first_embedding(0, k, torch.zeros(3, dtype=torch.float64)) for k in range(5)}
    for t in range(3):
        cohort, steps, moves = setting.cohort(t), [], {}
        sizes = [len(check.federation.clients[k].train) for k in cohort]
        for k in cohort:
            v = rows[k].clone().requires_grad_()
            theta = hyper(v)
            sent = model_of(theta.detach(), like)
            trained = vector(check.sgd(sent, check.batches(k, t, check.steps(k, 1)), check.cross_entropy))
            half = ((theta - trained) ** 2).sum() / 2
            moves[k], *step = torch.autograd.grad(half, [v, *hyper.parameters()])
            steps.append(step)
        with torch.no_grad():
            for place, p in enumerate(hyper.parameters()):
                p -= RATE * sum(n * step[place] for n, step in zip(sizes, steps, strict=True)) / sum(sizes)
        for k, move in moves.items():
            rows[k] = rows[k] - RATE * move
    slot = trace.servers[3]["slots"][PART]
    ours = [leaf.detach() for leaf in Hyper(slot).state_dict().values()]
    lab.close(ours, [leaf.detach() for leaf in hyper.state_dict().values()])
    assert lab.differ(slot["hidden"], trace.servers[0]["slots"][PART]["hidden"])
    kept = trace.simulation.participants.downloads.kept.of(PART).rows(range(5))["moved"]
    first = [first_embedding(0, k, torch.zeros(3, dtype=torch.float64)) for k in range(5)]
    lab.close(list(kept), [rows[k] - first[k] for k in range(5)])
    assert (kept != 0).any(1).sum() > 3
    downloads = trace.simulation.participants.downloads
    sent = downloads.send(setting.program(3), trace.servers[3], range(5)).own[PART]["params"]
    for k in range(5):
        theta = hyper(rows[k]).detach()
        lab.close({n: leaf[k] for n, leaf in sent.items()}, model_of(theta, like))


def test_all_clients_begin_with_the_initial_model_and_soon_have_their_own(lab):
    simulation = lab.start(METHOD, rounds=2)
    downloads, program = simulation.participants.downloads, simulation.setting.program(0)
    sent = downloads.send(program, simulation.server, [0, 3]).own[PART]["params"]
    for name, leaf in simulation.setting.initial(0).params.items():
        lab.same(sent[name], torch.stack([leaf, leaf]))
    simulation.advance()
    sent = downloads.send(simulation.setting.program(1), simulation.server, [0, 3]).own[PART]["params"]
    assert all(lab.differ(leaf[0], leaf[1]) for leaf in sent.values())


def test_a_rate_of_zero_leaves_everybody_the_initial_model(lab):
    trace = lab.run("pfedhn(learning_rate=0)", rounds=2)
    lab.same(trace.servers[2]["slots"][PART], trace.servers[0]["slots"][PART])


def test_kept_layers_are_not_made(lab):
    """With private heads, pFedHN-PC."""
    trace = lab.run("pfedhn + private_layers", rounds=1)
    head = "units.2.linear.weight"
    assert (
        head not in trace.servers[1]["slots"][PART]["biases"]
        and len(trace.servers[1]["slots"][PART]["biases"]) == 4
    )
    assert lab.differ(trace.slot("private_layers", 0, 1)[head], trace.slot("private_layers", 1, 1)[head])


def test_a_newcomer_is_sent_the_model_of_the_mean_embedding(lab):
    simulation = lab.start(METHOD, participation_rate=0.4, rounds=1)
    simulation.advance()
    downloads = simulation.participants.downloads
    heard = downloads.kept.of(PART).clients
    assert len(heard) == 2
    moved = downloads.kept.of(PART).rows(heard)["moved"]
    mean = torch.stack([first_embedding(0, k, moved[0]) for k in heard]).add(moved).mean(0)
    program = simulation.setting.program(1, newcomer=True)
    sent = downloads.send(program, simulation.server, [4]).own[PART]["params"]
    theta = Hyper(simulation.server["slots"][PART])(mean).detach()
    lab.close({n: leaf[0] for n, leaf in sent.items()}, model_of(theta, simulation.setting.initial(0).params))
