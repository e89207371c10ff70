"""FedPer (Arivazhagan et al. 2019): base layers shared, the last K_P units private."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from idiolect.engines import LoopEngine, Workload
from idiolect.federation import select

PART = "private_layers"
HEAD = ["units.2.linear.weight"]
BLOCK = ["units.1.linear.weight", "units.1.linear.bias"]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_private_tensors_of_an_unselected_client_stay_exactly_as_they_are(lab, engine):
    fedper = lab.run("fedper()", participation_rate=0.4, rounds=4, engine=engine)
    for t in range(4):
        cohort = select(0.4, 5, seed=0, round=t)
        for client in range(5):
            before, after = fedper.privates[t][client], fedper.privates[t + 1][client]
            if client in cohort:
                assert lab.differ(after["slots"][PART], before["slots"][PART])
            else:
                lab.same(after, before)


@pytest.mark.parametrize(("count", "kept"), [(1, HEAD), (2, BLOCK + HEAD)])
def test_server_never_holds_private_tensors(lab, count, kept):
    fedper = lab.run(f"fedper(count={count})")
    for server in fedper.servers:
        assert not set(server["params"]) & set(kept)
    for t in range(4):
        assert set(fedper.slot(PART, 0, t)) == set(kept)


def test_normalisation_of_private_units_stays_private_with_its_statistics(lab):
    fedper = lab.run("fedper(count=3)", net="bn")
    assert fedper.servers[3]["buffers"] == {}
    name = "units.0.normalisation.running_mean"
    assert lab.differ(fedper.privates[3][0]["buffers"][name], fedper.privates[3][2]["buffers"][name])
    shared = lab.run("fedper(count=2)", net="bn")
    assert set(shared.servers[3]["buffers"]) == set(fedper.privates[3][0]["buffers"])
    assert shared.privates[3][0]["buffers"] == {}


def test_heads_start_at_random_for_each_client_or_shared(lab):
    random, shared = lab.run("fedper()"), lab.run("fedper(head_init=shared)")
    first = lab.run("fedavg").params[0]
    for client in range(5):
        lab.same(shared.slot(PART, client, 0), {n: first[n] for n in HEAD})
        for other in range(client):
            assert lab.differ(random.slot(PART, client, 0), random.slot(PART, other, 0))


def test_composed_predictor_is_the_new_base_under_the_own_head(lab, plain):
    fedper = lab.run("fedper()")
    check = plain(fedper)
    for client, found in enumerate(fedper.logits()):
        model = {**fedper.params[3], **fedper.slot(PART, client, 3)}
        lab.close(found["composed"], check.forward(model, check.rows(client, "test")[0])[1])
        assert "global" not in found


@dataclass(frozen=True)
class Swapped(Workload):
    """Client k reads the batches of client ``mapping[k]`` of another workload over the same pool."""

    original: Any = None
    mapping: Any = None

    def plan(self, program, stage, client, with_keys=True):
        return self.original.plan(program, stage, self.mapping[client])


@pytest.mark.parametrize("method", ["fedper()", "fedper(count=2, fine_tune_epochs=1)"])
def test_swapping_two_clients_swaps_their_results(lab, method):
    """Data, private layers and random streams change places; the average only sums in another order."""
    mapping = [0, 2, 1, 3, 4]
    fedper = lab.run(method, local_epochs=2)
    federation = lab.federation()
    other = replace(federation, clients=tuple(federation.clients[mapping[c]] for c in range(5)))
    swapped = lab.start(method, local_epochs=2, federation=other)
    original = fedper.simulation.setting
    work = Swapped(**vars(swapped.setting.work), original=original.work, mapping=mapping)
    swapped.participants.engine = LoopEngine(work)
    swapped.store.write({c: original.first_private(mapping[c]) for c in range(5)})
    for _ in range(3):
        swapped.advance()
    lab.close(swapped.server, fedper.servers[3])
    rows = swapped.store.rows(range(5))
    for client in range(5):
        lab.close(rows[client], fedper.privates[3][mapping[client]])
    assert lab.differ(rows[1]["slots"], fedper.privates[3][1]["slots"])


def test_base_is_frozen_while_the_head_is_fine_tuned(lab):
    """One round without joint epochs: only the private layers move."""
    fedper = lab.run("fedper(fine_tune_epochs=1)", local_epochs=0, rounds=1)
    lab.close(fedper.params[1], fedper.params[0])
    for client in range(5):
        assert lab.differ(fedper.slot(PART, client, 1), fedper.slot(PART, client, 0))


def test_least_number_of_local_steps_does_not_prolong_the_epochs_on_the_head(lab):
    setting = lab.start("fedper(fine_tune_epochs=1)", local_epochs=1, min_local_steps=50).setting
    program = setting.program(0)
    head, main = program.method.plan(program.scene, program.clock).before
    few = lab.start("fedper", local_epochs=1).setting
    (once,) = few.method.plan(few.program(0).scene, few.program(0).clock).before
    for client in range(5):
        assert setting.work.steps(program, main, client) == 50
        steps = setting.work.steps(program, head, client)
        assert steps == few.work.steps(few.program(0), once, client) < 50


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("fine_tune_epochs", [0, 1])
@pytest.mark.parametrize("count", [1, 2])
def test_reference_of_three_rounds_agrees(lab, plain, count, fine_tune_epochs, engine):
    """Joint SGD on base and head; in the variant one epoch on the head alone precedes it."""
    fedper = lab.run(
        f"fedper(count={count}, fine_tune_epochs={fine_tune_epochs})",
        participation_rate=0.6,
        local_epochs=2,
        weight_decay=0.01,
        weighting="samples",
        engine=engine,
    )
    check, kept = plain(fedper), HEAD if count == 1 else BLOCK + HEAD
    heads = {client: fedper.slot(PART, client, 0) for client in range(5)}

    def local(base, client, t):
        model = {**base, **heads[client]}
        steps = check.steps(client, fine_tune_epochs)
        model = check.sgd(
            model, check.batches(client, t, steps, "head"), check.cross_entropy, trained=lambda n: n in kept
        )
        model = check.sgd(model, check.batches(client, t, check.steps(client, 2)), check.cross_entropy)
        heads[client] = {n: model[n] for n in kept}
        return {n: model[n] for n in base}

    lab.close(fedper.params, check.federated(fedper.params[0], local))
    for client in range(5):
        lab.close(fedper.slot(PART, client, 3), heads[client])
