"""Observation studies: one network trained on some classes, and what becomes of its features and its head."""

from idiolect.reproduction.studies.catalogue import studies_of
from idiolect.reproduction.studies.study import Study
from idiolect.reproduction.studies.training import study_run

__all__ = ["Study", "studies_of", "study_run"]
