"""Arguments of the wrong kind in Python are one sentence, as on the command line."""

from __future__ import annotations

import pytest

import idiolect
from idiolect.errors import UserError

CALLS = {
    "run(3)": (lambda: idiolect.run(3), "method must be a name, a composition or an Experiment, got 3"),
    "run(method)": (lambda: idiolect.run(idiolect.method("fedavg")), "method must be a name"),
    "compare(text)": (
        lambda: idiolect.compare("fedavg"),
        "methods must be a list, got 'fedavg'; write methods=[",
    ),
    "compare(3)": (lambda: idiolect.compare(3), "methods must be a list, got 3"),
    "compare([3])": (lambda: idiolect.compare([3]), "it holds 3"),
    "compare(seeds=3)": (
        lambda: idiolect.compare(["fedavg"], seeds=3),
        "seeds must be a list, got 3; write seeds=",
    ),
    "compare(seeds=['a'])": (lambda: idiolect.compare(["fedavg"], seeds=["a"]), "it holds 'a'"),
    "sweep(text)": (
        lambda: idiolect.sweep("map", vary=["momentum=0,1"]),
        "methods must be a list, got 'map'",
    ),
    "sweep(vary=text)": (lambda: idiolect.sweep(["map"], vary="momentum=0,1"), "vary must be a list"),
    "sweep(seeds=3)": (
        lambda: idiolect.sweep(["map"], vary=["momentum=0,1"], seeds=3),
        "seeds must be a list",
    ),
    "chain(text)": (
        lambda: idiolect.chain("fedavg"),
        "chain takes parts and methods, got 'fedavg'; write method(",
    ),
    "chain(3)": (lambda: idiolect.chain(3), "chain takes parts and methods, got 3"),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_argument_is_refused_in_a_sentence(call):
    make, sentence = CALLS[call]
    with pytest.raises(UserError) as refusal:
        make()
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)
