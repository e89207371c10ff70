"""The rounds of a run: training, scoring, costs, state that stays with clients, and what ends a run."""
