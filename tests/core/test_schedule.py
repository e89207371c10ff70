"""Schedules of the learning rate within a stage."""

import pytest
import torch

from idiolect.core.schedule import local_schedule
from idiolect.errors import UserError


@pytest.mark.parametrize("final", [0.0, 0.25])
def test_cosine_is_that_of_torch(final):
    weight, steps = torch.zeros(1, requires_grad=True), 7
    optimiser = torch.optim.SGD([weight], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=final)
    ours = local_schedule(f"cosine(final={final})")
    for step in range(steps):
        progress = torch.tensor(step / steps, dtype=torch.float64)
        assert float(ours(progress)) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimiser.step()
        theirs.step()


def test_line_goes_from_one_to_its_end_and_a_constant_has_no_factor():
    line = local_schedule("linear(final=0.5)")
    assert [float(line(torch.tensor(p))) for p in (0.0, 0.5, 1.0)] == [1.0, 0.75, 0.5]
    assert local_schedule("constant") is None


@pytest.mark.parametrize("text", ["cosin", "cosine(last=1)", "linear(final=2)", "constant(final=1)"])
def test_unusable_schedule_is_refused(text):
    with pytest.raises(UserError, match=r"did you mean cosine|known: final|final must be in|it takes none"):
        local_schedule(text)
