"""When the counter of the inherited private model is read: FedPHP's algorithm 1 and its section 3.2 differ.

Section 3.2: z_t = z_{t-1} + 1 for a selected client, then mu_t = mu z_t / (Q T).  Algorithm 1 inherits first (line 9)
and adjusts mu afterwards (line 10), so that mu_t has not yet heard of the present selection.
"""

import pytest

from idiolect.errors import UserError
from idiolect.methods import method

ROUNDS, RATE, MU = 4, 0.6, 0.8
SCENE = {"rounds": ROUNDS, "participation_rate": RATE, "local_epochs": 1, "momentum": 0.5}


def averages(check, run, counter, hpm_init):
    """HPMs by plain recurrence, of training with cross-entropy alone."""
    first = None if hpm_init == "lazy" else run.params[0]
    hpms, selections = dict.fromkeys(range(5), first), [0] * 5

    def local(w, client, t):
        fitted = check.sgd(w, check.batches(client, t, check.steps(client, 1)), check.cross_entropy)
        if counter == "after":
            selections[client] += 1
        mu = min(MU * selections[client] / (RATE * ROUNDS), 1.0)
        old = hpms[client]
        hpms[client] = fitted if old is None else {n: (1 - mu) * fitted[n] + mu * old[n] for n in fitted}
        if counter == "before":
            selections[client] += 1
        return fitted

    return check.federated(run.params[0], local), hpms, selections


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("hpm_init", ["lazy", "theta0"])
@pytest.mark.parametrize("counter", ["before", "after"])
def test_fedphp_counts_the_present_selection_or_not(lab, plain, counter, hpm_init, engine):
    text = f"fedphp(transfer_weight=0, momentum={MU}, counter={counter}, hpm_init={hpm_init})"
    run = lab.run(text, engine=engine, **SCENE)
    shared, hpms, selections = averages(plain(run), run, counter, hpm_init)
    lab.close(run.params, shared)
    for client in range(5):
        if hpms[client] is not None:
            lab.close(run.slot("inherited_teacher", client, ROUNDS)["params"], hpms[client])
    assert max(selections) >= 3


def test_map_and_scamap_count_the_same_way(lab, plain):
    """Without a private stage the HPM of MAP is FedPHP's; alpha = 1 is the plain softmax."""
    text = f"map(alpha=1, shared_share=1, private_share=0, transfer_weight=0, momentum={MU}, counter=after)"
    run = lab.run(text, engine="loop", **SCENE)
    _, hpms, _ = averages(plain(run), run, "after", "lazy")
    for client in range(5):
        if hpms[client] is not None:
            lab.close(run.slot("inherited_model", client, ROUNDS)["params"], hpms[client])
    assert method("scamap(counter=after)").parts


def test_other_counters_are_refused():
    for name in ("fedphp", "map", "scamap"):
        with pytest.raises(UserError, match="counter must be one of before, after; got 'never'"):
            method(f"{name}(counter=never)")
