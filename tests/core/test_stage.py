"""How many steps a client makes in a stage."""

import pytest

from idiolect.core import Scene, Stage, steps_of
from idiolect.core.stage import default_plan


@pytest.mark.parametrize(
    ("stage", "epochs", "batches", "steps"),
    [
        (Stage(), 2, 3, 6),
        (Stage(), 0, 3, 0),
        (Stage(), 2.5, 3, 8),
        (Stage(share=0.5), 5, 3, 8),
        (Stage(share=0.5, rounding="floor"), 5, 3, 7),
        (Stage(share=0.5), 1, 1, 1),
        (Stage(share=0.5, rounding="floor"), 1, 1, 0),
        (Stage(share=0.1), 3, 10, 3),  # 0.1 * 3 * 10 = 3.0000000000000004
        (Stage(share=0.1, rounding="floor"), 7, 10, 7),
        (Stage(epochs=1), 5, 3, 3),
        (Stage(epochs=0), 5, 3, 0),
        (Stage(steps=4), 5, 3, 4),
        (Stage(min_steps=5, share=0.1), 2, 3, 5),
        (Stage(min_steps=5), 2, 3, 6),
        (Stage(batches_per_step=2), 2, 3, 3),
        (Stage(batches_per_step=2), 1, 3, 2),
    ],
)
def test_steps_of_a_stage_are_those_of_its_epochs(stage, epochs, batches, steps):
    assert steps_of(stage, Scene(local_epochs=epochs), batches) == steps


@pytest.mark.parametrize("batches", range(1, 12))
@pytest.mark.parametrize("epochs", [1, 2, 3, 5])
def test_two_halves_make_the_whole(epochs, batches):
    scene = Scene(local_epochs=epochs)
    first = steps_of(Stage(share=0.5, rounding="ceil"), scene, batches)
    second = steps_of(Stage("private", share=0.5, rounding="floor"), scene, batches)
    assert first + second == epochs * batches
    assert 0 <= first - second <= 1


def test_least_number_of_local_steps_holds_for_the_stages_that_say_so():
    scene = Scene(local_epochs=1, min_local_steps=5)
    (main,) = default_plan().before
    assert steps_of(main, scene, 2) == 5
    assert steps_of(main, scene, 7) == 7
    assert steps_of(Stage("private"), scene, 2) == 2
