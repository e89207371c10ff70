"""What pytest leaves alone: code for which the package that it needs is not installed."""

from importlib.util import find_spec

NEEDED = {
    "triton": [
        f"src/idiolect/engines/cohort/cuda/kernels/{name}.py"
        for name in ("batch_copy", "convolution", "dependent_launch")
    ],
    "ray": ["src/idiolect/engines/ray/*"],
    "flwr": [
        "src/idiolect/deploy/*",
        *(f"tests/deploy/{name}.py" for name in ("asking", "fake_grid", "played", "real")),
    ],
    **{name: ["src/idiolect/experiments/tracking/mlflow_tracker.py"] for name in ("mlflow", "alembic")},
    "wandb": ["src/idiolect/experiments/tracking/wandb_tracker.py"],
    "tensorboard": ["src/idiolect/experiments/tracking/tensorboard_tracker.py"],
}
collect_ignore_glob = ["tests/cli/stand_ins/*"]  # for the processes of a page alone
collect_ignore_glob += [path for package, paths in NEEDED.items() if not find_spec(package) for path in paths]
