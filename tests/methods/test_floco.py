"""Floco (Grinwald, Wiesner, Nakajima, NeurIPS 2024): a simplex of heads, in which each client has a region."""

from functools import partial

import numpy as np
import pytest
import torch

from idiolect.core import derive
from idiolect.federation import select
from idiolect.parts.solution_simplex import furthest_scale, on_simplex, point_in_region, principal_axes

PART = "solution_simplex"
HEAD = "units.2.linear.weight"
ENGINES = pytest.mark.parametrize("engine", ["loop", "cohort"])
TRAINING = {"rounds": 4, "momentum": 0.5, "weight_decay": 0.01}


@pytest.mark.parametrize(("net", "engine"), [("mlp", "cohort"), ("bn", "loop")])
def test_one_corner_is_exactly_fedavg(lab, net, engine):
    settings = {"net": net, "engine": engine, "participation_rate": 0.7, "rounds": 2}
    trace, fedavg = lab.run("floco(endpoints=1)", **settings), lab.run("fedavg", **settings)
    lab.same(trace.params, fedavg.params)


@pytest.mark.parametrize("radius", [0.0, 0.3, 5.0])
def test_points_of_a_region_stay_in_it_and_in_the_simplex(radius):
    random = np.random.default_rng(0)
    centre = torch.from_numpy(random.dirichlet(np.ones(4)))
    draws = torch.from_numpy(random.random((500, 5)))
    for placed in (0.0, 1.0):
        points = torch.stack([point_in_region(d, centre, radius, torch.tensor(placed)) for d in draws])
        assert (points >= 0).all()
        torch.testing.assert_close(points.sum(1), torch.ones(500, dtype=torch.float64))
        away = (points - centre).abs().sum(1)
        assert (away <= radius + 1e-12).all() if placed else away.max() > 0.5
        if radius and placed:
            assert away.max() > min(radius, 0.5) / 2
        if not placed:  # a uniform point has these moments
            torch.testing.assert_close(points.mean(0), torch.full((4,), 0.25).double(), atol=0.03, rtol=0)
            torch.testing.assert_close(points.var(0), torch.full((4,), 0.0375).double(), atol=0.01, rtol=0)


def test_projection_is_the_nearest_point_of_the_simplex():
    random = np.random.default_rng(0)
    kappa = torch.from_numpy(random.standard_normal((6, 3)))
    found = on_simplex(kappa, 0.5) * 0.5
    grid = torch.from_numpy(random.dirichlet(np.ones(3), 20000)) * 0.5
    for point, projected in zip(kappa, found, strict=True):
        assert projected.sum() == pytest.approx(0.5) and (projected >= 0).all()
        assert (point - projected).norm() <= (grid - point).norm(dim=1).min() + 1e-12


def test_axes_are_those_of_the_singular_vectors_whatever_the_blocks():
    random = np.random.default_rng(0)
    rows = torch.from_numpy(random.standard_normal((30, 9)) * 2.0 ** -np.arange(9))
    centred = (rows - rows.mean(0)).numpy()
    expected = np.linalg.svd(centred, full_matrices=False)[2][:3]
    expected *= np.sign(expected[np.arange(3), np.abs(expected).argmax(1)])[:, None]
    for size in (30, 7):
        mean, axes = principal_axes(lambda size=size: iter(rows.split(size)), 3, seed=1)
        torch.testing.assert_close(mean, rows.mean(0))
        torch.testing.assert_close(axes, torch.from_numpy(expected), rtol=1e-8, atol=1e-10)
    _, few = principal_axes(lambda: iter([rows[:2]]), 3, seed=1)
    assert few[0].norm() == pytest.approx(1) and (few[1:] == 0).all()


def sizes_and_points(kappa):
    """The size of the grid with the least energy, and the points at it, by bisection for the projection's threshold."""
    sizes = np.linspace(1e-4, 1, 1000)[:, None]
    low, high = kappa.min(1) - sizes, np.broadcast_to(kappa.max(1), (1000, len(kappa)))
    for _ in range(100):
        middle = (low + high) / 2
        large = np.maximum(kappa - middle[..., None], 0).sum(-1) > sizes
        low, high = np.where(large, middle, low), np.where(large, high, middle)
    points = np.maximum(kappa - low[..., None], 0) / sizes[..., None]
    pairs = [(a, b) for a in range(len(kappa)) for b in range(a)]
    energy = sum(
        np.maximum(np.linalg.norm(points[:, a] - points[:, b], axis=-1), 1e-4) ** -2 for a, b in pairs
    )
    return sizes[energy.argmin(), 0], points[energy.argmin()]


def test_size_keeps_clients_furthest_apart():
    random = np.random.default_rng(2)
    for spread, alike in ((0.05, 0), (1.0, 0), (1.0, 1)):
        kappa = random.standard_normal((4, 3)) * spread
        kappa = np.concatenate([kappa, kappa[:alike]])  # clients at one point leave the choice to the others
        size, points = sizes_and_points(kappa)
        found = furthest_scale(torch.from_numpy(kappa))
        assert found.item() == pytest.approx(size)
        torch.testing.assert_close(on_simplex(torch.from_numpy(kappa), found), torch.from_numpy(points))


def test_size_is_chosen_on_clients_at_even_distances():
    random = np.random.default_rng(0)
    kappa = torch.from_numpy(random.standard_normal((520, 2)) * np.linspace(0.02, 0.5, 520)[:, None])
    assert furthest_scale(kappa) == furthest_scale(kappa[::3]) != furthest_scale(kappa[:256])


def points(corners, draws, centre, radius):
    """alpha of one step: uniform, or on the way from the centre to there."""
    length = -np.log(1 - draws[:-1])
    anywhere = length / length.sum()
    if centre is None:
        return anywhere
    apart = anywhere - centre
    share = draws[-1] ** (1 / (corners - 1)) * min(1, radius / np.abs(apart).sum())
    return centre + share * apart


def drawn(corners, stage, steps, stream, round, client):
    random = np.random.default_rng(derive(0, "draws", PART, stage, stream, round, client))
    return iter(random.random((steps, corners + 1)))


def placed_by(updates):
    """Principal components of the clients' updates, and the centres on the simplex that keep them furthest apart."""
    rows = np.stack([updates[k].numpy().reshape(-1) for k in updates])
    axes = np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2]
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
    kappa = (rows - rows.mean(0)) @ axes.T[:, :3]
    return dict(zip(updates, sizes_and_points(kappa)[1], strict=True))


@ENGINES
def test_reference_of_four_rounds_agrees(lab, plain, engine):
    """Two rounds anywhere on the simplex, the placing of all clients, two rounds in regions, and Floco+ beside it."""
    options = "endpoints=3, radius=0.4, phase_one=0.5, personal_epochs=1, personal_weight=0.8"
    trace = lab.run(f"floco({options})", engine=engine, participation_rate=1.0, **TRAINING)
    check, w = plain(trace), dict(trace.params[0])
    names = [HEAD, "corner 2", "corner 3"]
    w |= dict(zip(names[1:], trace.servers[0]["slots"][PART]["corners"], strict=True))
    own, centre = dict.fromkeys(range(5), w), dict.fromkeys(range(5))
    for t in range(4):
        updates, uploads = {}, []
        for k in select(1.0, 5, seed=0, round=t):
            steps = check.steps(k, 1)

            def at(v, alpha):
                head = sum(a * v[n] for a, n in zip(alpha, names, strict=True))
                return {n: head if n == HEAD else p for n, p in v.items()}

            def loss(v, x, y, draws, alpha=centre[k], at=at):
                return check.cross_entropy(at(v, points(3, next(draws), alpha, 0.4)), x, y)

            def near(v, x, y, draws, loss=loss, w=w):
                return loss(v, x, y, draws) + 0.8 / 2 * sum(((v[n] - w[n]) ** 2).sum() for n in v)

            shared = partial(loss, draws=drawn(3, "main", steps, "main", t, k))
            personal = partial(near, draws=drawn(3, "own simplex", steps, "main", t, k))
            new = check.sgd(w, check.batches(k, t, steps), shared)
            uploads.append(new)
            updates[k] = torch.stack([new[n] - w[n] for n in names])
            own[k] = check.sgd(own[k], check.batches(k, t, steps), personal)
        w = {n: sum(upload[n] for upload in uploads) / len(uploads) for n in w}
        if t == 1:
            centre = placed_by(updates)
        lab.close(trace.params[t + 1], {n: w[n] for n in trace.params[0]}, rtol=1e-7)
        lab.close(
            trace.servers[t + 1]["slots"][PART]["corners"], torch.stack([w[n] for n in names[1:]]), rtol=1e-7
        )
    assert len({tuple(np.round(each, 3)) for each in centre.values()}) > 2
    for k, found in enumerate(trace.logits()):
        x = check.rows(k, "test")[0]
        middle = [1 / 3] * 3
        for name, model, alpha in (
            ("global", w, middle),
            ("mix(region)", w, centre[k]),
            ("companion", own[k], centre[k]),
        ):
            lab.close(found[name], check.forward(at(model, alpha), x)[1], rtol=1e-6)


def test_clients_are_placed_by_their_last_update_before_and_later_ones_by_their_first(lab):
    trace = lab.run("floco(endpoints=3, phase_one=0.5)", participation_rate=0.4, rounds=6)
    cohorts = [set(select(0.4, 5, seed=0, round=t)) for t in range(6)]
    kept = trace.simulation.participants.downloads.kept.of(PART)
    assert set(kept.clients) == set.union(*cohorts)
    before = set.union(*cohorts[:3])
    slot = trace.servers[-1]["slots"][PART]
    lab.same(
        {n: slot[n] for n in ("mean", "axes", "size")},
        {n: trace.servers[3]["slots"][PART][n] for n in ("mean", "axes", "size")},
    )
    updates = kept.rows(sorted(before))["update"].flatten(1)
    lab.close(slot["mean"].flatten(), updates.mean(0))


def test_update_that_is_kept_is_what_a_client_changed_of_the_corners_that_it_was_sent(lab):
    trace = lab.run("floco(endpoints=3)", participation_rate=0.4, rounds=3, learning_rate=1e-9)
    kept = trace.simulation.participants.downloads.kept.of(PART)
    updates = kept.rows(kept.clients)["update"]
    assert 0 < updates.abs().max() < 1e-7


def test_clients_that_are_never_placed_are_at_the_middle(lab):
    trace = lab.run("floco(endpoints=4, phase_one=1)", rounds=2)
    for found in trace.logits():
        lab.close(found["mix(region)"], found["global"])


def test_clients_not_heard_from_are_at_the_middle_after_others_are_placed(lab):
    trace = lab.run("floco(endpoints=3, phase_one=0.5)", participation_rate=0.4, rounds=2)
    heard = set(select(0.4, 5, seed=0, round=0)) | set(select(0.4, 5, seed=0, round=1))
    assert trace.servers[-1]["slots"][PART]["placed"] == 1 and 0 < len(heard) < 5
    for k, found in enumerate(trace.logits()):
        if k in heard:
            assert lab.differ(found["mix(region)"], found["global"])
        else:
            lab.close(found["mix(region)"], found["global"])


def test_shared_model_is_at_the_middle_of_the_simplex(lab):
    trace = lab.run("floco(endpoints=3)", rounds=1)
    server = trace.servers[-1]
    corners = [server["params"][HEAD], *server["slots"][PART]["corners"]]
    found = trace.simulation.setting.program(1).shared_model(server)
    lab.close(found.params["model"][HEAD], sum(corners) / 3)
