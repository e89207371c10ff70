"""The cost of a round beside FedAvg's."""

import pytest

from idiolect import UserError
from idiolect.bench import BenchCell, CostGrid, round_costs

TINY = CostGrid(BenchCell(workload="mlp", clients=2, population=3, samples=8, batch_size=4), repeats=3)


@pytest.mark.slow
def test_methods_that_do_more_in_a_round_cost_more():
    """Twelve models instead of one; public data and validation data are there for those that need them."""
    found = {
        cost.method: cost for cost in round_costs(["fedem(components=12)", "feddf(steps=1)", "fedfomo"], TINY)
    }
    assert all(cost.ratio and 0 < cost.ratio.low <= cost.ratio.median for cost in found.values())
    assert found["fedem(components=12)"].ratio.median > 3


def test_a_method_that_this_network_does_not_suit_says_why_and_the_others_go_on():
    refused, measured = round_costs(["fedala(count=9)", "fedavg"], TINY)
    assert "units" in refused.refused and refused.ratio is None
    assert measured.ratio


def test_unknown_methods_are_refused_before_anything_is_timed():
    with pytest.raises(UserError, match="fedvag"):
        next(round_costs(["fedavg", "fedvag"], TINY))
