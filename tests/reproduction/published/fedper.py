"""FedPer (Arivazhagan, Aggarwal, Singh, Choudhary, 2019)."""

from .expectations import EVERYONE, figure, line, scene

METHOD, SEEDS = "fedper", 1

# Section 4.1: 100 aggregations, e = 4, constant rate 0.01, N = 10, b = 128.  Section 3.2: all clients are active and
# weighted by their samples.
STATED = {"clients": 10, "rounds": 100, "participation_rate": 1.0, "local_epochs": 4, "batch_size": 128}
STATED |= {
    "learning_rate": 0.01,
    "lr_decay": 1.0,
    "warmup_rounds": 0,
    "weighting": "samples",
    "pool": "train",
}
CHOSEN = {"initialisation": "default", "momentum": 0.0, "weight_decay": 0.0, "clip_norm": None}
CHOSEN |= {"min_local_steps": 0, "buffers": "average", "valid": 0.0, "public": 0}
CHOSEN |= {"selection": "fixed", "optimiser": "sgd", "schedule": "constant", "local_schedule": "constant"}
CHOSEN |= {"public_in_test": False, "augmentation": "none", "evaluate_every": 5, "observe": "evaluated"}
CHOSEN |= {"calibration": "whole", "newcomers": 0}
# Section 4.1: 50,000 training and 10,000 testing samples; who gets which of the latter is not stated.
CHOSEN |= {"client_test": "official", "test": 0.0}

# Section 4.1: MobileNet-v1 has 11 basic blocks.
NETS = {"mobilenet": {"model": "mobilenet_v1(blocks=11)"}, "resnet34": {"model": "resnet34"}}
# Section 4.1: raters with 60 to 290 images, 30 of them, b = 4, 80 % and 20 % of each.
FLICKR = {"dataset": "flickr-aes", "partition": "natural(min_samples=60, max_samples=290)"}
FLICKR |= {"clients": 30, "batch_size": 4, "client_test": "split", "test": 0.2}
DATA = {"c10": ({"dataset": "cifar10"}, (4, 8, 10)), "c100": ({"dataset": "cifar100"}, (40, 80, 100))}
FORTY = {"partition": "label_k(k=40)"}

# what the scene states, and what was chosen for it
# Section 4.4: a linear layer under the net's own personalisation layers, of which there are two as in section 4.2.
OWN = {
    "fedper-linear-c100": (DATA["c100"][0], FORTY | {"model": "linear_base(net=mobilenet_v1, units=2)"}),
    "fedper-linear-c100-resnet34": (DATA["c100"][0], FORTY | {"model": "linear_base(net=resnet34, units=2)"}),
    "fedper-linear-flickr": (FLICKR, {"model": "linear_base(net=mobilenet_v1, units=2, side=1)"}),
}
for net, model in NETS.items():
    for data, (dataset, ks) in DATA.items():
        for k in ks:  # section 4.2 and figures 11 and 12
            OWN[f"fedper-{data}-k{k}-{net}"] = (dataset | model | {"partition": f"label_k(k={k})"}, {})
        # k is not stated for the number of personalisation layers (section 4.3) nor for fine-tuning (A.3)
        OWN[f"fedper-{data}-kp-{net}"] = (dataset | model, {"partition": f"label_k(k={ks[0]})"})
    OWN[f"fedper-ft-c100-{net}"] = (DATA["c100"][0] | model, FORTY)
    OWN[f"fedper-flickr-{net}"] = OWN[f"fedper-ft-flickr-{net}"] = (FLICKR | model, {})

# Algorithm 1: personalisation layers start at random, and there is no fine-tuning but in A.3.
DEFAULTS = {"fedper": {"head_init": "random", "fine_tune_epochs": 0}}
SCENES = {
    name: {
        "presets": scene((STATED, CHOSEN), (stated, chosen)),
        "expected_clients": 30 if "flickr" in name else 10,
        "options": {"fedper": {"count": 2}},  # section 4.2: the classifier and the block before it
        "defaults": DEFAULTS,
        "official_options": {},
        "reproduction_options": {},
        "method_settings": {},
    }
    for name, (stated, chosen) in OWN.items()
}
TABLES = {}  # the paper has none

# Test accuracy, averaged over the clients, by round.
GLOBAL = EVERYONE | {"predictor": "global", "moment": "before"}
COMPOSED = EVERYONE | {"predictor": "composed", "moment": "before"}


def _both(kind, *names):
    fedavg = line("FedAvg", names, "fedavg", GLOBAL)
    return figure(kind, names, [fedavg, line("FedPer", names, "fedper", COMPOSED)])


def _by_layers(*names):
    """Section 4.3: K_P of 1 to 4."""
    return figure(
        "curves", names, [line("FedPer", names, "fedper", COMPOSED)], options={"count": [1, 2, 3, 4]}
    )


def _linear(own, linear):
    """Section 4.4."""
    lines = [
        line("FedPer", [own], "fedper", COMPOSED),
        line("FedPer, linear base", [linear], "fedper", COMPOSED),
        line("Local", [own], "local", COMPOSED),
    ]
    return figure("curves", [own, linear], lines)


def _fine_tuned(name):
    """Section A.3: one epoch on the personalisation layers at the start of every round."""
    lines = [
        line("FedPer", [name], "fedper", COMPOSED),
        line("FedPer, fine-tuned", [name], "fedper(fine_tune_epochs=1)", COMPOSED),
    ]
    return figure("curves", [name], lines)


FIGURES = {
    "fedper-fig1": figure("schematic"),
    "fedper-fig2": _both("curves", *(f"fedper-c10-k{k}-{net}" for net in NETS for k in (4, 8, 10))),
    "fedper-fig3": _both("spread", "fedper-c10-k4-mobilenet"),
    "fedper-fig4": _by_layers("fedper-c10-kp-mobilenet", "fedper-c10-kp-resnet34"),
    "fedper-fig5": _linear("fedper-c100-k40-mobilenet", "fedper-linear-c100"),
    "fedper-fig6": _linear("fedper-c100-k40-resnet34", "fedper-linear-c100-resnet34"),
    "fedper-fig7": _both("curves", "fedper-flickr-mobilenet"),  # "similar to random guessing" is no number
    "fedper-fig8": _both("curves", "fedper-flickr-resnet34"),
    "fedper-fig9": _linear("fedper-flickr-mobilenet", "fedper-linear-flickr"),
    "fedper-fig10": figure("unknown"),
    "fedper-fig11": _both("curves", *(f"fedper-c100-k{k}-resnet34" for k in (40, 80, 100))),
    "fedper-fig12": _both("curves", *(f"fedper-c100-k{k}-mobilenet" for k in (40, 80, 100))),
    "fedper-fig13": _both("spread", "fedper-c10-k10-mobilenet"),
    "fedper-fig14": _by_layers("fedper-c100-kp-mobilenet", "fedper-c100-kp-resnet34"),
    "fedper-fig15": _fine_tuned("fedper-ft-c100-mobilenet"),
    "fedper-fig16": _fine_tuned("fedper-ft-c100-resnet34"),
    "fedper-fig17": _fine_tuned("fedper-ft-flickr-mobilenet"),
    "fedper-fig18": _fine_tuned("fedper-ft-flickr-resnet34"),
}

GRIDS = {"fedper": {"fedper": [{"count": count} for count in (1, 2, 3, 4)]}}  # section 4.3
GRID_DEFAULTS = {"fedper": DEFAULTS}
