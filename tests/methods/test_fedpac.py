"""FedPAC (Xu, Tong, Huang, ICLR 2023): aligned features, and classifiers mixed by a quadratic programme."""

from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from idiolect.parts.classifier_collaboration import combining_weights

HEAD = "units.2.linear.weight"
TRAINING = {"rounds": 3, "participation_rate": 0.7, "weight_decay": 0.01, "weighting": "samples"}


def least(matrix):
    """The weights of the quadratic programme: the best of the stationary points on every face of the simplex."""
    best, found = np.inf, None
    for size in range(1, len(matrix) + 1):
        for face in map(list, combinations(range(len(matrix)), size)):
            alpha = np.zeros(len(matrix))
            alpha[face] = np.linalg.solve(matrix[np.ix_(face, face)], np.ones(size))
            alpha /= alpha.sum()
            if (alpha >= 0).all() and alpha @ matrix @ alpha < best:
                best, found = alpha @ matrix @ alpha, alpha
    return found


def programme(variances, means, client):
    gaps = np.stack([(means[client] - other).ravel() for other in means])
    return np.diag(variances) + gaps @ gaps.T


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_reference_of_three_rounds_agrees(lab, plain, engine):
    """Both stages of local training, the statistics and the programme written out from the paper."""
    weight, rate = 0.7, 2.0
    trace = lab.run(f"fedpac(weight={weight}, head_lr_scale={rate})", engine=engine, **TRAINING)
    check, setting = plain(trace), trace.simulation.setting
    shared, mixed_some = trace.params[0], False
    heads = {c: setting.initial(c).params[HEAD] for c in range(5)}
    centroids: dict = {}
    for t in range(3):
        cohort, uploads = setting.cohort(t), []
        for k in cohort:
            x, y = check.rows(k, "train")
            w = {**shared, HEAD: heads[k]}
            features = check.forward(w, x)[0]
            share = torch.bincount(y, minlength=lab.classes).double() / len(y)
            h = torch.stack(
                [p * features[y == c].mean(0) if p else torch.zeros(5).double() for c, p in enumerate(share)]
            )
            variance = sum(
                p * (features[y == c] ** 2).sum(1).mean() - (h[c] ** 2).sum()
                for c, p in enumerate(share)
                if p
            )

            def aligned(w, x, y, centroids=centroids):
                features, logits = check.forward(w, x)
                pull = sum(
                    ((f - centroids[int(c)]) ** 2).mean()
                    for f, c in zip(features, y, strict=True)
                    if int(c) in centroids
                )
                return F.cross_entropy(logits, y) + weight * pull / len(y)

            batches, steps = check.batches, check.steps(k, 1)
            w = check.sgd(w, batches(k, t, steps), check.cross_entropy, rate, lambda n: n == HEAD)
            w = check.sgd(w, batches(k, t, steps), aligned, 1.0, lambda n: n != HEAD)
            uploads.append((w, x, y, variance / len(y), h))
        sums, counts = torch.zeros(lab.classes, 5).double(), torch.zeros(lab.classes).double()
        for w, x, y, _, _ in uploads:
            for f, c in zip(check.forward(w, x)[0], y, strict=True):
                sums[c], counts[c] = sums[c] + f, counts[c] + 1
        centroids |= {c: sums[c] / counts[c] for c in range(lab.classes) if counts[c]}
        sizes = [len(y) for _, _, y, _, _ in uploads]
        shared = {
            name: sum(n * u[0][name] for n, u in zip(sizes, uploads, strict=True)) / sum(sizes)
            for name in shared
            if name != HEAD
        }
        variances = np.array([float(u[3]) for u in uploads])
        means = np.stack([u[4].numpy() for u in uploads])
        for place, k in enumerate(cohort):
            alpha = least(programme(variances, means, place))
            mixed_some |= 0.01 < alpha[place] < 0.99
            heads[k] = sum(a * u[0][HEAD] for a, u in zip(alpha, uploads, strict=True))
        lab.close(trace.params[t + 1], shared)
    assert mixed_some
    prototypes = trace.servers[-1]["slots"]["class_prototypes"]["prototypes"]
    lab.close(prototypes, torch.stack([centroids[c] for c in range(lab.classes)]))
    for k, found in enumerate(trace.logits()):
        x, _ = check.rows(k, "test")
        lab.close(found["composed"], check.forward({**shared, HEAD: heads[k]}, x)[1], rtol=1e-8)


def test_the_programme_is_solved_exactly():
    random = np.random.default_rng(0)
    for count in (1, 2, 5):
        means, variances = random.standard_normal((count, 3, 4)), random.exponential(3.0, count)
        found = combining_weights(variances, means.reshape(count, -1))
        for client in range(count):
            np.testing.assert_allclose(
                found[client], least(programme(variances, means, client)), rtol=1e-9, atol=1e-12
            )


def test_like_clients_share_by_their_variance_and_unlike_ones_do_not():
    far = np.array([[0.0, 0.0], [0.0, 0.0], [50.0, 0.0]])
    np.testing.assert_allclose(
        combining_weights(np.array([1.0, 3.0, 0.1]), far),
        [[0.75, 0.25, 0], [0.75, 0.25, 0], [0, 0, 1]],
        atol=1e-3,
    )


def test_a_client_whose_own_term_is_zero_keeps_its_classifier():
    weights = combining_weights(np.array([0.0, 0.0, 1.0]), np.zeros((3, 4)))
    np.testing.assert_array_equal(weights[:2], np.eye(3)[:2])
    np.testing.assert_allclose(weights[2], weights[2].clip(0) / weights[2].sum())


def test_alone_in_the_cohort_a_client_keeps_its_classifier(lab):
    """With one client the mixture is its own classifier, and without alignment the method is FedRep."""
    federation = lab.federation(sizes=(9,), held=((0, 1, 2),))
    rep, pac = (
        lab.run(method, federation=federation, rounds=2)
        for method in (
            "fedrep(head_epochs=1, body_epochs=1, head_init=shared)",
            "fedpac(weight=0)",
        )
    )
    lab.close(pac.params, rep.params)
    lab.close(pac.slot("alternating_layers", 0, 2)[HEAD], rep.slot("alternating_layers", 0, 2)[HEAD])


def test_variance_below_zero_that_a_hostile_client_sends_counts_as_zero():
    means = np.random.default_rng(0).normal(size=(3, 4))
    found = combining_weights(np.array([2.0, -5.0, 1.0]), means)
    assert np.array_equal(found, combining_weights(np.array([2.0, 0.0, 1.0]), means))
    assert found[1].tolist() == [0, 1, 0] and found.sum(1) == pytest.approx(1)
