"""PersFL (Divi, Farrukh, Celik, 2021)."""

from .expectations import EVERYONE, cell, figure, line, over, scene, table

METHOD, SEEDS = "persfl", 5  # section 5.1: averages over five runs

# Section 5: ten users, all active, 60 % - 20 % - 20 %; equation 4 is the plain mean.
STATED = {"clients": 10, "participation_rate": 1.0, "weighting": "uniform", "valid": 0.2, "test": 0.2}
STATED |= {"pool": "train_and_test", "client_test": "split"}  # 60,000 and 70,000 instances
# Local epochs, batch size and learning rate are not stated.
CHOSEN = {"local_epochs": 4, "batch_size": 128, "learning_rate": 0.01, "momentum": 0.0, "weight_decay": 0.0}
CHOSEN |= {"initialisation": "default", "clip_norm": None, "min_local_steps": 0, "warmup_rounds": 0}
CHOSEN |= {"selection": "fixed", "optimiser": "sgd", "schedule": "constant", "local_schedule": "constant"}
CHOSEN |= {"lr_decay": 1.0, "buffers": "average", "public": 0, "public_in_test": False, "newcomers": 0}
CHOSEN |= {"augmentation": "none", "evaluate_every": 25, "observe": "evaluated", "calibration": "whole"}

# DS-1: four classes a user; DS-2: Dirichlet 0.9 over each class; DS-3: two classes, log-normal sizes.
DS1, DS2, DS3 = "label_k(k=4)", "dirichlet_class(alpha=0.9)", "lognormal_2class"
CIFAR = {"dataset": "cifar10", "model": "persfl_cnn"}
MNIST = {"dataset": "mnist", "model": "persfl_dnn"}

# Table 7: rounds of FedAvg, PersFL, pFedMe and Per-FedAvg (FedPer's are FedAvg's).  The authors' scripts: eta, eta_p,
# lambda, beta and batch size of pFedMe, then alpha and beta of Per-FedAvg.
SPLITS = {
    "c10-ds1": (CIFAR, DS1, (50, 50, 800, 800), (0.01, 0.001, 15, 1, 128), (0.001, 0.001)),
    "c10-ds2": (CIFAR, DS2, (25, 25, 1000, 800), (0.01, 0.0025, 15, 1, 128), (0.01, 0.0025)),
    "c10-ds3": (CIFAR, DS3, (100, 50, 800, 1000), (0.01, 0.05, 30, 2, 20), (0.01, 0.0025)),
    "mnist-ds1": (MNIST, DS1, (100, 100, 800, 800), (0.02, 0.0025, 15, 1, 128), (0.001, 0.001)),
    "mnist-ds2": (MNIST, DS2, (50, 25, 800, 800), (0.01, 0.0075, 15, 1, 128), (0.01, 0.01)),
    "mnist-ds3": (MNIST, DS3, (100, 100, 800, 800), (0.01, 0.05, 30, 2, 20), (0.01, 0.01)),
}
# FedPer keeps the last layer.  pFedMe: R = 20 batches, K = 5.
OPTIONS = {"fedper": {"count": 1}, "pfedme": {"inner_steps": 5, "steps": 20}}
# The grid is what the averages of table 5 allow.
LAMBDAS, TEMPERATURES = [0.0, 0.25, 0.5, 0.75, 1.0], [1.0, 5.0, 25.0]
STUDENT_DEFAULTS = {"epochs": 20, "lr_scale": 1.0, "teacher": "optimal"}
SEARCHED = STUDENT_DEFAULTS | {"lambdas": LAMBDAS, "temperatures": TEMPERATURES}
DEFAULTS = {"fedper": {"head_init": "random", "fine_tune_epochs": 0}, "perfedavg_fo": {"adapt_steps": 1}}
DEFAULTS |= {"persfl": SEARCHED | {"soft_loss": "kl"}, "persfl_gd": SEARCHED}


def _scene(data, split, rounds, moreau, meta):
    """``rounds`` and the two rates differ from method to method."""
    eta, eta_p, weight, beta, batch = moreau
    averaged, distilled, moreau_rounds, meta_rounds = rounds
    stated, chosen = data | {"rounds": averaged}, {}
    (chosen if split == DS1 else stated)["partition"] = split  # the rule of DS-1 is not printed
    pfedme = {"outer_rate": eta, "inner_rate": eta_p, "weight": weight, "beta": beta}
    settings = {"pfedme": {"rounds": moreau_rounds} | ({"batch_size": batch} if batch != 128 else {})}
    # 20 iterations of Per-FedAvg: as many steps at the least, and next to no epochs
    settings |= {"perfedavg_fo": {"local_epochs": 0.01, "min_local_steps": 20, "rounds": meta_rounds}}
    if distilled != averaged:
        settings |= {name: {"rounds": distilled} for name in ("persfl", "persfl_gd")}
    return {
        "presets": scene((STATED, CHOSEN), (stated, chosen)),
        "expected_clients": 10,
        "options": over(
            OPTIONS, {"pfedme": pfedme, "perfedavg_fo": {"inner_rate": meta[0], "outer_rate": meta[1]}}
        ),
        "defaults": DEFAULTS,
        "official_options": {},
        "reproduction_options": {},
        "method_settings": settings,
    }


SCENES = {f"persfl-{name}": _scene(*given) for name, given in SPLITS.items()}

# Tables 2 to 6: a row for every user, the mean over users, and the SD over users of their averages.
USERS = {f"User {n}": {"over": "client", "client": n} for n in range(10)}
ROWS = USERS | {"Avg": {"over": "mean"}, "SD": {"over": "sd"}}
# FedAvg's global model and FedPer's and pFedMe's personal ones after the last round; PersFL's student after its own
# training; Per-FedAvg after its step of adaptation.
STUDENT = EVERYONE | {"predictor": "companion", "moment": "end"}
COMPARED = {
    "fedavg": ("fedavg", EVERYONE | {"predictor": "global", "moment": "before"}),
    "persfl": ("persfl", STUDENT),
    "fedper": ("fedper", EVERYONE | {"predictor": "composed", "moment": "before"}),
    "pfedme": ("pfedme", EVERYONE | {"predictor": "companion", "moment": "before"}),
    "perfedavg": ("perfedavg_fo", EVERYONE | {"predictor": "LU", "moment": "end"}),
}
CHOICE = {"split": "none", "population": "all", "predictor": "companion", "moment": "end"}


def _by_user(columns, rows=ROWS, unit="%"):
    """``columns``: split, method and reading by id."""
    cells = {
        (row, id): cell([f"persfl-{split}"], method, reading | of_row, unit)
        for row, of_row in rows.items()
        for id, (split, method, reading) in columns.items()
    }
    return table(columns, rows, cells)


def _comparison(data):
    columns = {
        f"{name}-{ds}": (f"{data}-{ds}", method, reading)
        for name, (method, reading) in COMPARED.items()
        for ds in ("ds1", "ds2", "ds3")
    }
    return _by_user(columns)


def _two(**methods):
    """Two methods on every split, both read as PersFL is."""
    return _by_user(
        {f"{split}-{name}": (split, method, STUDENT) for split in SPLITS for name, method in methods.items()}
    )


TABLES = {
    "persfl-table2": _comparison("c10"),
    "persfl-table3": _comparison("mnist"),
    "persfl-table4": _two(fedavg="persfl(teacher=fedavg)", optimal="persfl"),
    "persfl-table5": _by_user(
        {
            f"{split}-{metric}": (split, "persfl", CHOICE | {"metric": metric})
            for split in SPLITS
            for metric in ("temperature", "lambda")
        },
        USERS,
        unit="",
    ),
    "persfl-table6": _two(persfl="persfl", gd="persfl_gd"),
}
ROUNDS = {"FedAvg": "fedavg", "PersFL": "persfl", "FedPer": "fedper", "pFedMe": "pfedme"}
ROUNDS |= {"Per-FedAvg": "perfedavg_fo"}
TABLES["persfl-table7"] = table(
    SPLITS,
    ROUNDS,
    {
        (row, split): cell([f"persfl-{split}"], method, {"source": "setting", "metric": "rounds"}, unit="")
        for row, method in ROUNDS.items()
        for split in SPLITS
    },
)

# Figures 3 to 8: lambda without 1.
TEACHER = {"metric": "teacher round", "split": "none", "population": "all", "moment": "end"}
FIGURES = {
    "persfl-fig1": figure("schematic"),
    "persfl-fig2": figure(
        "clients", SCENES, [line("PersFL", SCENES, "persfl", TEACHER | {"predictor": "companion"})]
    ),
}
for number, name in enumerate(SCENES, start=3):
    FIGURES[f"persfl-fig{number}"] = figure(
        "users",
        [name],
        [line("PersFL", [name], "persfl", STUDENT)],
        options={"lambdas": [[x] for x in LAMBDAS[:4]], "temperatures": [[t] for t in TEMPERATURES]},
    )

GRIDS = {
    "persfl": {"persfl": [{"lambdas": [x], "temperatures": [t]} for x in LAMBDAS for t in TEMPERATURES]},
}
GRID_DEFAULTS = {"persfl": {"persfl": STUDENT_DEFAULTS | {"soft_loss": "kl"}}}
