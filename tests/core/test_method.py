"""Chaining parts: order, headlines, and what is refused."""

import re

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

STRUCTURE = structure_of(stack(image_shape=(1, 2, 2), n_classes=2, hidden=(3,)))


def clock(**changes):
    values = {"round": 0, "rounds": 5, "participation_rate": 1.0, "cohort_size": 2, "population": 2}
    fields = {**dict.fromkeys(Clock._fields, 0), **values, **changes}
    return Clock(**fields)


@pytest.mark.parametrize(
    ("pieces", "names"),
    [
        ((average(0.5), average(0.7)), ["average(step=0.5)", "average(step=0.7)"]),
        ((average(0.5), Part("other", roles=("server update",))), ["average", "other"]),
        ((average(), inherited_model(), inherited_teacher()), ["inherited_model", "inherited_teacher"]),
        ((Part("mine"), Part("mine", headline="global")), ["mine"]),
        ((Part("mine", roles=("hat",)), Part("yours", roles=("hat",))), ["mine", "yours", "'hat'"]),
    ],
)
def test_parts_that_cannot_be_combined_are_refused_by_name(pieces, names):
    with pytest.raises(UserError) as refused:
        chain(*pieces)
    assert all(name in str(refused.value) for name in names)


@pytest.mark.parametrize(
    "text",
    [
        "superfed_mm + mixed_subspace(mixing=layer)",
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
        "fedrep (alternating_layers) and inherited_model cannot be combined: "
        "each sets how long the main stage of local training is, or what a step of it is; use one of them"
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
        f"and {needy} needs every layer of the shared model; use one of them"
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


def written(text: str) -> list[str]:
    return [part.written for part in method(text).parts]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("map + fedavg", ["average", "restricted_softmax", "inherited_model"]),
        (
            "map + fedadam",
            ["restricted_softmax", "inherited_model", "server_optimiser(rule=adam, learning_rate=0.03)"],
        ),
        (
            "fedadam + map",
            ["server_optimiser(rule=adam, learning_rate=0.03)", "restricted_softmax", "inherited_model"],
        ),
        ("fedphp + scaffold(step=0.5)", ["inherited_teacher", "average(step=0.5)", "control_variates"]),
        ("feddf + feddyn", ["ensemble_distillation", "dynamic_regulariser"]),
        ("pfedme(beta=0.5) + moon", ["average(step=0.5)", "moreau_envelope", "contrastive"]),
    ],
)
def test_plain_average_gives_way_to_another_server_update(text, parts):
    assert written(text) == parts


def test_average_that_does_not_go_all_the_way_is_a_server_update():
    with pytest.raises(UserError, match=r"pfedme\(beta=0.5\) \(average\) and fedadam \(server_optimiser\)"):
        method("pfedme(beta=0.5) + fedadam")


def test_methods_that_bring_the_same_part_share_it_at_its_first_place():
    assert written("ditto + dittors") == ["average", "proximal_companion", "restricted_softmax"]
    assert written("fedprox_lu + fedavg_lu") == ["average", "proximal", "fine_tune"]
    assert written("fedprox(weight=1) + proximal(weight=1.0)") == ["average", "proximal(weight=1)"]


def test_parts_of_one_name_and_other_options_are_refused_with_both():
    with pytest.raises(UserError) as refused:
        method("fedavg_lu(epochs=2) + fedprox_lu")
    assert str(refused.value) == (
        "fedavg_lu(epochs=2) (fine_tune) and fedprox_lu (fine_tune) cannot be combined: both bring the part fine_tune, "
        "as fine_tune(epochs=2) and as fine_tune; use one of them, or give both the same options, or write "
        "fedavg_lu(epochs=2) + proximal"
    )


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("map + fedrod", "inherited_model + fedrod"),
        ("fedper + fedproto", "fedper + class_prototypes"),
        ("fedaws + fedproto", "fedaws + class_prototypes"),
        (
            "scamap(alpha=0.5) + fedavgm + fedrs",
            "control_variates + inherited_model(momentum=0.5) + fedavgm + fedrs",
        ),
    ],
)
def test_refusal_spells_what_works_instead(text, instead):
    text = text.replace("alpha=0.5", "alpha=0.5, momentum=0.5")
    with pytest.raises(UserError, match=f"or write {re.escape(instead)}"):
        method(text)
    method(instead)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ditto + fedavg_lu", []),
        ("ditto + fedphp(momentum=0.5)", ["companion(ditto)", "companion(fedphp)"]),
        ("ditto + FedPHP + persfl", ["companion(ditto)", "companion(fedphp)", "companion(persfl)"]),
        ("ditto + inherited_model", ["companion(ditto)", "companion(inherited_model)"]),
        ("fedper + flda", ["composed(fedper)", "composed(flda)"]),
        ("fedavg_lu + perfedavg_fo", ["LU(fedavg_lu)", "LU(perfedavg_fo)"]),
    ],
)
def test_predictors_of_one_name_are_told_apart_by_their_pieces(text, names):
    assert [name for _, _, name in method(text).renamed] == names


def test_predictors_of_one_piece_are_told_apart_by_their_parts():
    both = chain(method("ditto"), method("fedphp"), name="both")
    assert both.headline == "companion(ditto)"
    labels = [name for _, _, name in chain(both, method("persfl")).renamed]
    assert labels == [
        f"companion({n})" for n in ("proximal_companion", "inherited_teacher", "optimal_teacher")
    ]


@pytest.mark.parametrize(
    ("pieces", "headline"),
    [
        (("fedavg_lu", "ditto"), "companion"),
        (("fedavg_lu", "apfl"), "mix(alpha)"),
        (("fedper", "fine_tune"), "LU"),
        (("moon", "fedrep"), "composed"),
        (("fedphp(inference=ensemble)", "fedper"), "ensemble"),
        (("fedphp(inference=personalised)", "fedadam"), "after-local"),
        (("fedprox", "fedadam"), "global"),
    ],
)
def test_headline_is_the_most_personal_in_either_order(pieces, headline):
    assert method(" + ".join(pieces)).headline == headline
    assert method(" + ".join(reversed(pieces))).headline == headline


def test_headline_of_a_name_of_its_own_comes_first():
    own = Part("mine", headline="my model")
    assert chain(method("ditto"), own).headline == chain(own, method("ditto")).headline == "my model"


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
