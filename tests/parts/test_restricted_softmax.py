"""Scales of the restricted softmax (Li and Zhan, KDD 2021; Li et al., TKDE 2024)."""

import pytest
import torch
from torch import nn

from idiolect.core import Scene
from idiolect.engines import structure_of
from idiolect.errors import UserError
from idiolect.models import Net, Unit
from idiolect.parts import restricted_softmax
from idiolect.parts.restricted_softmax import RULES

COUNTS = torch.tensor([6.0, 3, 1, 0]).double()


@pytest.mark.parametrize(
    ("rule", "min_count", "expected"),
    [
        ("paper", 1, [1, 1, 1, 0.9]),
        ("paper", 2, [1, 1, 0.9, 0.9]),
        ("freq_max", 1, [1, 0.95, 0.9 + 0.1 / 6, 0.9]),
        ("freq", 1, [0.6, 0.3, 0.1, 0]),
        ("uniform", 1, [0.9, 0.9, 0.9, 0.9]),
    ],
)
def test_scales_follow_the_rule_in_full_precision(rule, min_count, expected):
    found = RULES[rule](COUNTS, 0.9, min_count)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=1e-6, atol=0)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", ["paper", "freq_max"])
def test_alpha_one_scales_nothing(rule):
    assert RULES[rule](COUNTS, 1.0, 1).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_head_of_several_layers_is_refused():
    structure = structure_of(Net([Unit(hidden=nn.Linear(2, 3), linear=nn.Linear(3, 4))]))
    with pytest.raises(UserError, match="linear"):
        restricted_softmax().check(structure, Scene())


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"alpha": -0.1}, {"rule": "log"}, {"min_count": 0}])
def test_values_out_of_range_are_refused(options):
    with pytest.raises(UserError):
        restricted_softmax(**options)
