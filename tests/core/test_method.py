"""Chaining parts: order, headlines, and what is refused."""

import pytest

from idiolect.core import Clock, Part, Plan, Scene, Stage, chain
from idiolect.engines import structure_of
from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.models import stack
from idiolect.parts import (
    alternating_layers,
    average,
    ensemble_distillation,
    feature_fusion,
    fine_tune,
    inherited_model,
    inherited_teacher,
    private_layers,
    proximal,
    spread_out,
)

STRUCTURE = structure_of(stack(in_channels=1, image_size=(2, 2), n_classes=2, hidden=(3,)))


def clock(**changes):
    values = {"round": 0, "rounds": 5, "participation_rate": 1.0, "cohort_size": 2, "population": 2}
    fields = {**dict.fromkeys(Clock._fields, 0), **values, **changes}
    return Clock(**fields)


@pytest.mark.parametrize(
    ("pieces", "names"),
    [
        ((average(), average()), ["average", "twice"]),
        ((average(), Part("other", roles=("server update",))), ["average", "other"]),
        ((average(), inherited_model(), inherited_teacher()), ["inherited_model", "inherited_teacher"]),
        ((method("fedrs"), method("map")), ["average"]),
    ],
)
def test_parts_that_cannot_be_combined_are_refused_by_name(pieces, names):
    with pytest.raises(UserError) as refused:
        chain(*pieces)
    assert all(name in str(refused.value) for name in names)


@pytest.mark.parametrize(
    "text",
    [
        "superfed_mm + mixed_subspace()",
        "fedrs + restricted_softmax(alpha=0.5)",
        "map + inherited_teacher()",
        "fedphp + inherited_model()",
    ],
)
def test_compositions_as_text_refuse_two_parts_of_one_role(text):
    with pytest.raises(UserError):
        method(text)


def test_stages_in_turn_and_half_a_stage_cannot_both_set_the_main_one():
    with pytest.raises(UserError) as refused:
        method("fedrep + restricted_softmax + inherited_model")
    assert str(refused.value) == (
        "alternating_layers and inherited_model cannot be combined: "
        "each sets how long the main stage of local training is, or what a step of it is"
    )


KEEPERS = {
    "last": private_layers(1),
    "all": private_layers(None),
    "all but the last": private_layers(1, side="input"),
    "in turn": alternating_layers(1),
}
NEEDS_WHOLE = {part.name: part for part in (ensemble_distillation(), feature_fusion(), spread_out())}


@pytest.mark.parametrize("keeper_first", [True, False])
@pytest.mark.parametrize("needy", NEEDS_WHOLE)
@pytest.mark.parametrize("kept", KEEPERS)
def test_part_that_needs_the_whole_model_refuses_private_layers(kept, needy, keeper_first):
    keeper, part = KEEPERS[kept], NEEDS_WHOLE[needy]
    with pytest.raises(UserError) as refused:
        chain(*((keeper, part) if keeper_first else (part, keeper)))
    assert str(refused.value) == (
        f"{keeper.name} and {needy} cannot be combined: {keeper.name} keeps layers on the clients, "
        f"and {needy} needs every layer of the shared model"
    )


@pytest.mark.parametrize("needy", NEEDS_WHOLE)
@pytest.mark.parametrize("keeper", [private_layers(0), alternating_layers(0)], ids=["together", "in turn"])
def test_layers_of_which_none_is_private_go_with_the_whole_model(keeper, needy):
    assert chain(keeper, NEEDS_WHOLE[needy]).is_complete(STRUCTURE)


def test_methods_are_flattened_in_order():
    found = chain(method("fedprox"), fine_tune())
    assert [part.name for part in found.parts] == ["average", "proximal", "fine_tune"]
    assert found.headline == "LU"
    assert chain(average(), proximal()).headline == "global"


def test_tensor_is_private_if_any_part_claims_it():
    shared, kept = chain(average()), chain(average(), private_layers(1))
    assert shared.is_complete(STRUCTURE)
    assert not kept.is_complete(STRUCTURE)
    base, head = "units.0.linear.weight", "units.1.linear.weight"
    assert [kept.is_private(name, STRUCTURE) for name in (base, head)] == [False, True]


def test_plan_is_edited_by_the_parts_in_order():
    def adding(name):
        def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
            return plan._replace(before=(*plan.before, Stage(name)))

        return Part(name, stages=stages)

    plan = chain(adding("x"), adding("y")).plan(Scene(), clock())
    assert [stage.name for stage in plan.before] == ["main", "x", "y"]
    assert (plan.after, plan.merged, plan.end) == ((), (), ())


def test_choice_on_validation_data_is_declared():
    assert method("persfl").needs_validation
    assert method("superfed_mm").uses_validation and not method("superfed_mm").needs_validation
    assert not method("map").needs_validation


def test_more_private_units_than_the_network_has_are_refused():
    with pytest.raises(UserError, match="2 units"):
        chain(average(), private_layers(3)).check(STRUCTURE, Scene())
