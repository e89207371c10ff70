"""Medians, spreads and ratios of repeats."""

import pytest

from idiolect.bench.report import paired_ratio, spread_of


def test_median_of_even_count_lies_between_the_middle_two():
    assert spread_of([4.0, 1.0, 3.0, 100.0]) == (3.5, 1.0, 100.0)


def test_one_slow_repeat_does_not_move_the_median():
    assert spread_of([1.0, 1.0, 1.0, 1.0, 50.0]).median == 1.0


def test_ratio_is_taken_turn_by_turn():
    """A turn in which everything is ten times slower changes nothing; the ratio of medians would be 3."""
    assert paired_ratio([1.0, 30.0, 3.0], [1.0, 30.0, 1.0]) == (1.0, 1.0, 3.0)


def test_ratio_above_one_is_faster_than_the_base():
    assert paired_ratio([2.0], [1.0]).median == 2.0


def test_unequal_numbers_of_turns_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])
