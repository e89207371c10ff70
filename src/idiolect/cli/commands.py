"""All commands: importing this module registers them in the application."""

from __future__ import annotations

from idiolect.cli.app import app
from idiolect.cli.bench import bench_command
from idiolect.cli.collect import collect_command
from idiolect.cli.datasets import datasets_command, datasets_get
from idiolect.cli.deploy import deploy_app
from idiolect.cli.diff import diff_command
from idiolect.cli.export import export_command
from idiolect.cli.join import join_command
from idiolect.cli.listings import (
    disturbances_command,
    metrics_command,
    models_command,
    partitions_command,
    settings_command,
)
from idiolect.cli.methods import TINY, methods_command, tried_pairs
from idiolect.cli.recommend import recommend_command
from idiolect.cli.report import report_command
from idiolect.cli.reproduce import reproduce_command
from idiolect.cli.run_and_compare import compare_command, run_command
from idiolect.cli.scenarios import scenarios_command
from idiolect.cli.sweep import sweep_command

__all__ = [
    "TINY",
    "app",
    "bench_command",
    "collect_command",
    "compare_command",
    "datasets_command",
    "datasets_get",
    "deploy_app",
    "diff_command",
    "disturbances_command",
    "export_command",
    "join_command",
    "methods_command",
    "metrics_command",
    "models_command",
    "partitions_command",
    "recommend_command",
    "report_command",
    "reproduce_command",
    "run_command",
    "scenarios_command",
    "settings_command",
    "sweep_command",
    "tried_pairs",
]
