"""FedPHP's equation 4 as it is written: the next round's model on the clients selected in this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.experiments import Experiment, run
from idiolect.reports import degradation_data
from idiolect.statistics import degradation

SMALL = Experiment(
    dataset="synthetic(n_clients=5, samples_per_client=40, n_features=8, n_classes=3)",
    partition="by_id",
    clients=5,
    model="mlpnet(hidden=8)",
    rounds=4,
    participation_rate=0.4,
    local_epochs=1,
    batch_size=8,
    evaluate_every=2,
)
# Rounds 1 and 3 are not evaluated; client 0 is selected in rounds 1, 2 and 4, client 1 in round 2 alone.
HISTORY = {
    (1, "global", "before", "selected"): {0: 0.1},
    (1, "after-local", "after", "selected"): {0: 0.5},
    (2, "global", "before", "selected"): {0: 0.2, 1: 0.2},
    (2, "after-local", "after", "selected"): {0: 0.6, 1: 0.8},
    (2, "own", "after", "selected"): {0: 0.7, 1: 0.9},
    (2, "global", "before", "all"): {0: 0.35, 1: 0.45, 2: 0.99},
    (2, "own", "before", "all"): {0: 0.7, 1: 0.9, 2: 0.99},
    (3, "global", "before", "selected"): {2: 0.1},
    (3, "after-local", "after", "selected"): {2: 0.5},
    (4, "global", "before", "selected"): {0: 0.3},
    (4, "after-local", "after", "selected"): {0: 0.9},
    (4, "global", "before", "all"): {0: 0.4, 1: 0.4, 2: 0.4},
}


def test_next_rounds_model_is_compared_on_those_who_were_selected(make_run):
    """Round 2: 0.35 - 0.6 and 0.45 - 0.8; round 4: 0.4 - 0.9; what a client downloads later plays no part."""
    found = degradation(make_run(HISTORY), at="round").set_index(["client", "previous", "round"])
    expected = {(0, 2, 3): -0.25, (1, 2, 3): -0.35, (0, 4, 5): -0.5}
    assert found["delta_shared"].to_dict() == pytest.approx(expected)
    assert found["delta_deployed"].dropna().to_dict() == pytest.approx({(0, 2, 3): 0.0, (1, 2, 3): 0.0})


def test_default_is_the_clients_next_selection(make_run):
    run, choices = make_run(HISTORY), ["client", "previous", "round"]
    assert degradation(run).equals(degradation(run, at="selection"))
    found = degradation(run).set_index(choices)["delta_shared"].to_dict()
    assert found == pytest.approx({(0, 1, 2): 0.2 - 0.5, (0, 2, 4): 0.3 - 0.6})


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedphp"])
def test_evaluated_rounds_of_a_run_suffice(method, tmp_path):
    """The next round's model of round 2 is what the clients of round 3 download: equal where a client is in both."""
    done = run(replace(SMALL, method=method, observe="always"), out=tmp_path, engine="loop", device="cpu")
    found = degradation(done, at="round")
    assert set(found["previous"]) == {2, 4} and found["delta_shared"].notna().all()
    rows = done.rows[(done.rows["metric"] == "accuracy") & (done.rows["split"] == "test")]
    values = rows.set_index(["population", "round", "client", "predictor", "moment"])["value"].to_dict()
    main = "composed" if method == "fedper" else "global"
    for one in found.itertuples():
        after = values["selected", one.previous, one.client, "after-local", "after"]
        assert one.delta_shared == pytest.approx(
            values["all", one.previous, one.client, main, "before"] - after
        )
    if method == "fedphp":
        assert (found["delta_deployed"] == 0).all() and (found["delta_shared"] != 0).any()


def test_report_can_read_either(tmp_path):
    done = run(replace(SMALL, observe="always"), out=tmp_path, engine="loop", device="cpu")
    assert set(degradation_data([done], at="round")["x"]) == {3, 5}
    assert set(degradation_data([done])["x"]) <= {2, 3, 4}
