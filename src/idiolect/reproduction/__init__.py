"""The published experiments: scenarios, tables and figures of five papers, run again beside what the papers report."""

from idiolect.reproduction.reproduce import Reproduction, reproduce
from idiolect.reproduction.scenarios import scenario

__all__ = ["Reproduction", "reproduce", "scenario"]
