"""Observation studies: one network trained on some classes, and how its features and its head develop."""

from idiolect.reproduction.studies.head_study import Study, studies_of
from idiolect.reproduction.studies.training import run_study

__all__ = ["Study", "run_study", "studies_of"]
