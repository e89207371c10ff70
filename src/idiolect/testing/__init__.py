"""Testing of methods and parts: the conformance suite, and a tiny federation to run them on.

>>> from idiolect.testing import check_method
>>> check_method("fedprox", models=["mlpnet(hidden=4)"]).passed
True
"""

from idiolect.testing.conformance import Conformance, ConformanceError, Finding, check_method
from idiolect.testing.sameness import assert_equal, assert_exact
from idiolect.testing.tiny_federation import tiny_dataset, tiny_run, tiny_setting

__all__ = [
    "Conformance",
    "ConformanceError",
    "Finding",
    "assert_equal",
    "assert_exact",
    "check_method",
    "tiny_dataset",
    "tiny_run",
    "tiny_setting",
]
