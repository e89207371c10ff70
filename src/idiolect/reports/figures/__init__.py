"""Figures by topic: each module computes the numbers of a figure from runs and draws it."""
