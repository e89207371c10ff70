"""Operations, bytes and the floors they set, against counts made by hand for a net 784-100-10."""

import torch

from idiolect.bench.machine_peaks import measure_peaks
from idiolect.bench.native_network import native
from idiolect.bench.plain_loops import plain_method
from idiolect.bench.roofline import Floor, Peaks, Work, activations, count_work, floor_of, traffic
from idiolect.bench.worker import PlainRunner
from idiolect.bench.workloads import bench_setting
from idiolect.models import build

ROWS = 3 * 20  # of three clients
STEPS = 3 * 3
FORWARD = 2 * (784 * 100 + 100 * 10)  # operations for one row
BACKWARD = 2 * (784 * 100 + 2 * 100 * 10)  # both weights, and the input of the second layer
PARAMETERS = 785 * 100 + 101 * 10


def counted(cell, phase="round"):
    entry = plain_method(cell.method)
    running = PlainRunner(bench_setting(cell, entry.text), entry.plain)
    if phase == "end":
        running.ready("round")
        running.go("round")
    running.ready(phase)
    return count_work(lambda: running.go(phase), running.plain.nets)


def test_fedavg_is_a_forward_and_a_backward_pass_for_every_row(small):
    assert counted(small()) == Work(
        flops=ROWS * (FORWARD + BACKWARD),
        steps=STEPS,
        updated=STEPS * PARAMETERS,
        passes=STEPS,
        rows=ROWS,
    )


def test_map_looks_at_its_teacher_in_the_private_steps(small):
    """Of three steps (8, 8 and 4 rows) the third kind of batch is read after the upload: one of 8 rows a client."""
    found = counted(small(method="map"))
    assert (found.steps, found.passes, found.looks) == (9, 9, 3)
    assert found.rows == 3 * (8 + 8 + 8) and found.looked == 3 * 8
    assert found.flops == found.rows * (FORWARD + BACKWARD) + found.looked * FORWARD


def test_persfl_scores_on_every_client_and_distils_at_the_end(small):
    scored, distilled = counted(small(method="persfl")), counted(small(method="persfl"), "end")
    assert (scored.looks, scored.looked) == (5, 5 * 5)
    assert (distilled.steps, distilled.rows) == (15, 100)
    assert (distilled.looks, distilled.looked) == (15 + 5, 100 + 25)


def test_superfed_moves_two_models_with_one_pass(small):
    found = counted(small(method="superfed_mm"))
    assert found.updated == 2 * STEPS * PARAMETERS and found.passes == STEPS
    assert found.flops == ROWS * (FORWARD + BACKWARD)


def test_activations_leave_out_what_can_be_fused():
    net = build("lenet_map", (1, 28, 28), 10)
    made = 16 * (24 * 24 + 12 * 12 + 8 * 8 + 4 * 4) + 10
    assert activations(native(net), torch.zeros(1, 28, 28)) == made


def test_traffic_by_hand():
    work = Work(steps=2, updated=20, passes=2, rows=6, looks=1, looked=3)
    by_parameter, by_row = 6 * 20 + 2 * 10 * 2, (5 * 7 + 2 * 4) * 6
    assert traffic(work, parameters=10, made=7, image=4, itemsize=8) == 8 * (
        by_parameter + by_row + 10 + (2 * 7 + 4) * 3
    )


def test_floor_is_operations_and_bytes_over_the_peaks():
    assert floor_of(600.0, 20.0, Peaks(200.0, 40.0)) == Floor(3.0, 0.5)
    assert Floor(3.0, 0.5).shares(6.0) == (0.5, 0.5 / 6)


def test_peaks_are_of_this_machine():
    before = torch.get_num_threads()
    found = measure_peaks(torch.float64, "cpu")
    assert 1e8 < found.flops < 1e14 and 1e7 < found.bytes < 1e13
    assert torch.get_num_threads() == before
