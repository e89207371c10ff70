"""Where private state goes, by its size and by what is free; and when a disk is too small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from idiolect.errors import UserError
from idiolect.federation import Demand, choose_store, open_store
from idiolect.federation.store.disk import DiskStorage
from idiolect.federation.store.memory import MemoryStorage
from idiolect.federation.store.placement import CACHE_SHARE, SHARE, free_disk, free_memory

MEMORY, DISK = 10**10, 10**12
LEAF_CNN = Demand(row_bytes=26_400_000, population=3550, holders=3550, superseded=0)


@pytest.fixture(autouse=True)
def _sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.free_memory", lambda: MEMORY)
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: DISK)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (4 * 10**9, 8 * 10**9))


def demand(total: int, superseded: int = 0) -> Demand:
    return Demand(total // 10, 100, 10, superseded)


@pytest.mark.parametrize(
    ("total", "device", "kind"),
    [
        (SHARE * MEMORY, "cpu", "host"),
        (SHARE * MEMORY + 10, "cpu", "disk"),
        (SHARE * 4e9, "cuda", "device"),
        (SHARE * 4e9 + 10, "cuda", "host"),
        (SHARE * MEMORY + 10, "cuda", "disk"),
        (0, "cpu", "host"),
        (0, "cuda", "device"),
    ],
)
def test_store_is_chosen_by_size(total: float, device: str, kind: str, tmp_path: Path) -> None:
    assert choose_store(demand(int(total)), tmp_path, device=device).kind == kind


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_store_that_is_asked_for_is_taken(kind: str, tmp_path: Path) -> None:
    for total in (0, 10 * MEMORY):
        assert choose_store(demand(total), tmp_path, kind=kind, device="cuda").kind == kind


def test_device_of_a_run_without_a_gpu_is_the_host(tmp_path: Path) -> None:
    assert choose_store(demand(0), tmp_path, kind="device").kind == "host"
    assert choose_store(demand(10 * MEMORY), tmp_path, kind="device", device="cuda").kind == "device"


@pytest.mark.parametrize(("kind", "needed"), [("auto", 10), ("host", 10), ("disk", 10), ("disk", 0)])
def test_disk_that_is_too_small_is_refused_with_bytes_and_folder(
    kind: str, needed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 12_300_000)
    asked = demand(12_300_000, superseded=needed)
    if not needed:
        assert choose_store(asked, tmp_path, kind=kind).kind == kind
        return
    with pytest.raises(UserError) as refused:
        choose_store(asked, tmp_path / "new", kind=kind)
    assert "12,300,010 bytes" in str(refused.value) and "12,300,000 bytes" in str(refused.value)
    assert str(tmp_path / "new") in str(refused.value)
    assert not (tmp_path / "new").exists()


def test_what_an_interrupted_run_has_on_disk_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 0)
    with pytest.raises(UserError, match="0 B free"):
        choose_store(demand(4096), tmp_path)
    for generation in "ab":
        (tmp_path / "private" / generation).mkdir(parents=True)
        (tmp_path / "private" / generation / "rows").write_bytes(b"x" * 2048)
    assert choose_store(demand(4096), tmp_path).kind == "host"


def test_models_of_all_femnist_writers_are_refused_on_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_store(LEAF_CNN, tmp_path).sentence() == (
        "private state: 26 MB x 3,550 clients, at most 94 GB, on disk with 1.0 GB of it in memory"
    )
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 93 * 10**9)
    with pytest.raises(UserError, match=r"may need 94 GB of disk \(93,720,000,000 bytes\) but .* 93 GB free"):
        choose_store(LEAF_CNN, tmp_path)


def test_estimate_is_one_line(tmp_path: Path) -> None:
    heads = Demand(1200, 100_000, 100_000, 0)
    assert choose_store(heads, tmp_path).sentence() == (
        "private state: 1.2 kB x 100,000 clients, at most 120 MB, in memory"
    )
    few = Demand(1200, 100_000, 5000, 0)
    assert choose_store(few, tmp_path).sentence() == (
        "private state: 1.2 kB x 100,000 clients, at most 6.0 MB of the 5,000 that can take part, in memory"
    )
    assert choose_store(few, tmp_path, device="cuda").sentence().endswith("take part, on cuda")
    cached = choose_store(few, tmp_path, kind="disk", cache_mb=50)
    assert cached.sentence().endswith("take part, on disk with 50 MB of it in memory")
    assert cached.cache_bytes == 50_000_000


def test_cache_is_a_share_of_small_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.free_memory", lambda: 10**9)
    assert choose_store(demand(0), tmp_path, kind="disk").cache_bytes == CACHE_SHARE * 10**9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "tape"}, "store must be one of auto, device, host, disk; got 'tape'"),
        ({"cache_mb": -1}, "store_cache"),
    ],
)
def test_wrong_options_are_refused(options: dict, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        choose_store(demand(0), tmp_path, **options)


@pytest.mark.parametrize(("kind", "storage"), [("host", MemoryStorage), ("disk", DiskStorage)])
def test_opened_store_is_of_the_kind_chosen(kind: str, storage: type, tmp_path: Path) -> None:
    placement = choose_store(Demand(64, 4, 4, 0), tmp_path, kind=kind)
    store = open_store(placement, lambda c: {"w": torch.ones(2)}, [{"w": torch.ones(2)}], tmp_path)
    assert isinstance(store._storage, storage)
    store.write({1: {"w": torch.zeros(2)}})
    assert store.rows([0, 1])[1]["w"].tolist() == [0, 0]
    assert not (tmp_path / "private").exists(), "the file is made when a row has to be written"


def test_free_space_is_looked_up_above_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "there") > 0
    assert 10**6 < free_memory() < 10**15


def test_container_with_less_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiolect.federation.store.placement.CGROUP", tmp_path)
    free = free_memory()
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() > free / 2
    (tmp_path / "memory.max").write_text("1000\n")
    assert free_memory() == 600
