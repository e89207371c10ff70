"""FedPHP (Li, Zhan, Shao, Li, Song, ECML-PKDD 2021)."""

from .expectations import PERSONALISATION, cell, figure, line, over, scene, table

METHOD, SEEDS = "fedphp", 1

# Section 4.1: T, E, B, Q, momentum, eta; 400 and 100 samples of a client for training and testing.  Section 3.1:
# the server takes the plain mean.
STATED = {"clients": 100, "rounds": 1000, "participation_rate": 0.1, "local_epochs": 2, "batch_size": 64}
STATED |= {"learning_rate": 0.03, "momentum": 0.9, "lr_decay": 1.0, "warmup_rounds": 0}
STATED |= {"weighting": "uniform", "pool": "train", "client_test": "split", "test": 0.2}
STATED |= {"partition": "label_k(k=5)"}
CHOSEN = {"initialisation": "default", "weight_decay": 0.0, "clip_norm": None, "min_local_steps": 0}
CHOSEN |= {"buffers": "average", "valid": 0.0, "public": 0, "public_in_test": False, "augmentation": "none"}
CHOSEN |= {"selection": "fixed", "optimiser": "sgd", "schedule": "constant", "local_schedule": "constant"}
CHOSEN |= {"evaluate_every": 10, "observe": "always", "calibration": "whole", "newcomers": 0}
CODE = {"weight_decay": 1e-5, "clip_norm": 100.0, "min_local_steps": 5}

# Section 4.1: MMD with lambda 0.01, on FeMnist 0.1.  The private or shared part of FedPer and FedLG is one layer.
# The paper does not say how the inherited model starts; in the authors' code it is a copy of the first shared model.
OPTIONS = {"fedphp": {"transfer": "mmd", "transfer_weight": 0.01, "hpm_init": "theta0"}}
OPTIONS |= {"fedper": {"count": 1}, "lg_fedavg": {"count": 1}}
# Algorithm 1: the selections before the present one count.  Section 3.2: Mu-A with mu = 0.9, clipped to [0, 1]; section
# 4.1: predictions from the inherited model; MAP, which restates the method, has temperature 4.  Nothing is stated of
# the compared methods: their own papers' values.
HPM_DEFAULTS = {"temperature": 4.0, "kd_form": "kl", "momentum": 0.9, "schedule": "mu_a", "momentum_max": 1.0}
HPM_DEFAULTS |= {"counter": "before", "inference": "hpm"}
DEFAULTS = {
    "fedprox": {"weight": 0.01, "form": "sq_half"},
    "fedmmd": {"weight": 0.1},
    "scaffold": {
        "step": 1.0,
        "control": "mean_gradient",
        "momentum": 0.0,
        "lr_scale": 1.0,
        "clip_norm": None,
        "control_rate": "population",
    },
    "fedper": {"head_init": "random", "fine_tune_epochs": 0},
    "lg_fedavg": {"body_init": "shared"},
    "flda": {"companion_init": "fresh", "fixed_gate": None},
    "fedfu": {"operator": "multi", "initial_share": 0.5, "fixed": False},
    "feddml": {"shared_weight": 0.5, "own_weight": 0.5, "temperature": 1.0, "companion_init": "fresh"},
    "fedphp": HPM_DEFAULTS,
}

FEMNIST = {"dataset": "femnist", "partition": "natural", "clients": 0, "model": "leaf_cnn"}
FEMNIST |= {"participation_rate": 0.01, "local_epochs": 10, "batch_size": 50, "learning_rate": 4e-3}
SHAKESPEARE = {"dataset": "shakespeare-leaf", "partition": "natural", "clients": 0, "model": "char_lstm"}
SHAKESPEARE |= {"participation_rate": 0.01, "local_epochs": 2, "batch_size": 10, "learning_rate": 1.47}
TWENTY = {"dataset": "cifar100", "partition": "label_k(k=20)"}
SILO = {"dataset": "cifar100", "partition": "label_k(k=5)", "clients": 20, "participation_rate": 1.0}
VGG11, CODE_VGG11 = {"model": "vgg11_fc"}, {"model": "vgg11", "augmentation": "crop_flip"}
TFCNN, CODE_TFCNN = {"model": "tfcnn_fc"}, {"model": "tfcnn", "augmentation": "crop_flip"}
UNSTATED_ROUNDS = {"rounds": 1000}

# what the scene states, what was chosen for it, what the authors' code has, clients, options
OWN = {
    "php-c10": ({"dataset": "cifar10"} | VGG11, {}, CODE_VGG11, 100, {}),
    "php-c100": (TWENTY | VGG11, {}, CODE_VGG11, 100, {}),
    "php-femnist": (FEMNIST, {}, {}, 3550, {"fedphp": {"transfer_weight": 0.1}}),
    "php-c10-tf": ({"dataset": "cifar10"} | TFCNN, {}, CODE_TFCNN, 100, {}),
    "php-c100-tf": (TWENTY | TFCNN, {}, CODE_TFCNN, 100, {}),
    "php-silo": (SILO | VGG11, UNSTATED_ROUNDS, CODE_VGG11, 20, {}),
    "php-shake": (SHAKESPEARE, UNSTATED_ROUNDS | {"momentum": 0.9}, {}, 1129, {}),
}
SCENES = {
    name: {
        "presets": scene((STATED, CHOSEN), (stated, chosen), CODE | code),
        "expected_clients": clients,
        "options": over(OPTIONS, own),
        "defaults": DEFAULTS,
        "official_options": {"scaffold": {"control_rate": "population"}},
        "reproduction_options": {},
        "method_settings": {},
    }
    for name, (stated, chosen, code, clients, own) in OWN.items()
}

# Table 1: statistics of the benchmarks.
FEDERATIONS = {"Cifar10-100-5": "php-c10", "Cifar100-100-20": "php-c100", "FeMnist": "php-femnist"}
FEDERATIONS |= {"Cifar100-20-5": "php-silo", "Shakespeare": "php-shake"}
SIZES = ("clients", "classes", "local_classes", "train", "test")
# Table 2: Mu-A, Mu-B and Mu-C; Begin is around round 200, End the mean of the last 10 rounds (caption of figure 7).
BEGIN, END = {"rounds": "around 200"}, {"rounds": "last 10"}
HPM = PERSONALISATION | {"predictor": "companion"}
THREE = ("php-c10", "php-c100", "php-femnist")
SCHEDULES = {
    f"{when}-mu-{letter}": (f"fedphp(schedule=mu_{letter})", HPM | rounds)
    for when, rounds in (("begin", BEGIN), ("end", END))
    for letter in "abc"
}
TABLES = {
    "fedphp-table1": table(
        SIZES,
        FEDERATIONS,
        {
            (row, size): cell([name], "", {"source": "federation", "metric": size}, unit="")
            for row, name in FEDERATIONS.items()
            for size in SIZES
        },
    ),
    "fedphp-table2": table(
        SCHEDULES,
        list(FEDERATIONS)[:3],
        {
            (row, column): cell([FEDERATIONS[row]], method, reading)
            for row in list(FEDERATIONS)[:3]
            for column, (method, reading) in SCHEDULES.items()
        },
    ),
}

# Figures 4 to 6: accuracy of the personalised models of the selected clients, FedPHP's from the inherited model.
ELEVEN = (
    ("FedAvg", "fedavg", "after-local"),
    ("NoFed", "local", "after-local"),
    ("FedPer", "fedper", "after-local"),
    ("FedLG", "lg_fedavg", "after-local"),
    ("FLDA", "flda", "composed"),
    ("FedFu", "fedfu", "after-local"),
    ("FedMMD", "fedmmd", "after-local"),
    ("FedProx", "fedprox", "after-local"),
    ("FedDML", "feddml", "companion"),
    ("Scaffold", "scaffold", "after-local"),
    ("FedPHP", "fedphp", "companion"),
)


def _eleven(*names):
    return [line(label, names, method, PERSONALISATION | {"predictor": p}) for label, method, p in ELEVEN]


# Figure 2 varies E, Q and eta, of which the text names Q = 1 alone; the other values are chosen here.
VARIED = (
    (" as in section 4.1", THREE, {}),
    (", Q = 1", THREE[:2], {"participation_rate": 1.0}),
    (", E = 10", THREE[:2], {"local_epochs": 10}),
    (", eta = 0.01", THREE, {"learning_rate": 0.01}),
    (", Q = 0.1", THREE[2:], {"participation_rate": 0.1}),
    (", E = 2", THREE[2:], {"local_epochs": 2}),
)
OTHERS = ("php-c10-tf", "php-c100-tf", "php-silo", "php-shake")
TWO = ("php-c100", "php-femnist")
FIGURES = {
    "fedphp-fig1": figure("schematic"),
    "fedphp-fig2": figure(
        "zigzag",
        THREE,
        [
            line(f"FedAvg{label}", names, "fedavg", PERSONALISATION | {"predictor": "after-local"}, settings)
            for label, names, settings in VARIED
        ],
    ),
    "fedphp-fig3": figure("schematic"),
    "fedphp-fig4": figure("curves", THREE, _eleven(*THREE)),
    "fedphp-fig5": figure("curves", OTHERS, _eleven(*OTHERS)),
    "fedphp-fig6": figure("degradation", THREE, _eleven(*THREE)),  # "nearly zero" is no number
    "fedphp-fig7": figure(
        "grid",
        TWO,
        [line("Begin", TWO, "fedphp", HPM | BEGIN), line("End", TWO, "fedphp", HPM | END)],
        options={"transfer": ["kd", "mmd", "l2", "prox"], "transfer_weight": [0.0, 0.001, 0.01, 0.1]},
        compared=_eleven(*TWO)[:-1],  # in brackets the best of the other methods of figure 4
    ),
    "fedphp-fig8": figure(
        "curves",
        THREE,
        [
            line("Inherited", THREE, "fedphp", HPM),
            line("Personalised", THREE, "fedphp", PERSONALISATION | {"predictor": "after-local"}),
            line(
                "Ensemble", THREE, "fedphp(inference=ensemble)", PERSONALISATION | {"predictor": "ensemble"}
            ),
        ],
    ),
}

# section 4.3 and figure 7; then the authors' code
STUDY = [(kind, weight) for kind in ("kd", "mmd", "l2", "prox") for weight in (0.0, 0.001, 0.01, 0.1)]
TRIED = {"fedphp": STUDY, "fedphp-code": [("kd", 0.05), ("mmd", 0.1), ("mmd", 0.05)]}
GRIDS = {
    name: {"fedphp": [{"transfer": kind, "transfer_weight": weight} for kind, weight in tried]}
    for name, tried in TRIED.items()
}
GRID_DEFAULTS = {name: {"fedphp": HPM_DEFAULTS | {"hpm_init": "lazy"}} for name in TRIED}
