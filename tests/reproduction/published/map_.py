"""MAP (Li, Song, Li, Li, Shao, Yang, Zhan, IEEE TKDE 2024)."""

from .expectations import (
    AGGREGATION,
    EVERYONE,
    PERSONALISATION,
    cell,
    figure,
    line,
    number,
    over,
    scene,
    table,
)

METHOD, SEEDS = "map", 1

# Section 5.2.1: 100 clients, T, Q, B, momentum, weight decay, a constant rate, a fifth of the samples for testing;
# section 5.2.2: 500 samples of the global test set for FedDF.
STATED = {"partition": "map_incomplete", "clients": 100, "rounds": 150, "participation_rate": 0.2}
STATED |= {"batch_size": 64, "momentum": 0.9, "weight_decay": 1e-5, "lr_decay": 1.0, "warmup_rounds": 0}
STATED |= {"weighting": "uniform", "pool": "train", "client_test": "split", "test": 0.2}
STATED |= {"public": 500, "public_in_test": True}
CHOSEN = {"initialisation": "default", "clip_norm": None, "min_local_steps": 0, "buffers": "average"}
CHOSEN |= {"valid": 0.0, "augmentation": "none", "evaluate_every": 10, "observe": "evaluated"}
CHOSEN |= {"selection": "fixed", "optimiser": "sgd", "schedule": "constant", "local_schedule": "constant"}
CHOSEN |= {"calibration": "whole", "newcomers": 0}
CODE = {"initialisation": "map", "clip_norm": 100.0, "min_local_steps": 5, "warmup_rounds": 5}
CLIPPED = {"clip_norm": 100.0}
CROP = {"augmentation": "crop_flip"}

# The authors try three settings of each method.  A scene has the middle one of FedAvg's rivals; of FedRS, FedPHP, MAP
# and ScaMAP the one nearest to the default of section 5.2.2: alpha = 0.9, KD, lambda = 0.01.
_PFEDME = [(0.1, 0.9, 5), (0.01, 0.75, 10), (0.001, 0.5, 15)]  # lambda, eta lambda, K
TRIPLES = {
    "fedprox": [{"weight": x} for x in (1e-4, 1e-3, 1e-2)],
    "fedmmd": [{"weight": x} for x in (1e-3, 1e-2, 1e-1)],
    "scaffold": [{"step": x} for x in (0.5, 0.75, 0.9)],
    "feddf": [{"learning_rate": x, "steps": n} for x, n in ((1e-2, 200), (1e-3, 300), (1e-4, 500))],
    "fedavgm": [{"learning_rate": x, "momentum": 0.9} for x in (1.0, 0.1, 0.05)],
    "fednova": [
        {"global_momentum": x, "proximal_weight": y} for x, y in ((0.9, 1e-4), (0.5, 1e-3), (0.3, 1e-2))
    ],
    "fedaws": [
        {"margin": x, "steps": n, "learning_rate": y}
        for x, n, y in ((0.9, 20, 1.0), (0.8, 30, 0.1), (0.5, 50, 0.01))
    ],
    "moon": [{"weight": x} for x in (1e-3, 1e-2, 1e-1)],
    "feddyn": [{"alpha": x} for x in (0.1, 0.01, 0.001)],
    "feddml": [
        {"temperature": t, "shared_weight": a, "own_weight": b}
        for t, a, b in ((1.0, 0.25, 0.75), (4.0, 0.5, 0.5), (8.0, 0.75, 0.25))
    ],
    "pfedme": [
        {"weight": x, "outer_rate": rate, "inner_steps": k, "beta": 1.0, "inner_rate": 0.03}
        for (x, _, k), rate in zip(_PFEDME, (9.0, 75.0, 500.0), strict=True)
    ],
    "perfedavg_fo": [{"inner_rate": 0.03, "outer_rate": x} for x in (0.1, 0.05, 0.01)],
    "fedproto": [{"weight": x, "reduction": "sum"} for x in (0.1, 0.01, 0.001)],
    "ditto": [{"weight": x} for x in (0.1, 0.01, 0.001)],
    "fedrod": [{"gamma": x} for x in (1.0, 0.5, 0.25)],
    "fedrs": [{"alpha": x} for x in (0.9, 0.5, 0.1)],
    "fedphp": [{"transfer": x, "transfer_weight": y} for x, y in (("kd", 0.1), ("mmd", 0.1), ("mmd", 0.01))],
    "dittors": [{"alpha": x, "weight": y} for x, y in ((0.1, 0.1), (0.9, 0.01), (0.5, 0.001))],
    "scars": [{"alpha": x, "step": y} for x, y in ((0.1, 0.5), (0.9, 0.75), (0.5, 0.9))],
    "map": [
        {"transfer": x, "transfer_weight": y, "alpha": z}
        for x, y, z in (("kd", 0.1, 0.5), ("kd", 0.01, 0.9), ("mmd", 0.01, 0.5))
    ],
    "scamap": [
        {"transfer": x, "transfer_weight": y, "alpha": z, "step": s}
        for x, y, z, s in (("kd", 0.1, 0.5, 0.5), ("kd", 0.01, 0.9, 0.9), ("mmd", 0.01, 0.5, 0.5))
    ],
}
PREFERRED = {"fedrs": 0, "fedphp": 2}
OPTIONS = {name: tried[PREFERRED.get(name, 1)] for name, tried in TRIPLES.items() if name != "feddml"}
OPTIONS["pfedme"] = {key: value for key, value in OPTIONS["pfedme"].items() if key != "beta"}
assert all(
    abs(t["weight"] * t["outer_rate"] - p[1]) < 1e-12 for t, p in zip(TRIPLES["pfedme"], _PFEDME, strict=True)
)

# Equation 8: a class is observed or missing.  Algorithm 1: two halves of the epochs at one rate.  Section 4.2: mu = 0.9
# and temperature 4.  Elsewhere the values of the methods' own papers.
RS = {"rule": "paper", "min_count": 1}
INHERITED_DEFAULTS = {
    "temperature": 4.0,
    "kd_form": "kl",
    "momentum": 0.9,
    "schedule": "mu_a",
    "hpm_init": "lazy",
}
INHERITED_DEFAULTS |= {"momentum_max": 1.0, "counter": "before"}
TWO_STAGES = RS | INHERITED_DEFAULTS | {"hpm_statistics": "ema", "shared_share": 0.5, "private_share": 0.5}
TWO_STAGES |= {"private_lr_scale": 1.0, "private_min_steps": 0, "rounding": "ceil"}
POPULATION = {"control_rate": "population"}
GRID_METHODS = {
    "fedprox": {"form": "sq_half"},
    "scaffold": {"control": "mean_gradient", "momentum": 0.0, "lr_scale": 1.0, "clip_norm": None}
    | POPULATION,
    "feddf": {"weight_decay": 0.0, "every": 1},
    "fedavgm": {"nesterov": False},
    "fedaws": {"momentum": 0.9},
    "moon": {"temperature": 0.5, "previous_init": "received"},
    "perfedavg_fo": {"adapt_steps": 1},
    "ditto": {"epochs": None, "form": "sq_half"},
    "fedrod": {"prior": "additive", "head_init": "zero"},
    "fedrs": RS,
    "fedphp": INHERITED_DEFAULTS | {"inference": "hpm"},
    "dittors": RS | {"epochs": None, "form": "sq_half"},
    "scars": RS | {"momentum": 0.0, "lr_scale": 1.0, "clip_norm": None} | POPULATION,
    "map": TWO_STAGES,
    "scamap": TWO_STAGES | {"lr_scale": 1.0, "clip_norm": None} | POPULATION,
}
DEFAULTS = GRID_METHODS | {
    "pfedme": {"beta": 1.0, "steps": None},
    "fedavg_lu": {"epochs": 1, "lr_scale": 1.0},
    "fedper": {"count": 1, "head_init": "random", "fine_tune_epochs": 0},
    "fedrep": {"count": 1, "head_epochs": 10, "body_epochs": 1, "head_init": "random"},
    "flda": {"companion_init": "fresh", "fixed_gate": None},
}

# Section 5.4: restricted softmax by class frequency; the authors' code divides by the largest one.
FREQUENCY = {"fedrs": {"rule": "freq"}, "map": {"rule": "freq"}}
CODE_FREQUENCY = {"fedrs": {"rule": "freq_max"}, "map": {"rule": "freq_max"}}
# Section 5.3: a class with fewer than two samples counts as missing.
MISSING = {name: {"min_count": 2} for name in ("map", "scamap", "fedrs")}

# Section 5.2.1, by dataset: E and eta.
FASHION = {"dataset": "fashion-mnist", "local_epochs": 5, "learning_rate": 0.03}
CIFAR10 = {"dataset": "cifar10", "local_epochs": 10, "learning_rate": 0.03}
CIFAR100 = {"dataset": "cifar100", "local_epochs": 20, "learning_rate": 0.03}
CINIC = {"dataset": "cinic-10", "local_epochs": 40, "learning_rate": 0.05}
CODE_LENET = {"model": "lenet_map", "batch_size": 32}
DIRICHLET = {"partition": "dirichlet_client(alpha=0.5)"}
FEMNIST = {"dataset": "femnist", "partition": "natural", "clients": 0, "model": "femnistnet", "rounds": 100}
FEMNIST |= {"learning_rate": 0.004}
# Neither there nor in section 5.1 are batch size and weight decay stated.
UNSTATED = {"batch_size": 64, "weight_decay": 1e-5}
FEMNIST_CHOSEN = UNSTATED | {"public": 0, "public_in_test": False}
# Sections 5.1.1 and 5.1.2: networks trained for 50 epochs without a federation; 5.1.3: two clients.
STUDY = {"partition": "iid", "clients": 1, "participation_rate": 1.0, "rounds": 50, "local_epochs": 1}
FLAT = {"dataset": "mnist", "model": "lenet_2d", "learning_rate": 0.01}
DEMO = {"dataset": "mnist", "model": "lenet_2d(relu=False)", "partition": "two_client_demo", "clients": 2}
DEMO |= {"participation_rate": 1.0, "rounds": 10, "local_epochs": 5}

# what the scene states, what was chosen for it, what the code has, clients, options, options of the code
OWN = {
    "map-fa-mlpnet": (
        *(FASHION | {"model": "mlpnet"}, {}),
        *({"model": "mlpnet(official=True)", "batch_size": 32}, 100, {}, {}),
    ),
    "map-fa-lenet": (FASHION | {"model": "lenet5"}, {}, CODE_LENET, 100, {}, {}),
    "map-c10-tfcnn": (CIFAR10 | {"model": "tfcnn"}, {}, CROP, 100, {}, {}),
    "map-c10-vgg8": (CIFAR10 | {"model": "vgg8"}, {}, CROP, 100, {}, {}),
    "map-c100-vgg8bn": (CIFAR100 | {"model": "vgg8_bn"}, {}, CROP, 100, {}, {}),
    "map-c100-vgg11": (CIFAR100 | {"model": "vgg11"}, {}, CROP, 100, {}, {}),
    "map-cinic-resnet20": (CINIC | {"model": "resnet20"}, {}, CROP, 100, {}, {}),
    "map-cinic-resnet56": (CINIC | {"model": "resnet56"}, {}, CROP, 100, {}, {}),
    "map-o2": (
        STUDY | {"dataset": "cifar10", "model": "vgg11(normalised=True)", "learning_rate": 0.03},
        *(UNSTATED, {}, 1, {}, {}),
    ),
    "map-o3": (
        STUDY | {"dataset": "cifar100", "model": "vgg16_bn", "learning_rate": 0.03},
        *(UNSTATED, {}, 1, {}, {}),
    ),
    "map-o4": (
        *(DEMO, UNSTATED | {"learning_rate": 0.01, "momentum": 0.9, "evaluate_every": 1}),
        *({}, 2, {}, {}),
    ),
}
OWN |= {f"map-o1-{n}": (STUDY | FLAT, UNSTATED, {}, 1, {}, {}) for n in (8, 5, 2)}
for like in ("fa-lenet", "c10-tfcnn", "c100-vgg8bn"):
    stated, chosen, code, clients, *_ = OWN[f"map-{like}"]
    OWN[f"map-dir-{like}"] = (stated | DIRICHLET, chosen, code, clients, FREQUENCY, CODE_FREQUENCY)
for percent in (10, 30):
    for epochs in (2, 5, 10):
        stated = FEMNIST | {"participation_rate": percent / 100, "local_epochs": epochs}
        OWN[f"map-femnist-q{percent}-e{epochs}"] = (stated, FEMNIST_CHOSEN, {}, 3550, MISSING, {})

# The authors' code as it is, for the scenes of Fashion-MNIST and of the small network on CIFAR-10.
FOUND = {
    f"map-{name}": {} for name in ("fa-mlpnet", "fa-lenet", "dir-fa-lenet", "c10-tfcnn", "dir-c10-tfcnn")
}

SCENES = {
    name: {
        "presets": scene((STATED, CHOSEN), (stated, chosen), CODE | code, CLIPPED, FOUND.get(name)),
        "expected_clients": clients,
        "options": over(OPTIONS, own),
        "defaults": DEFAULTS,
        "official_options": code_options,
        "reproduction_options": {},
        "method_settings": {},
    }
    for name, (stated, chosen, code, clients, own, code_options) in OWN.items()
}

# Tables 1 and 2: the aggregated model on the global test set; the model that each client selected in the last round
# has after its personalisation, on its own test set.
PERSONAL = {
    **{"FedAvg": ("fedavg", "after-local"), "FedProx": ("fedprox", "after-local")},
    **{"FedMMD": ("fedmmd", "after-local"), "Scaffold": ("scaffold", "after-local")},
    **{"FedDF": ("feddf", "after-local"), "FedOpt": ("fedavgm", "after-local")},
    **{"FedNova": ("fednova", "after-local"), "FedAwS": ("fedaws", "after-local")},
    **{"MOON": ("moon", "after-local"), "FedDyn": ("feddyn", "after-local")},
    **{"FedRep": ("fedrep", "after-local"), "FLDA": ("flda", "composed")},
    **{"pFedMe": ("pfedme", "companion"), "PerFedAvg": ("perfedavg_fo", "after-local")},
    **{"FedProto": ("fedproto", "after-local"), "Ditto": ("ditto", "companion")},
    **{"FedROD": ("fedrod", "composed"), "FedRS": ("fedrs", "after-local")},
    **{"FedPHP": ("fedphp", "companion"), "DittoRS": ("dittors", "companion")},
    **{"ScaRS": ("scars", "after-local"), "MAP": ("map", "companion"), "ScaMAP": ("scamap", "companion")},
}
AGGREGATED = [row for row in PERSONAL if row not in ("FedRep", "FedProto")] + ["FedRep", "FedProto"]
EIGHT = ("fa-mlpnet", "fa-lenet", "c10-tfcnn", "c10-vgg8", "c100-vgg8bn", "c100-vgg11")
EIGHT += ("cinic-resnet20", "cinic-resnet56")
COLUMNS = {name: [f"map-{name}"] for name in EIGHT} | {"avg": [f"map-{name}" for name in EIGHT]}
COMPLETE = ["map-dir-fa-lenet", "map-dir-c10-tfcnn", "map-dir-c100-vgg8bn"]


def _main(rows, reading_of):
    """FedRep of the authors' code is FedPer with one private layer."""
    cells = {
        (row, column): cell(
            names,
            PERSONAL[row][0],
            reading_of(row),
            official_method="fedper(count=1)" if row == "FedRep" else "",
        )
        for row in rows
        for column, names in COLUMNS.items()
    }
    return table(COLUMNS, rows, cells, spread="settings")


def _personal(row):
    return PERSONALISATION | {"predictor": PERSONAL[row][1]}


THIRD = (
    "FedAvg",
    "FedProx",
    "Scaffold",
    "FedDyn",
    "MOON",
    "pFedMe",
    "Ditto",
    "FedROD",
    "FedRS",
    "FedPHP",
    "MAP",
)
TABLES = {
    "map-table1": _main(AGGREGATED, lambda row: AGGREGATION),
    "map-table2": _main(list(PERSONAL), _personal),
    "map-table3": table(
        ["aggregation", "personalisation"],
        THIRD,
        {(row, "aggregation"): cell(COMPLETE, PERSONAL[row][0], AGGREGATION) for row in THIRD}
        | {(row, "personalisation"): cell(COMPLETE, PERSONAL[row][0], _personal(row)) for row in THIRD},
    ),
}

# Figure 10: each client's change from FedAvg, tuned for the E epochs of a round, to MAP; 16 lose on FaMnist.
CHANGES = {
    "FaMnist": ("map-fa-lenet", 5),
    "CIFAR-10": ("map-c10-tfcnn", 10),
    "CIFAR-100": ("map-c100-vgg8bn", 20),
    "CINIC-10": ("map-cinic-resnet20", 40),
}
TUNED = EVERYONE | {"predictor": "LU", "moment": "end"}
INHERITED = EVERYONE | {"predictor": "companion", "moment": "before"}
# Figure 11: the six groups without CINIC-10, alpha by kind of transfer and lambda.
SIX = [f"map-{name}" for name in EIGHT[:6]]
ALPHAS, KINDS, LAMBDAS = [0.1, 0.25, 0.5, 0.75, 0.9], ["kd", "mmd"], [0.01, 0.1]
WRITERS = [f"map-femnist-q{percent}-e{epochs}" for percent in (10, 30) for epochs in (2, 5, 10)]


FIGURES = {
    **{f"map-fig{n}": figure("schematic") for n in (1, 2, 3, 4)},
    "map-fig5": figure("features", ["map-o1-8", "map-o1-5", "map-o1-2"]),
    "map-fig6": figure("proxies", ["map-o2"]),
    "map-fig7": figure("subsets", ["map-o3"]),
    "map-fig8": figure(
        "zigzag",
        ["map-o4"],
        [line(row, ["map-o4"], PERSONAL[row][0], _personal(row)) for row in ("FedAvg", "MAP")],
    ),
    "map-fig9": figure("table", tables=["map-table1", "map-table2"], column="avg"),
    "map-fig10": figure(
        "change",
        [name for name, _ in CHANGES.values()],
        [
            each
            for data, (name, epochs) in CHANGES.items()
            for each in (
                line(f"FedAvg, {data}", [name], f"fedavg_lu(epochs={epochs})", TUNED),
                line(f"MAP, {data}", [name], "map", INHERITED),
            )
        ],
        [number(16, scenario="map-fa-lenet")],
    ),
    "map-fig11": figure(
        "settings",
        SIX,
        [line("Aggregation", SIX, "map", AGGREGATION), line("Personalisation", SIX, "map", _personal("MAP"))],
        options={"alpha": ALPHAS, "transfer": KINDS, "transfer_weight": LAMBDAS},
    ),
    "map-fig12": figure(
        "curves",
        WRITERS,
        [
            line(f"{row}, {what}", WRITERS, PERSONAL[row][0], reading)
            for row in ("FedAvg", "Scaffold", "FedROD", "MAP")
            for what, reading in (("aggregation", AGGREGATION), ("personalisation", _personal(row)))
        ],
    ),
}

GRIDS = {
    "map": TRIPLES,
    # section 5.2.5
    "map-study": {
        "map": [
            {"alpha": alpha, "transfer": kind, "transfer_weight": weight}
            for alpha in ALPHAS
            for kind in KINDS
            for weight in LAMBDAS
        ]
    },
}
GRID_DEFAULTS = {
    "map": GRID_METHODS | {"feddml": {"companion_init": "fresh"}, "pfedme": {"steps": None}},
    "map-study": {"map": TWO_STAGES},
}
