"""Observation studies: one network trained on some classes, and what becomes of its features and its head."""

from idiolect.experiments.studies.catalogue import studies_of
from idiolect.experiments.studies.study import Study
from idiolect.experiments.studies.training import study_run

__all__ = ["Study", "studies_of", "study_run"]
