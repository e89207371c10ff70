"""What a client loses between two participations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from idiolect.errors import UserError
from idiolect.experiments import Experiment, run
from idiolect.statistics import before_and_after, degradation, measured


def selections(**by_round: dict[int, tuple[float, float]]):
    """Rounds r1, r2, ... with (global before, after-local after) by client; the headline is 0.01 above each."""
    scores = {}
    for name, clients in by_round.items():
        r = int(name[1:])
        scores[(r, "global", "before", "selected")] = {c: b for c, (b, _) in clients.items()}
        scores[(r, "after-local", "after", "selected")] = {c: a for c, (_, a) in clients.items()}
        scores[(r, "own", "before", "selected")] = {c: b + 0.01 for c, (b, _) in clients.items()}
        scores[(r, "own", "after", "selected")] = {c: a + 0.01 for c, (_, a) in clients.items()}
    return scores


HISTORY = selections(
    r1={0: (0.1, 0.5), 1: (0.1, 0.6)},
    r2={0: (0.2, 0.7)},
    r3={1: (0.3, 0.8)},
    r4={0: (0.4, 0.9), 2: (0.4, 0.9)},
)


def test_next_selection_is_compared_with_the_last(make_run):
    found = degradation(make_run(HISTORY)).set_index(["client", "previous", "round"])
    expected = {(0, 1, 2): 0.2 - 0.5, (0, 2, 4): 0.4 - 0.7, (1, 1, 3): 0.3 - 0.6}
    assert found["delta_shared"].to_dict() == pytest.approx(expected)
    assert found["delta_deployed"].to_dict() == pytest.approx(expected)


def test_client_selected_once_has_no_degradation(make_run):
    assert 2 not in set(degradation(make_run(HISTORY))["client"])


def test_zigzag_has_both_ends_of_every_selection(make_run):
    table = before_and_after(make_run(HISTORY)).set_index(["client", "round"])
    assert table.loc[(1, 3), ["shared_before", "shared_after"]].tolist() == [0.3, 0.8]
    assert len(table) == 6


def test_round_that_was_not_observed_is_refused(make_run):
    history = {key: values for key, values in HISTORY.items() if key[0] != 2}
    with pytest.raises(UserError, match="in round 2; run it with observe=always"):
        degradation(make_run(history))


def test_headline_of_the_end_alone_has_no_deployed_degradation(make_run):
    history = {key: values for key, values in HISTORY.items() if key[1] != "own"}
    found = degradation(make_run(history))
    assert found["delta_deployed"].isna().all() and found["delta_shared"].notna().all()


def test_main_model_of_a_method_without_a_global_one_is_the_composed(make_run):
    history = {(r, "composed" if p == "global" else p, *rest): v for (r, p, *rest), v in HISTORY.items()}
    assert degradation(make_run(history))["delta_shared"].tolist() == pytest.approx([-0.3, -0.3, -0.3])


SMALL = Experiment(
    dataset="synthetic(n_clients=5, samples_per_client=40, n_features=8, n_classes=3)",
    partition="by_id",
    clients=5,
    model="mlpnet(hidden=8)",
    rounds=6,
    participation_rate=0.4,
    local_epochs=1,
    batch_size=8,
    evaluate_every=6,
)


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedphp", "superfed_mm"])
def test_observed_run_gives_the_degradation_of_its_rows(method, tmp_path):
    done = run(replace(SMALL, method=method), observe="always", out=tmp_path, engine="loop", device="cpu")
    found = degradation(done)
    picked = done.rows[(done.rows["population"] == "selected") & (done.rows["metric"] == "accuracy")]
    times = picked.groupby("client")["round"].nunique()
    assert len(found) == (times - 1).sum() > 0
    first = found.iloc[0]
    main = "composed" if method == "fedper" else "global"
    at = picked[picked["client"] == first["client"]].set_index(["round", "predictor", "moment"])["value"]
    expected = at[(first["round"], main, "before")] - at[(first["previous"], "after-local", "after")]
    assert first["delta_shared"] == pytest.approx(expected)
    if method == "fedphp":
        assert (found["delta_deployed"] == 0).all()  # the inherited model rests between participations
        assert (found["delta_shared"] != 0).any()
    else:
        assert not found["delta_deployed"].isna().any()
    assert not math.isnan(first["delta_shared"])


def test_observation_costs_no_evaluation_of_all_clients(tmp_path):
    done = run(SMALL, observe="always", out=tmp_path, engine="loop", device="cpu")
    assert set(measured(done, "global", population="selected")["round"]) == set(range(1, 7))
    assert set(measured(done, "global", population="all")["round"]) == {6}
    plain = run(SMALL, out=tmp_path, engine="loop", device="cpu")
    assert set(measured(plain, "global", population="selected")["round"]) == {6}
    last = [d.rows.query("round == 6")["value"].tolist() for d in (done, plain)]
    assert last[0] == last[1]
