"""Methods put together: engines agree, order changes no number, and what is switched off leaves the other alone."""

from __future__ import annotations

from typing import Any

import pytest

from idiolect.experiments.rounds.simulated_clients import Simulation

from .sameness import assert_equal, assert_exact, numbers, privates, states
from .tiny import finished_run

FIVE = (
    ("fedper", "fedprox"),
    ("moon", "fedrep(head_epochs=1)"),
    ("ditto", "fedadam(learning_rate=0.01)"),
    ("fedphp", "scaffold"),
    ("map", "fedadam(learning_rate=0.01)"),
)
BOTH = [pytest.param(*pair, id=" + ".join(pair)) for pair in FIVE]


def played(text: str, engine: str = "loop") -> Simulation:
    return finished_run(text, engine, rounds=2)


def scores(run: Simulation, predictor: str) -> list[dict[str, Any]]:
    """The rows of one predictor, without its name."""
    rows = [row for row in numbers(run)["rows"] if row["predictor"] == predictor]
    assert rows
    return [{key: value for key, value in row.items() if key != "predictor"} for row in rows]


def assert_equal_rows(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [{**row, "value": 0} for row in found] == [{**row, "value": 0} for row in expected]
    wanted = [row["value"] for row in expected]
    assert [row["value"] for row in found] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), BOTH)
def test_cohort_equals_loop(first: str, second: str) -> None:
    text = f"{first} + {second}"
    loop, cohort = played(text), played(text, "cohort")
    assert_equal(states(cohort), states(loop))
    assert_equal_rows(numbers(cohort)["rows"], numbers(loop)["rows"])


@pytest.mark.parametrize(("first", "second"), BOTH)
def test_order_of_two_methods_changes_no_number(first: str, second: str) -> None:
    one, other = played(f"{first} + {second}"), played(f"{second} + {first}")
    assert one.setting.method.headline == other.setting.method.headline
    assert_exact(states(other), states(one))
    predictors = {row["predictor"] for row in numbers(one)["rows"]}
    assert predictors == {row["predictor"] for row in numbers(other)["rows"]}
    for predictor in predictors:
        assert scores(other, predictor) == scores(one, predictor)


@pytest.mark.parametrize(
    ("text", "alone"),
    [("fedper + fedprox(weight=0)", "fedper"), ("map + fedavg", "map"), ("fedavg + map", "map")],
)
def test_method_that_adds_nothing_changes_nothing(text: str, alone: str) -> None:
    assert_exact(states(played(text)), states(played(alone)))
    assert numbers(played(text)) == numbers(played(alone))


def test_companion_leaves_the_servers_adam_alone() -> None:
    composed, alone = played("ditto + fedadam(learning_rate=0.01)"), played("fedadam(learning_rate=0.01)")
    assert_exact(composed.server, alone.server)
    assert scores(composed, "global") == scores(alone, "global")


def test_map_under_adam_has_the_shared_path_of_fedrs_under_adam() -> None:
    """Half the local epochs before the upload are what FedRS does in a scene of half as many."""
    adam = "fedadam(learning_rate=0.01)"
    composed, alone = played(f"map + {adam}"), finished_run(f"fedrs + {adam}", rounds=2, local_epochs=0.5)
    assert_exact(composed.server, alone.server)


def test_teacher_without_weight_leaves_the_path_of_scaffold() -> None:
    composed, alone = played("fedphp(transfer_weight=0) + scaffold"), played("scaffold")
    assert_equal(composed.server, alone.server)
    ours, theirs = privates(composed), privates(alone)
    for client, kept in theirs.items():
        controls = kept["slots"]["control_variates"]
        assert_equal(ours[client]["slots"]["control_variates"], controls)


def test_two_companions_are_those_of_their_methods() -> None:
    """Without a transfer both leave the shared model to FedAvg."""
    fedphp = "fedphp(transfer_weight=0)"
    composed = played(f"ditto + {fedphp}")
    assert composed.setting.method.headline == "companion(ditto)"
    for name, text in (("companion(ditto)", "ditto"), ("companion(fedphp)", fedphp)):
        assert_equal_rows(scores(composed, name), scores(played(text), "companion"))
    assert scores(composed, "companion(ditto)") != scores(composed, "companion(fedphp)")


def test_server_update_written_last_leaves_the_fused_model_its_name() -> None:
    one, other = played("fedadam(learning_rate=0.01) + fedfu"), played("fedfu + fedadam(learning_rate=0.01)")
    assert_exact(states(other), states(one))
    assert scores(other, "global") == scores(one, "global")
