"""What a run takes of its machine: memory of the process and its children, and energy from counters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from idiolect.experiments import run
from idiolect.experiments.rounds.resources import ResourceMeter, package_energy, peak_memory

MEGABYTE = 1 << 20


def powercap(folder: Path, **microjoules: int) -> Path:
    """Writes the kernel's files: two packages, a part of one, and a whole platform that holds them."""
    for zone, name in {"0": "package-0", "0:0": "core", "1": "package-1", "2": "psys"}.items():
        place = folder / f"intel-rapl:{zone}"
        place.mkdir(exist_ok=True)
        (place / "name").write_text(f"{name}\n")
        (place / "energy_uj").write_text(str(microjoules.get(name.replace("-", "_"), 10**9)))
        (place / "max_energy_range_uj").write_text(str(100 * 10**6))
    return folder


def test_packages_are_added_and_their_parts_are_not(tmp_path):
    meter = ResourceMeter(False, powercap(tmp_path, package_0=5_000_000, package_1=90_000_000))
    powercap(tmp_path, package_0=12_000_000, package_1=3_000_000)  # the second began again at 100 J
    facts = meter.facts(1.5)
    assert facts["energy_joules"] == pytest.approx(7 + 13)
    assert facts["energy_source"] == "RAPL, processor packages" and facts["seconds"] == 1.5


def test_energy_goes_on_after_an_interruption(tmp_path):
    first = ResourceMeter(False, powercap(tmp_path, package_0=0, package_1=0))
    powercap(tmp_path, package_0=2_000_000, package_1=0)
    state = first.state()
    second = ResourceMeter(False, powercap(tmp_path, package_0=50_000_000, package_1=0))
    second.restore(state)
    powercap(tmp_path, package_0=51_000_000, package_1=0)
    assert second.facts(1.0)["energy_joules"] == pytest.approx(2 + 1)


def test_energy_is_unknown_where_it_was_not_measured_all_the_time(tmp_path):
    blind = ResourceMeter(False, tmp_path / "nothing")
    assert blind.facts(1.0)["energy_joules"] is None and blind.facts(1.0)["energy_source"] is None
    for state in (blind.state(), None):
        meter = ResourceMeter(False, powercap(tmp_path, package_0=0, package_1=0))
        meter.restore(state)
        assert meter.facts(1.0)["energy_joules"] is None and meter.facts(1.0)["energy_source"] is None


def test_counters_that_cannot_be_read_are_left_out(tmp_path):
    powercap(tmp_path, package_0=1)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert list(package_energy(tmp_path)) == ["intel-rapl:0"]


@pytest.mark.skipif(not peak_memory(), reason="the kernel does not tell")
def test_memory_of_children_counts():
    before = peak_memory()
    code = "x = bytearray(64 << 20); print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        during = peak_memory()
        child.communicate(b"\n")
    assert during - before >= 64 * MEGABYTE


def test_a_run_says_what_it_took(tiny, tmp_path):
    resources = run(tiny, out=tmp_path, engine="loop", device="cpu").manifest["resources"]
    assert set(resources) == {
        "seconds",
        "peak_memory_bytes",
        "peak_gpu_bytes",
        "energy_joules",
        "energy_source",
    }
    assert resources["peak_gpu_bytes"] is None
    assert resources["peak_memory_bytes"] is None or resources["peak_memory_bytes"] > 50 * MEGABYTE
