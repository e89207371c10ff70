"""Robust means of uploads against direct computations in numpy from the papers' definitions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from idiolect.core import Clock, server_round
from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.parts.krum import nearest
from idiolect.testing import tiny_run
from idiolect.testing.sameness import assert_exact, states


def clock(uploads: int) -> Clock:
    return Clock(0, 5, 1.0, uploads, uploads, 0.1)


NAMES = ("body", "head")
SHAPES = {"body": (4, 3), "head": (5,), "running": (2,), "control": (3,)}


def some_uploads(count: int, hostile: int, seed: int = 0) -> tuple[dict, dict, np.ndarray]:
    """Server's tensors, uploads near them with the last few far away, and weights, as numpy arrays."""
    random = np.random.default_rng(seed)
    start = {name: random.normal(size=shape) for name, shape in SHAPES.items()}
    far = np.where(np.arange(count) >= count - hostile, 30.0, 1.0)
    sent = {
        name: start[name] + far.reshape(-1, *[1] * len(shape)) * random.normal(size=(count, *shape))
        for name, shape in SHAPES.items()
    }
    return start, sent, random.uniform(0.5, 2, size=count)


def merged(text: str, start: dict, sent: dict, weights: np.ndarray) -> dict[str, np.ndarray]:
    """The server's tensors after our merge."""
    tensors = {name: torch.from_numpy(array) for name, array in start.items()}
    uploads = {name: torch.from_numpy(array) for name, array in sent.items()}
    weight = torch.from_numpy(weights)
    made = method(text)
    server = {
        "params": {name: tensors[name] for name in NAMES},
        "buffers": {"running": tensors["running"]},
        "slots": {},
    }
    messages = {
        "average": ({name: uploads[name] for name in NAMES}, weight),
        "buffers": ({"running": uploads["running"]}, weight),
    }
    found = server_round(made, server, messages, clock(len(weights)))
    return {name: leaf.numpy() for name, leaf in {**found["params"], **found["buffers"]}.items()}


def as_rows(start: dict, sent: dict) -> np.ndarray:
    """The updates of the model and its statistics, a row for each client."""
    names = (*NAMES, "running")
    return np.concatenate([(sent[n] - start[n]).reshape(len(sent[n]), -1) for n in names], axis=1)


def as_model(start: dict, row: np.ndarray) -> dict[str, np.ndarray]:
    found, place = {}, 0
    for name in (*NAMES, "running"):
        size = start[name].size
        found[name] = start[name] + row[place : place + size].reshape(start[name].shape)
        place += size
    return found


def median_of(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.median(rows, axis=0)


def trimmed_of(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A fifth of the values off either end, number by number."""
    cut = len(rows) // 5
    return np.array([np.mean(sorted(column)[cut : len(rows) - cut]) for column in rows.T])


def krum_scores(rows: np.ndarray, hostile: int) -> list[float]:
    found = []
    for k, own in enumerate(rows):
        apart = sorted(float(((own - other) ** 2).sum()) for j, other in enumerate(rows) if j != k)
        found.append(sum(apart[: len(rows) - hostile - 2]))
    return found


def krum_of(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return rows[int(np.argmin(krum_scores(rows, len(rows) // 5)))]


def multi_krum_of(rows: np.ndarray, weights: np.ndarray, selected: int | None = None) -> np.ndarray:
    hostile = len(rows) // 5
    best = np.argsort(krum_scores(rows, hostile))[: selected or len(rows) - hostile]
    return np.average(rows[best], axis=0, weights=weights[best])


def weiszfeld_of(
    rows: np.ndarray, weights: np.ndarray, steps: int = 4, smoothing: float = 1e-5
) -> np.ndarray:
    shares = weights / weights.sum()
    middle = (shares[:, None] * rows).sum(0)
    for _ in range(steps):
        beta = np.array(
            [
                p / max(smoothing, np.sqrt(((middle - u) ** 2).sum()))
                for p, u in zip(shares, rows, strict=True)
            ]
        )
        middle = (beta[:, None] * rows).sum(0) / beta.sum()
    return middle


def bounded_of(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    norms = [np.sqrt((row**2).sum()) for row in rows]
    shorter = [row / max(1.0, norm / np.median(norms)) for row, norm in zip(rows, norms, strict=True)]
    return np.average(shorter, axis=0, weights=weights)


def bounded_at_two(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    shorter = [row / max(1.0, float(np.linalg.norm(row)) / 2) for row in rows]
    return np.average(shorter, axis=0, weights=weights)


REFERENCES = {
    "median": median_of,
    "trimmed_mean(share=0.2)": trimmed_of,
    "krum(share=0.2)": krum_of,
    "multi_krum(share=0.2)": multi_krum_of,
    "multi_krum(share=0.2, selected=3)": partial(multi_krum_of, selected=3),
    "geometric_median": weiszfeld_of,
    "geometric_median(steps=3, smoothing=8.0)": partial(weiszfeld_of, steps=3, smoothing=8.0),
    "norm_bound": bounded_of,
    "norm_bound(bound=2.0, unit=absolute)": bounded_at_two,
}


@pytest.mark.parametrize("count", [7, 10])
@pytest.mark.parametrize("part", REFERENCES)
def test_merge_is_that_of_the_paper(part: str, count: int) -> None:
    start, sent, weights = some_uploads(count, hostile=count // 5)
    expected = as_model(start, REFERENCES[part](as_rows(start, sent), weights))
    found = merged(f"fedavg + {part}", start, sent, weights)
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "part", ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median(steps=20)"]
)
def test_a_fifth_of_the_uploads_cannot_carry_the_model_away(part: str) -> None:
    start, sent, weights = some_uploads(10, hostile=2)
    honest = as_rows(start, {name: array[:8] for name, array in sent.items()})
    outermost = np.abs(honest).max()
    for scale in (1.0, 1e6):
        far = {n: np.concatenate([a[:8], start[n] + scale * (a[8:] - start[n])]) for n, a in sent.items()}
        moved = np.abs(
            as_rows(start, {n: a[None] for n, a in merged(f"fedavg + {part}", start, far, weights).items()})
        )
        assert moved.max() <= outermost


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_geometric_median_leaves_a_known_part_of_hostile_updates(steps: int) -> None:
    """Two of ten, all alike and of length L: of them (h / (1 - h))^(R + 1) is left, (2 / 8)^(R + 1) of L."""
    start = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    one, length = np.random.default_rng(0).normal(size=26), 1e9
    one *= length / np.linalg.norm(one)
    sent, place = {}, 0
    for name, shape in SHAPES.items():
        size = start[name].size
        sent[name] = np.zeros((10, *shape))
        sent[name][8:] = np.resize(one[place : place + size], shape)
        place += size
    length = np.linalg.norm(as_rows(start, sent)[-1])
    found = merged(f"fedavg + geometric_median(steps={steps})", start, sent, np.ones(10))
    moved = np.linalg.norm(as_rows(start, {name: array[None] for name, array in found.items()}))
    assert moved / length == pytest.approx(0.25 ** (steps + 1), rel=0.1)


def test_geometric_median_of_equal_uploads_is_that_upload() -> None:
    """All distances are below the smoothing, so that nothing is divided by 0."""
    start, sent, weights = some_uploads(6, hostile=0)
    same = {name: np.repeat(array[:1], 6, 0) for name, array in sent.items()}
    found = merged("fedavg + geometric_median", start, same, weights)
    for name, array in found.items():
        np.testing.assert_allclose(array, same[name][0], rtol=1e-9)


def test_smoothing_of_the_geometric_median_bounds_the_weight_of_a_near_upload() -> None:
    """With nu beyond all distances every step is the plain mean; with less it is not."""
    start, sent, weights = some_uploads(7, hostile=1)
    far, near = (
        merged(f"fedavg + {part}", start, sent, weights)["body"]
        for part in ("geometric_median(smoothing=1e6)", "geometric_median")
    )
    mean = np.average(sent["body"], axis=0, weights=weights)
    np.testing.assert_allclose(far, mean, rtol=1e-9)
    assert np.abs(near - mean).max() > 0.1


def test_krum_compares_an_upload_with_the_right_number_of_others() -> None:
    for seed in range(30):
        points = np.random.default_rng(seed).normal(size=(8, 2))
        for hostile in (0, 1, 2, 3):
            weight = nearest(torch.from_numpy(points), torch.ones(8), hostile, 1)
            scores = krum_scores(points, hostile)
            assert (
                weight.nonzero().flatten().tolist()
                == np.flatnonzero(np.isclose(scores, min(scores))).tolist()
            )


NEUTRAL = (
    "trimmed_mean(share=0.0)",
    "multi_krum(share=0.0)",
    "geometric_median(steps=0)",
    "norm_bound(bound=None)",
    "norm_bound(bound=1e9, unit=absolute)",
)


@pytest.mark.parametrize("part", NEUTRAL)
def test_neutral_options_are_the_plain_run(part: str) -> None:
    plain, neutral = tiny_run("scaffold", rounds=2), tiny_run(f"scaffold + {part}", rounds=2)
    assert_exact(states(neutral), states(plain))


def test_what_other_parts_send_is_merged_robustly_too() -> None:
    start, sent, weights = some_uploads(7, hostile=1)
    params = {"control": torch.from_numpy(start["control"])}
    uploads, weight = {"control": torch.from_numpy(sent["control"])}, torch.from_numpy(weights)
    server = {
        "params": params,
        "buffers": {},
        "slots": {"control_variates": {"control": torch.zeros(3).double()}},
    }
    messages = {"average": (uploads, weight), "control_variates": (uploads, torch.ones_like(weight))}
    made = method("scaffold(control_rate=cohort) + median")
    found = server_round(made, server, messages, clock(7))
    expected = np.median(sent["control"], axis=0)
    np.testing.assert_allclose(found["slots"]["control_variates"]["control"].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fedproto + median", "class_prototypes sends sums and counts"),
        ("fedcurv + krum", "curvature has each client subtract"),
        ("fedas + trimmed_mean", "informed_average weighs uploads"),
        ("feddf + multi_krum", "ensemble_distillation makes use of single uploads"),
        ("fedamp + geometric_median", "attentive_mixture makes use of single uploads"),
        ("fedfomo + norm_bound", "first_order_mixture makes use of single uploads"),
        ("fedavg + median + krum", "another mean"),
        ("fedavg + trimmed_mean(share=0.5)", "below 0.5"),
        ("fedavg + krum(share=0.5)", "below 0.5"),
        ("fedavg + norm_bound(bound=0)", "bound (M)"),
    ],
)
def test_what_cannot_work_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(UserError) as refused:
        method(text)
    assert reason in str(refused.value)


def test_robust_methods_say_that_they_read_single_uploads() -> None:
    assert not method("fedavg").reads_single_uploads
    assert all(method(f"fedavg + {part}").reads_single_uploads for part in REFERENCES)
