"""A part at its neutral value leaves FedAvg's path untouched, bit for bit, on every engine."""

import pytest

TRANSFERS = ("kd", "mmd", "l2", "prox")
SUPERFED = "(phase_one=1, orthogonality=0, proximity=0)"
NEUTRAL = [
    "fedper(count=0)",
    "fedprox(weight=0)",
    "fedrs(alpha=1, rule=paper)",
    "fedrs(alpha=1, rule=freq_max)",
    *(f"fedphp(transfer_weight=0, transfer={t})" for t in TRANSFERS),
    f"superfed_mm{SUPERFED}",
    f"superfed_lm{SUPERFED}",
]
WORK_AFTER_THE_UPLOAD = [
    "fedavg_lu(epochs=2)",
    "persfl(lambdas=(0, 0.5), temperatures=(1,), epochs=1)",
    "persfl_gd(lambdas=(0.5,), temperatures=(5,), epochs=1)",
]
SETTINGS = {"participation_rate": 0.6, "local_epochs": 2, "weight_decay": 0.01, "weighting": "samples"}


FOUND = {}  # FedAvg's path by network and engine, which every method below is held against


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("method", NEUTRAL + WORK_AFTER_THE_UPLOAD)
def test_neutral_method_is_exactly_fedavg(lab, method, net, engine):
    if (net, engine) not in FOUND:
        FOUND[net, engine] = lab.run("fedavg", net=net, engine=engine, **SETTINGS)
    fedavg = FOUND[net, engine]
    other = lab.run(method, net=net, engine=engine, **SETTINGS)
    for t in range(4):
        lab.same(other.params[t], fedavg.params[t])
        lab.same(other.servers[t]["buffers"], fedavg.servers[t]["buffers"])
    assert lab.differ(fedavg.params[3], fedavg.params[0])


@pytest.mark.parametrize(
    "method",
    [
        "fedper(count=1)",
        "fedprox(weight=0.5)",
        "fedrs(alpha=0.5)",
        *(f"fedphp(transfer_weight=0.5, transfer={t})" for t in TRANSFERS),
        "superfed_mm(phase_one=0)",
        "superfed_lm(phase_one=0)",
    ],
)
def test_active_method_differs_from_fedavg(lab, method):
    """Without this the equalities above could hold because an option is never read."""
    fedavg = lab.run("fedavg", local_epochs=2)
    other = lab.run(method, local_epochs=2)
    name = "units.0.linear.weight"
    assert lab.differ(other.params[3][name], fedavg.params[3][name])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_fedprox_lu_without_weight_is_exactly_fedavg_lu(lab, engine):
    a = lab.run("fedavg_lu(epochs=2)", engine=engine)
    b = lab.run("fedprox_lu(weight=0, epochs=2)", engine=engine)
    for client in range(5):
        lab.same(a.end[client]["slots"]["fine_tune"], b.end[client]["slots"]["fine_tune"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_all_layers_private_from_a_shared_start_is_exactly_local(lab, net, engine):
    settings = {"net": net, "engine": engine, "participation_rate": 0.6}
    local = lab.run("local", **settings)
    fedper = lab.run("fedper(count=3, head_init=shared)", **settings)
    for t in range(4):
        for client in range(5):
            lab.same(fedper.privates[t][client], local.privates[t][client])


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_client_that_observes_every_class_trains_exactly_as_in_fedavg(lab, alpha):
    everything = lab.federation(held=[(0, 1, 2, 3)] * 5)
    fedavg = lab.run("fedavg", federation=everything)
    fedrs = lab.run(f"fedrs(alpha={alpha}, rule=paper)", federation=everything)
    lab.same(fedrs.params, fedavg.params)
