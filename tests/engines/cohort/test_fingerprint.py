"""Keys tell apart what computes differently, and nothing else."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from idiolect.core import Stage, sgd
from idiolect.engines.cohort.tracing import fingerprint
from idiolect.engines.network_task import make_task
from idiolect.methods import method
from idiolect.models import build


def test_methods_read_twice_are_one():
    for text in ("fedavg", "map", "superfed_lm", "scaffold + restricted_softmax(alpha=0.5)"):
        assert fingerprint(method(text).parts) == fingerprint(method(text).parts)


def test_an_option_of_a_method_changes_its_key():
    assert fingerprint(method("fedprox(weight=0.1)").parts) != fingerprint(
        method("fedprox(weight=0.2)").parts
    )
    assert fingerprint(method("fedavg").parts) != fingerprint(method("fedprox").parts)


def test_networks_of_one_make_are_one():
    def key(name: str, seed: int = 0):  # type: ignore[no-untyped-def]
        return fingerprint(make_task(build(name, (1, 28, 28), 10, seed=seed)))

    assert key("lenet_map") == key("lenet_map", seed=1)
    assert key("lenet_map") != key("lenet_fedrepo")
    assert key("mlpnet(hidden=8)") != key("mlpnet(hidden=9)")


def test_precision_of_a_network_changes_its_key():
    net = build("lenet_map", (1, 28, 28), 10)
    assert fingerprint(make_task(net)) != fingerprint(make_task(net, compute=torch.bfloat16))


def test_stages_planned_anew_are_one():
    def stage(weight: float) -> Stage:
        return Stage(
            objective=lambda view: lambda params, batch, out: weight * out.logits.sum(), optimiser=sgd(0.9)
        )

    assert fingerprint(stage(1.0)) == fingerprint(stage(1.0))
    assert fingerprint(stage(1.0)) != fingerprint(stage(2.0))
    assert fingerprint(stage(1.0)) != fingerprint(stage(1))


def test_tensors_that_are_closed_over_count_by_identity():
    one, other = torch.ones(2), torch.ones(2)
    assert fingerprint(partial(torch.add, one)) == fingerprint(partial(torch.add, one))
    assert fingerprint(partial(torch.add, one)) != fingerprint(partial(torch.add, other))


def test_what_contains_itself_has_a_key():
    module = nn.Linear(2, 2)
    module.itself = [module]
    assert hash(fingerprint(module)) == hash(fingerprint(module))
