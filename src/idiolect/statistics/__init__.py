"""Statistics of records: pure functions of runs and tables, without torch."""

from idiolect.statistics.alpha_profile import alpha_profile
from idiolect.statistics.change import Change, change_histogram, changes
from idiolect.statistics.choice import Chosen, best_and_last, best_round, best_setting, pick
from idiolect.statistics.degradation import degradation, zigzag
from idiolect.statistics.fairness import fairer, spread, worst_tenth
from idiolect.statistics.measurements import (
    client_scores,
    curve,
    headline,
    higher_is_better,
    measured,
    server_curve,
)
from idiolect.statistics.personalisation import Window, end_mean, personalisation, window_mean
from idiolect.statistics.target import Cost, cost_to_target, round_of_target
from idiolect.statistics.teachers import teacher_rounds
from idiolect.statistics.tradeoff import tradeoff
from idiolect.statistics.users import Groups, client_table, user_table
from idiolect.statistics.variation import variation

__all__ = [
    "Change",
    "Chosen",
    "Cost",
    "Groups",
    "Window",
    "alpha_profile",
    "best_and_last",
    "best_round",
    "best_setting",
    "change_histogram",
    "changes",
    "client_scores",
    "client_table",
    "cost_to_target",
    "curve",
    "degradation",
    "end_mean",
    "fairer",
    "headline",
    "higher_is_better",
    "measured",
    "personalisation",
    "pick",
    "round_of_target",
    "server_curve",
    "spread",
    "teacher_rounds",
    "tradeoff",
    "user_table",
    "variation",
    "window_mean",
    "worst_tenth",
    "zigzag",
]
