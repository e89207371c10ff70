"""SuPerFed (Hahn, Jeong, Lee, first version on arXiv)."""

from .expectations import AGGREGATION, EVERYONE, cell, figure, line, number, over, scene, table

METHOD, SEEDS = "superfed_mm", 1

# Datasets and settings: B, E, C, eta, momentum, K, 80 % and 20 %; algorithm 1 weights by samples.
STATED = {"model": "superfed_cnn", "partition": "pathological_shards", "clients": 100, "batch_size": 20}
STATED |= {"participation_rate": 0.1, "local_epochs": 10, "learning_rate": 0.01, "momentum": 0.9}
STATED |= {"weighting": "samples", "pool": "train", "client_test": "split", "test": 0.2}
CHOSEN = {"initialisation": "default", "weight_decay": 0.0, "clip_norm": None, "min_local_steps": 0}
CHOSEN |= {"warmup_rounds": 0, "lr_decay": 1.0, "buffers": "average", "public": 0, "public_in_test": False}
CHOSEN |= {"selection": "fixed", "optimiser": "sgd", "schedule": "constant", "local_schedule": "constant"}
CHOSEN |= {"augmentation": "none", "evaluate_every": 20, "observe": "evaluated", "calibration": "whole"}
CHOSEN |= {"newcomers": 0, "valid": 0.0}
CODE = {"initialisation": "xavier", "weight_decay": 1e-4, "lr_decay": 0.999, "calibration": "per_batch"}
SHARDS = {"partition": "pathological_shards(deterministic=True)"}

# Section on L: beta = 2, gamma = 0.01, and L/R = 0.4 is best; table 1 shows SuPerFed-LM with 0.8 on CIFAR-10.
MIXED = {"orthogonality": 2.0, "proximity": 0.01, "phase_one": 0.4}
OPTIONS = {"superfed_mm": MIXED, "superfed_lm": MIXED}
# From the authors' code: the baselines' weights, and personal or shared layers, which are the classifier.
OPTIONS |= {"fedprox": {"weight": 0.01}, "fedprox_lu": {"weight": 0.01}, "apfl": {"alpha": 0.25}}
OPTIONS |= {"fedper": {"count": 1}, "lg_fedavg": {"count": 1}}
# Algorithm 1: one w_l(0) for all clients, the squared distance, alpha drawn for every batch.
MIXED_DEFAULTS = {"own_init": "shared", "fixed_alpha": None, "proximity_form": "sq"}
DEFAULTS = {
    "fedavg_lu": {"epochs": 1, "lr_scale": 1.0},
    "fedprox": {"form": "sq_half"},
    "fedprox_lu": {"form": "sq_half", "epochs": 1, "lr_scale": 1.0},
    "fedper": {"head_init": "random", "fine_tune_epochs": 0},
    "lg_fedavg": {"body_init": "shared"},
    "apfl": {"learned": False, "shared_first": False},
    "superfed_mm": MIXED_DEFAULTS,
    "superfed_lm": MIXED_DEFAULTS,
}
CODE_OPTIONS = {"fedprox": {"form": "norm"}, "fedprox_lu": {"form": "norm"}}

EMNIST = {"dataset": "emnist(split=byclass)", "partition": "semantic_emnist", "clients": 0}
TINY = {"dataset": "tiny-imagenet", "partition": "semantic_tiny", "clients": 0}
CIFAR10, CIFAR100 = {"dataset": "cifar10"}, {"dataset": "cifar100"}
LATER = {"superfed_lm": {"phase_one": 0.8}}

# rounds (appendix), what the scene states, what was chosen for it, what the code has, clients, options
OWN = {
    "super-c10": (200, CIFAR10, {}, SHARDS, 100, LATER),
    "super-c100": (300, CIFAR100, {}, SHARDS, 100, {}),
    "super-emnist": (100, EMNIST, {}, {}, 1543, {}),
    "super-tiny": (500, TINY, {}, {}, 390, {}),
    "super-L": (200, CIFAR10, {}, SHARDS, 100, {}),
    "super-abl": (100, CIFAR10, {}, SHARDS, 100, {}),
    "super-traj": (2000, {}, CIFAR10, SHARDS, 100, {}),  # the data are not named
    "super-BE": (100, CIFAR10, {}, SHARDS, 100, {}),
}
SCENES = {
    name: {
        "presets": scene((STATED, CHOSEN), (stated | {"rounds": rounds}, chosen), CODE | code),
        "expected_clients": clients,
        "options": over(OPTIONS, own),
        "defaults": DEFAULTS,
        "official_options": CODE_OPTIONS,
        "reproduction_options": {},
        "method_settings": {},
    }
    for name, (rounds, stated, chosen, code, clients, own) in OWN.items()
}

# Tables 1 and 2: the global model on the global test set; the personalised models on every client's own, SuPerFed's at
# the best mixing coefficient.  FedAvg and FedProx are scored with the global model, their LU after a local update.
GLOBAL = {"predictor": "global", "moment": "before"}
COMPARED = {
    "FedAvg": ("fedavg", GLOBAL),
    "FedAvg-LU": ("fedavg_lu", {"predictor": "LU", "moment": "end"}),
    "FedProx": ("fedprox", GLOBAL),
    "FedProx-LU": ("fedprox_lu", {"predictor": "LU", "moment": "end"}),
    "APFL": ("apfl", {"predictor": "mix(alpha)", "moment": "before"}),
    "FedPer": ("fedper", {"predictor": "composed", "moment": "before"}),
    "LG-FedAvg": ("lg_fedavg", {"predictor": "composed", "moment": "before"}),
    "SuPerFed-MM": ("superfed_mm", {"predictor": "mix(oracle)", "moment": "before"}),
    "SuPerFed-LM": ("superfed_lm", {"predictor": "mix(oracle)", "moment": "before"}),
}
TOP5 = AGGREGATION | {"metric": "top5"}
ECE = EVERYONE | {"metric": "ece"}


def _main(*datasets):
    columns = [f"{data}-{what}" for data in datasets for what in ("top1", "top5", "personal", "ece")]
    cells = {}
    for row, (method, own) in COMPARED.items():
        for data in datasets:
            names = [f"super-{data}"]
            cells[row, f"{data}-top1"] = cell(names, method, AGGREGATION)
            cells[row, f"{data}-top5"] = cell(names, method, TOP5)
            cells[row, f"{data}-personal"] = cell(names, method, EVERYONE | own)
            cells[row, f"{data}-ece"] = cell(names, method, ECE | own, unit="")
    return table(columns, COMPARED, cells, spread="clients")


def _by_phase():
    """Table 3: L/R from 0 to 0.9."""
    best = EVERYONE | {"predictor": "mix(oracle)", "moment": "before"}
    read = {"personal": (best, "%"), "alpha": (best | {"source": "choice"}, "")}
    read |= {"top1": (AGGREGATION, "%"), "top5": (TOP5, "%")}
    rows = {f"L/R = 0.{tenth}": {"phase_one": tenth / 10} for tenth in range(10)}
    columns = {
        f"{scheme}-{what}": (f"superfed_{scheme}", *read[what]) for scheme in ("mm", "lm") for what in read
    }
    cells = {
        (row, id): cell(["super-L"], method, reading, unit, options=options)
        for row, options in rows.items()
        for id, (method, reading, unit) in columns.items()
    }
    return table(columns, rows, cells, spread="clients")


TABLES = {
    "superfed-table1": _main("c10", "c100"),
    "superfed-table2": _main("emnist", "tiny"),
    "superfed-table3": _by_phase(),
}

# Figures 2 and 4: accuracy by mixing coefficient.  Figure 3: top-1 accuracy and loss of the global model, L = 800 of
# R = 2000 marked; the loss rises almost fivefold.
SCHEMES = {"SuPerFed-MM": "superfed_mm", "SuPerFed-LM": "superfed_lm"}
BETAS, GAMMAS = [0.0, 1.0, 2.0, 5.0], [0.0, 0.01, 0.1, 1.0]


def _profile(name, **varied):
    reading = EVERYONE | {"predictor": "mix(", "moment": "before"}
    return figure(
        "profile",
        [name],
        [line(label, [name], method, reading) for label, method in SCHEMES.items()],
        **varied,
    )


FIGURES = {
    "superfed-fig1": figure("schematic"),
    "superfed-fig2": _profile("super-abl", options={"orthogonality": BETAS, "proximity": GAMMAS}),
    "superfed-fig3": figure(
        "curves",
        ["super-traj"],
        [
            line(f"{label}, {metric}", ["super-traj"], method, AGGREGATION | {"metric": metric})
            for label, method in SCHEMES.items()
            for metric in ("accuracy", "loss")
        ],
        [number(5)],
        mark=0.4,
    ),
    "superfed-fig4": _profile("super-BE", settings={"batch_size": [4, 10, 20], "local_epochs": [1, 10, 20]}),
}

GRIDS = {
    "superfed": {
        method: [{"orthogonality": beta, "proximity": gamma} for beta in BETAS for gamma in GAMMAS]
        for method in SCHEMES.values()
    },
    "superfed-phase": {
        method: [{"phase_one": tenth / 10} for tenth in range(10)] for method in SCHEMES.values()
    },
}
GRID_DEFAULTS = {
    "superfed": dict.fromkeys(SCHEMES.values(), MIXED_DEFAULTS | {"phase_one": 0.4}),
    "superfed-phase": dict.fromkeys(
        SCHEMES.values(), MIXED_DEFAULTS | {"orthogonality": 2.0, "proximity": 0.01}
    ),
}
