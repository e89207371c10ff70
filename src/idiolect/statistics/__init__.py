"""Statistics of finished runs: pure functions of runs and tables, without torch.

Intervals, comparisons and ranks need scipy; they are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiolect.statistics.calibration import (
    Calibration,
    calibration_bins,
    calibration_of,
    debiased_squared_error,
    ece_if_calibrated,
    few_samples,
    pooled_ece,
    reliability,
)
from idiolect.statistics.choice import Chosen, best_and_last, best_round, best_setting, pick
from idiolect.statistics.client_means import Window, end_mean, personalisation, tradeoff, window_mean
from idiolect.statistics.client_tables import (
    ChangeHistogram,
    Groups,
    change_histogram,
    changes,
    client_labels,
    client_table,
    mean_over_seeds,
    same_clients,
    teacher_rounds,
    user_table,
)
from idiolect.statistics.confusion import confusion_matrix
from idiolect.statistics.degradation_between_rounds import before_and_after, degradation
from idiolect.statistics.dispersion import fairer, spread, variation, worst_tenth
from idiolect.statistics.measurements import (
    client_samples,
    client_scores,
    curve,
    headline,
    higher_is_better,
    is_share,
    measured,
    metric_bounds,
    primary_metric,
    server_curve,
    validated_round,
)
from idiolect.statistics.mixing_profile import alpha_profile
from idiolect.statistics.reading import LAST, Reading, as_reading
from idiolect.statistics.replicates import (
    FEWEST_UNITS,
    Replicate,
    columns_over_replicates,
    design_of,
    over_replicates,
    replicate_of,
)
from idiolect.statistics.run_numbers import (
    RunNumbers,
    global_score,
    never_trained,
    newcomer_table,
    run_numbers,
)
from idiolect.statistics.target_cost import Cost, cost_to_target, on_one_machine, pareto, round_of_target

if TYPE_CHECKING:
    from idiolect.statistics.comparisons import (
        Estimate,
        compare_scores,
        estimate,
        mean_estimate,
        mean_estimates,
        paired_comparisons,
    )
    from idiolect.statistics.inference import LIKE_THE_BEST, holm, letters
    from idiolect.statistics.ranks import (
        Ranking,
        average_ranks,
        friedman,
        nemenyi,
        rank_methods,
        scenario_table,
    )

__all__ = [
    "FEWEST_UNITS",
    "LAST",
    "LIKE_THE_BEST",
    "Calibration",
    "ChangeHistogram",
    "Chosen",
    "Cost",
    "Estimate",
    "Groups",
    "Ranking",
    "Reading",
    "Replicate",
    "RunNumbers",
    "Window",
    "alpha_profile",
    "as_reading",
    "average_ranks",
    "before_and_after",
    "best_and_last",
    "best_round",
    "best_setting",
    "calibration_bins",
    "calibration_of",
    "change_histogram",
    "changes",
    "client_labels",
    "client_samples",
    "client_scores",
    "client_table",
    "columns_over_replicates",
    "compare_scores",
    "confusion_matrix",
    "cost_to_target",
    "curve",
    "debiased_squared_error",
    "degradation",
    "design_of",
    "ece_if_calibrated",
    "end_mean",
    "estimate",
    "fairer",
    "few_samples",
    "friedman",
    "global_score",
    "headline",
    "higher_is_better",
    "holm",
    "is_share",
    "letters",
    "mean_estimate",
    "mean_estimates",
    "mean_over_seeds",
    "measured",
    "metric_bounds",
    "nemenyi",
    "never_trained",
    "newcomer_table",
    "on_one_machine",
    "over_replicates",
    "paired_comparisons",
    "pareto",
    "personalisation",
    "pick",
    "pooled_ece",
    "primary_metric",
    "rank_methods",
    "reliability",
    "replicate_of",
    "round_of_target",
    "run_numbers",
    "same_clients",
    "scenario_table",
    "server_curve",
    "spread",
    "teacher_rounds",
    "tradeoff",
    "user_table",
    "validated_round",
    "variation",
    "window_mean",
    "worst_tenth",
]

_NEEDS_SCIPY = {
    **dict.fromkeys(
        ("Estimate", "compare_scores", "estimate", "mean_estimate", "mean_estimates", "paired_comparisons"),
        "idiolect.statistics.comparisons",
    ),
    **dict.fromkeys(("LIKE_THE_BEST", "holm", "letters"), "idiolect.statistics.inference"),
    **dict.fromkeys(
        ("Ranking", "average_ranks", "friedman", "nemenyi", "rank_methods", "scenario_table"),
        "idiolect.statistics.ranks",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_SCIPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NEEDS_SCIPY[name]), name)
