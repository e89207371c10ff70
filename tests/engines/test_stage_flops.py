"""Operations of a step, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.engines import EngineChoice
from idiolect.engines.stage_flops import StageFlops, count_stages
from idiolect.experiments import Experiment, prepare

LOOP = EngineChoice("loop", "cpu", "as asked")
FORWARD = 2 * (8 * 8 + 8 * 8 + 8 * 3)  # mlpnet(hidden=8) on 8 features and 3 classes, per row
STEP = (
    3 * FORWARD - 2 * 8 * 8
)  # backward twice the forward pass, but nobody asks for the gradient of the inputs


def counted(experiment: Experiment, with_numbers: bool = False) -> dict[tuple[str, str], StageFlops]:
    setting = prepare(experiment, LOOP)
    program, n_classes = setting.program(0), setting.federation.n_classes
    return count_stages(program, setting.initial(0), setting.work.x, n_classes, with_numbers)


@pytest.mark.parametrize(
    ("method", "factors"),
    [
        ("fedavg", {("round", "main"): 1}),
        ("ditto", {("round", "main"): 1, ("round", "companion"): 1}),
        ("feddml", {("round", "main"): 2}),  # two networks teach each other
        ("perfedavg_hf", {("round", "main"): 4, ("end", "adapt"): 1}),  # four gradients in a step
        ("fedavg_lu", {("round", "main"): 1, ("end", "fine tune"): 1}),
    ],
)
def test_a_method_counts_the_gradients_that_it_takes(tiny, method, factors):
    found = counted(replace(tiny, method=method))
    assert found == {key: StageFlops(0, factor * STEP, 0) for key, factor in factors.items()}


def test_distances_between_rows_count_as_squares(tiny):
    (found,) = counted(replace(tiny, method="fedmmd")).values()
    assert found.square > 0 and found.linear == STEP + FORWARD


def test_scoring_the_shared_model_counts_a_forward_pass(tiny):
    method = "persfl(lambdas=(0.5,), temperatures=(1.0,), epochs=1)"
    assert counted(replace(tiny, method=method))["merged", "score"] == StageFlops(0, FORWARD, 0)


@pytest.mark.parametrize("method", ["map", "fedmmd", "fedcurv"])
def test_counts_with_and_without_numbers_agree(tiny, method):
    experiment = replace(tiny, method=method)
    assert counted(experiment, with_numbers=True) == counted(experiment)
