"""The plain loops give the models that the engines give: float64, relative 1e-9, after several rounds."""

import numpy as np
import pytest
import torch

from idiolect.bench.interleaved_measurement import allowed, difference, rounding, verdict
from idiolect.bench.native_network import values
from idiolect.bench.plain_loops import names, plain_method
from idiolect.bench.worker import EngineRunner, PlainRunner
from idiolect.bench.workloads import bench_setting
from idiolect.core import broadcast
from idiolect.engines import EngineChoice
from idiolect.errors import UserError

TOLERANCE = 1e-9


def both(cell, engine, rounds):
    """The plain loop and the engine after some rounds."""
    entry = plain_method(cell.method)
    plain = PlainRunner(bench_setting(cell, entry.text), entry.plain)
    ours = EngineRunner(bench_setting(cell, entry.text), EngineChoice(engine, cell.device, "as asked"))
    for running in (plain, ours):
        for _ in range(rounds):
            running.ready("round")
            running.go("round")
    return plain, ours


def assert_close(found, expected):
    found, expected = list(found), list(expected)
    assert found and len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=TOLERANCE, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "cohort", "pool"])
@pytest.mark.parametrize("sizes", ["equal", "lognormal"])
@pytest.mark.parametrize("workload", ["dnn", "lenet", "small_bn"])
def test_fedavg_equals_engine_after_one_round(small, workload, sizes, engine):
    plain, ours = both(small(workload=workload, sizes=sizes), engine, 1)
    try:
        assert_close(ours.values(), plain.values())
        moved = [not torch.equal(a, b) for a, b in zip(ours.values(), start_of(plain), strict=True)]
        assert sum(moved) >= len(moved) - 2, "only a bias before normalisation may stay"
    finally:
        ours.close()


def test_net_with_branches_equals_engine_after_one_round(small):
    plain, ours = both(
        small(workload="resnet20", clients=2, population=2, samples=6, batch_size=4), "cohort", 1
    )
    assert_close(ours.values(), plain.values())


def start_of(plain):
    initial = plain.plain.initial
    return [*initial.params.values(), *initial.buffers.values()]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("method", names())
def test_shared_model_equals_engine_after_three_rounds(small, method, engine):
    plain, ours = both(small(method=method, sizes="lognormal"), engine, 3)
    assert_close(ours.values(), plain.values())


def test_map_keeps_the_engines_inherited_models(small):
    plain, ours = both(small(method="map"), "loop", 3)
    assert max(plain.plain.seen.values()) > 1
    for client, state in plain.plain.inherited.items():
        slot = ours.simulation.store.rows([client])[client]["slots"]["inherited_model"]
        assert_close(slot["params"].values(), state.values())


def test_superfed_keeps_the_engines_own_models(small):
    plain, ours = both(small(method="superfed_mm"), "loop", 3)
    for client, own in plain.plain.own.items():
        assert_close(ours.simulation.store.rows([client])[client]["slots"]["mixed_subspace"].values(), own)


def test_persfl_distils_the_engines_students(small):
    plain, ours = both(small(method="persfl"), "loop", 2)
    plain.ready("end")
    plain.go("end")
    simulation = ours.simulation
    program, sent = ours.setting.program(2), broadcast(ours.setting.method, simulation.server)
    settled = ours.engine.settle(program, "end", sent, simulation.store.rows(range(5)))
    for client, private in enumerate(settled):
        slot = private["slots"]["optimal_teacher"]
        assert_close(slot["teacher"]["params"].values(), plain.plain.teachers[client].values())
        assert_close(slot["student"]["params"].values(), plain.plain.students[client].values())


def test_end_of_engine_leaves_the_run_as_it_was(small):
    _, ours = both(small(method="persfl"), "loop", 1)
    before = [value.clone() for value in ours.values()]
    ours.go("end")
    assert ours.simulation.round == 1
    assert all(torch.equal(a, b) for a, b in zip(before, ours.values(), strict=True))


def test_float32_differs_by_rounding_alone(small, tmp_path):
    plain, ours = both(small(workload="lenet", precision="float32"), "cohort", 1)
    paths = [tmp_path / name for name in ("ours.npz", "plain.npz", "start.npz")]
    for path, tensors in zip(paths, (ours.values(), plain.values(), start_of(plain)), strict=True):
        np.savez(path, *(tensor.detach().numpy() for tensor in tensors))
    found = difference(*paths)
    assert found < 1e-4 and verdict(found, allowed("float32", "cpu")) == ""


def test_difference_is_relative_to_the_way_made(tmp_path):
    for name, value in (("start", 0.0), ("base", 2.0), ("after", 2.5)):
        np.savez(tmp_path / f"{name}.npz", np.full((2, 3), value))
    assert difference(*(tmp_path / f"{n}.npz" for n in ("after", "base", "start"))) == pytest.approx(0.25)
    assert verdict(0.25, allowed("float64", "cpu")).endswith(
        "by 2.5e-01 of the distance that the plain loop's moved, more than the 1.0e-09 allowed"
    )
    assert verdict(0.25, allowed("tf32", "cuda", sway=0.16)).endswith("more than the 2.4e-01 allowed")
    assert not verdict(0.25, allowed("tf32", "cuda", sway=0.17))
    assert [allowed(p, d) for p, d in (("float32", "cpu"), ("tf32", "cpu"), ("float32", "cuda"), ("bf16", "cpu"))] == [
        1e-3, 1e-3, 1e-1, 2e-1
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "device", "expected"),
    [
        ("float64", "cpu", 2**-52),
        ("float32", "cpu", 2**-23),
        ("tf32", "cpu", 2**-23),
        ("tf32", "cuda", 2**-11),
    ],
)
def test_nudge_moves_every_number_up_or_down_by_a_rounding(small, precision, device, expected):
    plain, _ = both(small(workload="small_bn", precision=precision), "loop", 0)
    before = {name: value.clone() for name, value in plain.plain.shared.items()}
    plain.nudge(rounding(precision, device), seed=0)
    moved = []
    for name, value in plain.plain.shared.items():
        if not value.is_floating_point():
            assert torch.equal(value, before[name])
            continue
        moved.append((value - before[name])[before[name] != 0] / before[name][before[name] != 0])
    off = torch.cat(moved)
    assert ((expected / 2 <= off.abs()) & (off.abs() <= 2 * expected)).all()
    assert 0.4 < (off > 0).double().mean() < 0.6
    once = plain.plain.shared["0.weight"].clone()
    plain.plain.shared["0.weight"].copy_(before["0.weight"])
    plain.nudge(rounding(precision, device), seed=1)
    assert not torch.equal(plain.plain.shared["0.weight"], once)


def test_plain_values_are_those_of_the_module(small):
    plain, _ = both(small(workload="small_bn"), "loop", 1)
    named = plain.setting.initial(0)
    assert [v.shape for v in plain.values()] == [
        v.shape for v in (*named.params.values(), *named.buffers.values())
    ]
    assert len(values(plain.plain.net)) == len(plain.values())


def test_unknown_method_names_those_with_a_plain_loop():
    with pytest.raises(UserError, match=r"unknown method to bench 'fedprox'; .*fedavg"):
        plain_method("fedprox")
