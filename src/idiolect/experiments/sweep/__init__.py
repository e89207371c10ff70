"""Sweeps: axes and their trials, searches that choose trials, and tables of what was tried."""
