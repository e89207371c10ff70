"""Disturbances of data change exactly what they say; those of rounds hit whom their seed says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.federation import DISTURBANCES, Federation, SplitRules, Troubles, canonical_under, federate
from idiolect.federation.disturbances.drift import first_round
from idiolect.partition import Partition

SPLITS = ("train", "valid", "test")
CLIENTS, ROWS, CLASSES = 10, 60, 5


def federation_of(
    task: str = "classification", x: np.ndarray | None = None, newcomers: int = 0
) -> Federation:
    random = np.random.default_rng(0)
    n = CLIENTS * ROWS
    if x is None:
        x = random.integers(0, 256, (n, 1, 8, 8)).astype(np.uint8)
    y: np.ndarray = random.integers(CLASSES, size=n)
    if task == "multilabel":
        y = (random.random((n, CLASSES)) < 0.4).astype(np.float32)
    if task == "regression":
        y = random.normal(size=(n, 2)).astype(np.float32)
    tokens = x.dtype == np.int64
    scale = () if tokens else (0.5,) * x.shape[1]
    dataset = Dataset(
        name="made",
        train_x=x,
        train_y=y,
        test_x=x[:7],
        test_y=y[:7],
        n_classes=2 if task == "regression" else CLASSES,
        mean=scale,
        std=scale,
        manifest={},
        vocabulary=30 if tokens else None,
        task=task,
    )
    parted = Partition(tuple(np.arange(n).reshape(CLIENTS, ROWS)))
    return federate(dataset, parted, SplitRules(valid=0.2, test=0.3, newcomers=newcomers), seed=1)


def disturbed(
    text: str | list[str], federation: Federation | None = None, seed: int = 5, rounds: int = 10
) -> Federation:
    return Troubles(canonical_under(text), 0, seed).disturbed(federation or federation_of(), rounds)


def rows(federation: Federation, client: int, split: str) -> tuple[np.ndarray, np.ndarray]:
    held = getattr(federation.clients[client], split)
    return federation.x[held], federation.y[held]


def changed(before: Federation, after: Federation, what: int) -> set[tuple[int, str]]:
    """Clients and splits whose inputs (0) or targets (1) differ."""
    return {
        (client, split)
        for client in range(CLIENTS)
        for split in SPLITS
        if not np.array_equal(rows(before, client, split)[what], rows(after, client, split)[what])
    }


def test_label_noise_changes_training_and_validation_labels_of_its_clients() -> None:
    before, after = federation_of(), disturbed("label_noise(share=0.3, rate=0.5)")
    ((_, clients),) = after.disturbed
    assert len(clients) == 3
    assert changed(before, after, 1) == {(c, split) for c in clients for split in ("train", "valid")}
    assert changed(before, after, 0) == set()
    assert np.array_equal(before.server_y, after.server_y)
    hit = np.concatenate([rows(before, c, "train")[1] != rows(after, c, "train")[1] for c in clients])
    assert abs(hit.mean() - 0.5) < 0.15
    assert (np.sort(before.class_counts().sum(1)) == np.sort(after.class_counts().sum(1))).all()


def test_label_noise_of_rate_one_spares_no_label_and_pairs_go_to_the_next_class() -> None:
    before = federation_of()
    for kind in ("uniform", "pair"):
        after = disturbed(f"label_noise(share=1.0, rate=1.0, kind={kind})", before)
        old, new = rows(before, 4, "train")[1], rows(after, 4, "train")[1]
        assert (old != new).all()
        steps = set(((new - old) % CLASSES).tolist())
        assert steps == ({1} if kind == "pair" else {1, 2, 3, 4})


def test_label_noise_without_classes() -> None:
    before = federation_of("multilabel")
    after = disturbed("label_noise(share=1.0, rate=1.0)", before)
    assert np.array_equal(rows(after, 0, "train")[1], 1 - rows(before, 0, "train")[1])
    before = federation_of("regression")
    after = disturbed("label_noise(share=1.0, rate=1.0)", before)
    old, new = rows(before, 0, "train")[1], rows(after, 0, "train")[1]
    assert (old != new).any(axis=1).all()
    assert {tuple(y) for y in new.tolist()} <= {tuple(y) for y in old.tolist()}


@pytest.mark.parametrize("kind", ["noise", "blur", "contrast", "occlusion"])
def test_corrupted_test_changes_test_inputs_alone(kind: str) -> None:
    before = federation_of()
    weak, strong = (disturbed(f"corrupted_test(share=0.4, kind={kind}, severity={s})") for s in (1, 5))
    ((_, clients),) = strong.disturbed
    assert len(clients) == 4
    assert changed(before, strong, 0) == {(client, "test") for client in clients}
    assert changed(before, strong, 1) == set()
    assert np.array_equal(before.server_x, strong.server_x)
    far = [
        np.abs(rows(f, clients[0], "test")[0] - rows(before, clients[0], "test")[0]).mean()
        for f in (weak, strong)
    ]
    assert far[0] < far[1]
    low, high = before.x.min(), before.x.max()
    assert strong.x.min() >= low - 1e-5 and strong.x.max() <= high + 1e-5


def test_corruption_of_tokens_and_numbers() -> None:
    tokens = federation_of(x=np.random.default_rng(1).integers(0, 30, (CLIENTS * ROWS, 12)))
    after = disturbed("corrupted_test(severity=5)", tokens)
    old, new = rows(tokens, 2, "test")[0], rows(after, 2, "test")[0]
    assert 0.3 < (old != new).mean() < 0.65 and new.max() < 30 and new.dtype == np.int64
    numbers = federation_of(x=np.random.default_rng(1).normal(size=(CLIENTS * ROWS, 6)).astype(np.float32))
    after = disturbed("corrupted_test(severity=5)", numbers)
    moved = rows(after, 2, "test")[0] - rows(numbers, 2, "test")[0]
    assert 0.7 < moved.std() < 1.3
    with pytest.raises(UserError, match="blur corrupts images and these inputs are none; set kind to noise"):
        disturbed("corrupted_test(kind=blur)", numbers)


def test_drift_of_labels_renames_classes_from_its_round_on() -> None:
    before = federation_of()
    after = disturbed("drift(at=0.5, share=0.5, kind=labels)", before)
    ((_, clients),) = after.disturbed
    assert after.at(4).clients is after.clients
    assert changed(before, after.at(4), 1) == set() == changed(before, after.at(4), 0)
    late = after.at(5)
    assert changed(before, late, 1) == {(c, split) for c in clients for split in SPLITS}
    assert changed(before, late, 0) == set()
    names = {
        (int(a), int(b))
        for c in clients
        for split in SPLITS
        for a, b in zip(rows(before, c, split)[1], rows(late, c, split)[1], strict=True)
    }
    assert len(names) == CLASSES and all(a != b for a, b in names)  # one permutation for all, none stays
    assert np.array_equal(late.class_counts().sum(1), before.class_counts().sum(1))


def test_drift_of_inputs_turns_images() -> None:
    before = federation_of()
    late = disturbed("drift(kind=inputs, share=0.2)", before).at(9)
    ((_, clients),) = late.disturbed
    assert changed(before, late, 1) == set()
    assert changed(before, late, 0) == {(c, split) for c in clients for split in SPLITS}
    image = rows(before, clients[0], "test")[0][0, 0]
    assert np.array_equal(rows(late, clients[0], "test")[0][0, 0], np.rot90(image))


def test_drift_of_clients_exchanges_all_their_data() -> None:
    before = federation_of()
    after = disturbed("drift(kind=clients, share=0.5)", before)
    ((_, clients),) = after.disturbed
    late = after.at(5)
    assert len(after.x) == len(before.x)
    owner = {before.clients[c].train.tobytes(): c for c in range(CLIENTS)}
    source = [owner[late.clients[c].train.tobytes()] for c in range(CLIENTS)]
    assert sorted(source) == list(range(CLIENTS))
    assert {c for c in range(CLIENTS) if source[c] != c} == set(clients)
    assert all(np.array_equal(late.clients[c].test, before.clients[source[c]].test) for c in clients)


def test_two_drifts_follow_each_other() -> None:
    before = federation_of()
    both = disturbed(
        ["drift(at=0.6, share=1.0, kind=inputs)", "drift(at=0.2, share=1.0, kind=clients)"], before
    )
    assert [later.first for later in both.later] == [2, 6]
    first, second = both.at(3), both.at(6)
    assert np.array_equal(rows(second, 3, "train")[0], np.rot90(rows(first, 3, "train")[0], axes=(2, 3)))
    assert np.array_equal(rows(second, 3, "train")[1], rows(first, 3, "train")[1])
    assert not np.array_equal(rows(first, 3, "train")[0], rows(before, 3, "train")[0])


def test_drift_refuses_what_it_cannot_change() -> None:
    with pytest.raises(UserError, match="renames classes and regression has none"):
        disturbed("drift", federation_of("regression"))
    with pytest.raises(UserError, match="one is drawn; raise share"):
        disturbed("drift(kind=clients, share=0.1)")


def test_newcomers_stay_clean() -> None:
    before = federation_of(newcomers=3)
    after = disturbed(["label_noise(share=1.0)", "corrupted_test(share=1.0)"], before)
    assert {clients for _, clients in after.disturbed} == {tuple(range(7))}
    assert {client for client, _ in changed(before, after, 0) | changed(before, after, 1)} == set(range(7))


def test_drift_begins_at_the_rounded_up_round() -> None:
    assert [first_round(at, 15) for at in (0.0, 0.2, 0.5, 0.99)] == [0, 3, 8, 14]


def test_seeds_decide_and_larger_shares_hold_smaller_ones() -> None:
    one, same, other = (disturbed("label_noise", seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.y, same.y) and not np.array_equal(one.y, other.y)
    more = disturbed("label_noise(share=0.6)", seed=5)
    assert set(one.disturbed[0][1]) < set(more.disturbed[0][1])


def test_the_order_of_writing_changes_nothing() -> None:
    texts = ["drift(share=0.4)", "label_noise(kind=pair)", "corrupted_test(kind=blur)"]
    one, other = disturbed(texts), disturbed(texts[::-1])
    assert np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


def one_step(client: int) -> int:
    return 1


def test_lost_and_late_clients_are_drawn_by_seed_round_and_client() -> None:
    clients = list(range(200))
    troubles = Troubles(canonical_under(["dropout(rate=0.25)", "late(share=0.5, delay=2)"]), 3, 0)
    lost = [troubles.lost(round, clients, one_step) for round in range(4)]
    assert all(30 <= len(found) <= 70 for found in lost) and lost[0] != lost[1]
    among_fewer = troubles.lost(2, clients[50:], one_step)
    assert among_fewer == {c for c in lost[2] if c >= 50}
    assert replace(troubles, seed=4).lost(0, clients, one_step) != lost[0]
    assert replace(troubles, data_seed=9).lost(0, clients, one_step) == lost[0]
    late = troubles.delays(0, clients)
    assert 70 <= len(late) <= 130 and set(late.values()) == {2}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("label_nose", "unknown disturbance 'label_nose'; did you mean label_noise?"),
        ("label_noise(shar=0.3)", "has no option 'shar'; known: share, rate, kind; did you mean share?"),
        ("label_noise(share=1.5)", r"share of label_noise must be in \[0, 1\], got 1.5"),
        ("label_noise(share=0.0)", "share of label_noise must be above 0, got 0; leave the disturbance out"),
        ("label_noise(kind=odd)", "kind of label_noise"),
        ("corrupted_test(severity=6)", r"severity of corrupted_test must be in \[1, 5\], got 6"),
        ("drift(at=1.0)", "at of drift must be below 1: no round would see the change"),
        ("dropout(rate=-1)", r"rate of dropout must be in \[0, 1\], got -1"),
        ("late(delay=0)", "delay of late must be at least 1, got 0"),
        ("late(delay=1.5)", "option delay must be int, got 1.5"),
    ],
)
def test_wrong_disturbances_are_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        canonical_under(text)


def test_spellings_become_one() -> None:
    spelt: list[Any] = [
        "late",
        "late()",
        " late( delay=1 )",
        ["late(share=0.2)"],
        ("late(delay=1, share=0.2)",),
    ]
    assert {canonical_under(one) for one in spelt} == {("late(share=0.2, delay=1)",)}
    with pytest.raises(UserError, match="twice; give it once"):
        canonical_under(["late", "late(delay=1)"])
    assert canonical_under(canonical_under(list(DISTURBANCES))) == canonical_under(list(DISTURBANCES))
