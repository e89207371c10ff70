"""The check of a user's own data: what it counts, what it suspects, and that it leaves sound data alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from idiolect.data import Dataset, check_data, from_arrays, from_frame

random = np.random.default_rng(0)
X = random.normal(size=(40, 3)).astype(np.float32)
Y = np.tile([0, 1, 1, 0], 10)
CLIENT = np.repeat(["a", "b"], 20)
NAMES = ("u", "v", "w")


def table(x: np.ndarray = X, y: np.ndarray = Y, **options: object) -> Dataset:
    names = NAMES[: x.shape[1]] if x.ndim == 2 and x.shape[1] <= 3 else ()
    return from_arrays(x, y, **{"client": CLIENT, "fill": "mean", "feature_names": names} | options)


def with_column(values: object) -> np.ndarray:
    changed = X.copy()
    changed[:, 1] = values
    return changed


def test_sound_data_raise_no_suspicion():
    found = check_data(table())
    assert (found.suspicions, found.remarks, found.refusals) == ((), (), ())
    assert [(client.name, client.rows, client.classes) for client in found.clients] == [
        ("a", 20, {"0": 10, "1": 10}),
        ("b", 20, {"0": 10, "1": 10}),
    ]
    assert found.label_skew == 0 and found.missing == {} and found.constant == ()


def test_label_skew_is_the_mean_distance_from_all_rows():
    labels = np.repeat([0, 1], [30, 10])  # client a: only 0; client b: half and half; all: 3/4 and 1/4
    found = check_data(table(y=labels))
    assert found.label_skew == pytest.approx(0.25)
    assert found.remarks == ("client a has rows of one class only",)


def test_missing_and_constant_columns_are_named():
    changed = with_column(7.0)
    changed[[0, 5], 2] = np.nan
    found = check_data(table(changed))
    assert found.missing == {"w": 2} and found.constant == ("v",)
    assert found.refusals == ("2 values are missing; give --fill mean, zero or a number",)
    assert check_data(table(changed), fill="mean").refusals == ()


def test_missing_words_are_counted_as_cells_of_the_users_column():
    smoker = ["yes", "no", None, "no"] * 5 + [None] * 20
    frame = pd.DataFrame(
        {"u": X[:, 0], "smoker": smoker, "client": np.repeat(["a", "b"], 20), "y": [0, 1] * 20}
    )
    found = check_data(from_frame(frame, fill="mean"))
    assert found.missing == {"smoker": 25} and found.refusals[0].startswith("25 values are missing")
    assert found.remarks == ("client b has no value of 'smoker' at all",)
    frame.loc[1:, "smoker"] = "no"
    frame.loc[5, "u"] = np.nan
    assert check_data(from_frame(frame, fill="mean")).refusals[0].startswith("1 value is missing; ")


def test_column_that_a_client_lacks_is_named():
    changed = X.copy()
    changed[20:, 2] = np.nan
    assert check_data(table(changed), fill="mean").remarks == ("client b has no value of 'w' at all",)


def test_repeated_rows_are_suspected_across_splits_and_clients():
    changed = X.copy()
    changed[39] = changed[0]
    assert [sentence.split(";")[0] for sentence in check_data(table(changed)).suspicions] == [
        "2 rows are identical to another row, and a split at random may put such rows into training and test",
        "2 rows are identical to a row of another client",
    ]
    parts = np.tile([0, 0, 0, 2], 10)
    in_test = check_data(table(changed, split=parts)).suspicions
    assert (
        in_test[0] == "1 validation or test rows are identical to training rows; remove them from one split"
    )
    grouped = check_data(table(changed, group=np.arange(40), client=None)).suspicions
    assert not any("at random" in sentence for sentence in grouped)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.arange(100, 140), "another whole number in every row"),
        (np.repeat([3.5, 1.5], 20), "names the client"),
        (Y * 2.0, "determines the label"),
        (Y + np.linspace(0, 0.5, 40), "determines the label"),
    ],
    ids=["row number", "client", "copy of the label", "score"],
)
def test_column_that_gives_something_away_is_named(column, words):
    (sentence,) = check_data(table(with_column(column))).suspicions
    assert sentence.startswith("'v'") and words in sentence


def test_column_that_is_the_target_is_named():
    target = random.normal(size=40)
    (sentence,) = check_data(table(with_column(3 - 2 * target), target)).suspicions
    assert sentence.startswith("'v' alone determines the label")


@pytest.mark.parametrize("channels", [None, 2])
def test_windows_that_overlap_are_suspected(channels):
    signal = random.normal(size=(channels or 1, 2000)).astype(np.float32)
    apart, overlapping = (
        np.stack([signal[:, i * step : i * step + 32] for i in range(40)]) for step in (32, 16)
    )
    if channels is None:
        apart, overlapping = apart[:, 0], overlapping[:, 0]
    assert check_data(table(apart)).suspicions == ()
    (sentence,) = check_data(table(overlapping)).suspicions
    assert "windows of 32 values that overlap (the next begins 16 values later)" in sentence
    assert check_data(table(overlapping, group=np.arange(40) // 10)).suspicions == ()


def lone_with_valid() -> np.ndarray:
    """Client a has one training row, and validation rows are given."""
    parts = np.where(np.arange(40) % 2, "test", "valid")
    parts[[0, 20]] = "train"
    return parts


def test_what_a_run_would_refuse_is_said():
    two_rows = np.where(np.arange(40) < 38, "a", "b")
    assert check_data(table(client=two_rows)).refusals == (
        "client b has fewer than the 3 rows that a split needs",
    )
    given = check_data(table(split=np.where(np.arange(40) < 10, "test", "train")))
    assert given.refusals == (
        "the given split leaves client b without test rows; add some, or leave them out",
    )
    lone = check_data(table(split=np.where(np.isin(np.arange(40), [1, *range(20, 39)]), "train", "test")))
    assert lone.refusals == (
        "the given split leaves client a with one training row, and validation takes it; add some",
    )
    assert check_data(table(split=lone_with_valid())).refusals == ()
    grouped = check_data(table(group=np.arange(40) // 10))
    assert grouped.refusals == ("clients a, b have fewer than the 3 groups that a split needs",)
    shared_out = check_data(table(group=np.arange(40) // 10, client=None)).refusals
    assert len(shared_out) == 1 and "share the rows of a group out" in shared_out[0]
    assert check_data(table(group=np.arange(40), client=None)).refusals == ()
    assert "--partition" in check_data(table(client=None)).remarks[0]


def test_rows_of_any_shape_are_checked():
    images = random.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
    assert check_data(table(images)).suspicions == ()
    assert check_data(table(images, np.stack([Y, Y], axis=1))).label_skew is None
