"""The methods under contract: all that have a name, and variants that take other paths through the parts."""

from __future__ import annotations

from typing import Any

from idiolect.methods import names

__all__ = ["ADDED", "METHODS", "STEPS", "VARIANTS", "spelt"]

FEW = "lambdas=(0.0, 0.5, 1.0), temperatures=(1.0, 5.0), epochs=1"
SMALLER = {
    "persfl": f"persfl({FEW})",
    "persfl_gd": f"persfl_gd({FEW})",
    "feddf": "feddf(steps=3)",
}  # minutes otherwise
VARIANTS = (
    "fedper(count=2, fine_tune_epochs=1)",
    "fedper(head_init=shared)",
    "fedphp(transfer=kd)",
    "fedphp(transfer=l2)",
    "fedphp(transfer=prox)",
    "fedphp(inference=ensemble)",
    "fedphp(schedule=mu_b, hpm_init=theta0)",
    "fedphp(schedule=mu_c)",
    "fedrs(rule=freq_max)",
    "fedrs(rule=freq)",
    "fedrs(rule=uniform)",
    "map(preset=official)",
    "map(transfer=mmd)",
    "map(preset=complete)",
    "persfl(teacher=fedavg)",
    "fedper + restricted_softmax(alpha=0.5)",
    "fedprox + inherited_model()",
    "superfed_mm + restricted_softmax(alpha=0.5)",
)
METHODS = (*names(), *VARIANTS)

ROBUST_PARTS = (
    "median",
    "trimmed_mean(share=0.34)",
    "krum(share=0.34)",
    "multi_krum(share=0.34)",
    "geometric_median",
    "norm_bound(bound=0.8)",
)

# Parts that change the step, what is sent or how it is merged.
ADDED = (
    "client_dp(clip=0.5, noise=0.5)",
    "client_dp(clip=0.5, noise=0.5, where=local)",
    "dp_sgd(clip=0.5, noise=0.5)",
    *ROBUST_PARTS,
)

# Steps that are more than plain ones; augmentation and dropout hash the keys of examples.
STEPS: dict[str, dict[str, Any]] = {
    "clipping": {"model": "mlpnet(hidden=8)", "clip_norm": 0.5},
    "adam": {"model": "mlpnet(hidden=8)", "optimiser": "adam", "local_schedule": "cosine(final=0.1)"},
    "adamw": {
        "model": "mlpnet(hidden=8)",
        "optimiser": "adamw",
        "clip_norm": 0.5,
        "local_schedule": "linear",
    },
    "crop_flip": {"augmentation": "crop_flip"},
    "dropout": {"model": "dropping"},
    "frozen": {"model": "frozen", "clip_norm": 0.5, "weight_decay": 0.1},
    "all": {"augmentation": "crop_flip", "model": "dropping", "clip_norm": 0.5},
}


def spelt(method: str) -> str:
    """What a method of the list is called when it runs: PersFL always with a small grid and one epoch."""
    if method in SMALLER:
        return SMALLER[method]
    return f"persfl({FEW}, teacher=fedavg)" if method == "persfl(teacher=fedavg)" else method
