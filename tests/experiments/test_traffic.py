"""Bytes that travel, against the formulas: four for every scalar."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from idiolect.core import Part, chain
from idiolect.core.stage import Stage, default_plan
from idiolect.experiments import run
from idiolect.experiments.rounds.round import bytes_down, bytes_up

SENT = {
    "params": {"w": torch.zeros(3, 4), "b": torch.zeros(4)},
    "buffers": {},
    "slots": {"c": torch.zeros(2)},
}
SCALARS = 3 * 4 + 4 + 2


def test_upload_is_four_bytes_for_every_scalar_of_every_message():
    messages = {
        "average": ({"w": torch.zeros(3, 3, 4)}, torch.ones(3)),
        "other": (torch.zeros(3, 5), torch.ones(3)),
    }
    method = chain(Part("average"), Part("other"))
    assert bytes_up(method, messages, 3) == 3 * 4 * (12 + 5)


def test_upload_counts_what_a_part_says_travels():
    method = chain(Part("average"), Part("other", scalars=lambda value: int((value > 0).sum())))
    messages = {
        "other": (torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]]), torch.ones(2)),
        "buffers": ({"m": torch.ones(2, 2)}, torch.ones(2)),
    }
    assert bytes_up(method, messages, 2) == 4 * (2 + 1 + 2 * 2)


def test_upload_of_nothing_is_nothing():
    method = chain(Part("average"))
    assert bytes_up(method, {}, 2) == bytes_up(method, {"average": ({}, torch.ones(2))}, 2) == 0


@pytest.mark.parametrize("round", [0, 1, 9])
def test_download_goes_to_the_cohort(round):
    assert bytes_down(SENT, default_plan(), round, cohort_size=3, population=10) == 4 * SCALARS * 3


@pytest.mark.parametrize(("round", "receivers"), [(0, 13), (1, 10), (9, 10)])
def test_download_goes_to_all_where_every_client_scores_the_merged_model(round, receivers):
    plan = default_plan()._replace(merged=(Stage("score"),))
    assert bytes_down(SENT, plan, round, cohort_size=3, population=10) == 4 * SCALARS * receivers


@pytest.mark.parametrize(("buffers", "extra"), [("average", 6), ("private", 0), ("frozen", 0)])
def test_statistics_are_downloaded_only_where_they_are_averaged(buffers, extra):
    sent = {**SENT, "buffers": {"mean": torch.zeros(3), "variance": torch.zeros(3)}}
    found = bytes_down(sent, default_plan(), 1, cohort_size=3, population=10, buffers=buffers)
    assert found == 4 * (SCALARS + extra) * 3


def parameters(*sizes: int) -> int:
    return sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))


BODY, HEAD = parameters(8, 8, 8), 8 * 3  # mlpnet(hidden=8): the head has no bias


@pytest.mark.parametrize(
    ("method", "down", "up"),
    [
        ("fedavg", 2 * (BODY + HEAD), 2 * (BODY + HEAD)),
        ("fedper", 2 * BODY, 2 * BODY),
        ("local", 0, 0),
        ("persfl(lambdas=(0.5,), temperatures=(1.0,), epochs=1)", None, 2 * (BODY + HEAD)),
    ],
)
def test_recorded_traffic_is_that_of_the_shared_part(method, down, up, tiny, tmp_path):
    asked = replace(tiny, method=method, participation_rate=0.5)
    rounds = run(asked, out=tmp_path, engine="loop", device="cpu").rounds
    assert rounds["cohort"].tolist() == [2, 2]
    assert rounds["bytes_up"].tolist() == [4 * up] * 2
    expected = [4 * (BODY + HEAD) * n for n in (4 + 2, 4)] if down is None else [4 * down] * 2
    assert rounds["bytes_down"].tolist() == expected
