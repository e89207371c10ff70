"""Every store gives back what was written, bit for bit, and what the last checkpoint knew."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from idiolect.core.trees import Rows, stack
from idiolect.errors import UserError
from idiolect.federation.store import ByClient, Store
from idiolect.federation.store.cache import CachedRow
from idiolect.federation.store.prefetch import RowPrefetcher
from idiolect.federation.store.row_file import RowFile

from .conftest import KINDS, POPULATION, Make, assert_same, ended_tree, tree_of


def checkpoint(store: Store) -> dict[str, torch.Tensor]:
    mark = store.save()
    store.saved()
    return mark


# ---- rows


def test_row_of_numbers_taken_out_of_a_matrix_is_written(store: Store) -> None:
    """They keep the stride of its rows, and a single one passes for contiguous all the same."""
    table = torch.arange(12.0, dtype=torch.float64).reshape(2, 6)
    for clients in ([7], [7, 9]):
        together = stack([tree_of(client, 1) for client in clients])
        together["slots"]["scalar"] = table[: len(clients), 4]
        store.write(ByClient(clients, Rows(together, len(clients))))
        found = store.rows(clients)
        assert [found[client]["slots"]["scalar"].item() for client in clients] == [4, 10][: len(clients)]


def test_client_is_created_when_it_is_asked_for_and_not_kept(make: Make, kind: str) -> None:
    asked: list[int] = []
    store = make(kind, lambda client: asked.append(client) or tree_of(client))
    rows = store.rows([5, 2])
    assert list(rows) == [5, 2] and asked == [5, 2] and len(store) == 0
    assert_same(rows[5], tree_of(5))
    store.write({2: tree_of(2, 1)})
    assert len(store) == 1
    assert_same(store.rows([2])[2], tree_of(2, 1))
    assert asked == [5, 2]


def test_rows_come_back_bit_for_bit_in_the_order_asked_for(store: Store) -> None:
    written = {client: tree_of(client, 1) for client in (3, 0, 17, 39)}
    store.write(written)
    store.write({17: tree_of(17, 2)})
    found = store.rows([39, 4, 17, 3, 0])
    assert list(found) == [39, 4, 17, 3, 0]
    for client, version in ((39, 1), (4, 0), (17, 2), (3, 1), (0, 1)):
        assert_same(found[client], tree_of(client, version))


def test_trees_that_lie_stacked_are_written_and_read_as_they_lie(store: Store) -> None:
    clients = [7, 2, 30]
    together = Rows(stack([tree_of(client, 3) for client in clients]), 3)
    store.write(ByClient(clients, together))
    found = store.together([2, 30, 7])
    assert isinstance(found.values(), Rows) and list(found) == [2, 30, 7]
    for client in clients:
        assert_same(found[client], tree_of(client, 3))
    assert_same(stack(found.values()), stack([tree_of(client, 3) for client in (2, 30, 7)]))


def test_tensors_are_aligned_as_torchs_own_and_contiguous(store: Store) -> None:
    turned = {"w": torch.arange(35.0).reshape(7, 5).T}
    base = tree_of(1)
    base["slots"]["head"]["weight"] = turned["w"]
    store.write({1: base, 2: tree_of(2)})
    for tree in store.rows([1, 2]).values():
        for leaf in torch.utils._pytree.tree_leaves(tree):
            assert leaf.is_contiguous() and leaf.data_ptr() % 64 == 0
    assert_same(store.rows([1])[1], base)


def test_what_was_given_out_is_a_copy(store: Store) -> None:
    mine = tree_of(1, 1)
    store.write({1: mine})
    mine["slots"]["head"]["weight"].zero_()
    store.rows([1])[1]["slots"]["head"]["weight"].zero_()
    assert_same(store.rows([1])[1], tree_of(1, 1))


def test_gradients_are_left_behind(store: Store) -> None:
    tree = tree_of(1)
    tree["slots"]["head"]["weight"].requires_grad_()
    store.write({1: tree})
    assert not store.rows([1])[1]["slots"]["head"]["weight"].requires_grad


def test_shapes_of_the_end_stand_beside_the_first(store: Store) -> None:
    store.write({c: tree_of(c, 1) for c in range(6)})
    store.write({c: ended_tree(c) for c in (1, 4)})
    found = store.rows(range(6))
    for client in range(6):
        assert_same(found[client], ended_tree(client) if client in (1, 4) else tree_of(client, 1))
    store.write({0: tree_of(0), 1: ended_tree(1), 2: tree_of(2)})
    assert_same(store.rows([1])[1], ended_tree(1))


@pytest.mark.parametrize("change", ["shape", "dtype", "name"])
def test_shape_that_nobody_declared_is_refused(store: Store, change: str) -> None:
    tree = tree_of(0)
    head = tree["slots"]["head"]
    if change == "name":
        head["other"] = head.pop("bias")
    else:
        head["bias"] = torch.zeros(4) if change == "shape" else head["bias"].double()
    with pytest.raises(TypeError, match="no part declared"):
        store.write({0: tree})


@pytest.mark.parametrize("empty", [{}, {"buffers": {}, "slots": {"average": {}}}])
def test_private_state_of_nothing_works(empty: dict) -> None:
    store = Store.in_memory(lambda client: empty, 5, [empty])
    store.write({1: empty, 3: empty})
    assert len(store) == 2 and store.rows([1, 2]) == {1: empty, 2: empty}


def test_store_without_a_folder_cannot_be_saved() -> None:
    store = Store.in_memory(tree_of, 5, [tree_of(0)])
    with pytest.raises(RuntimeError, match="without a folder"):
        store.save()


# ---- checkpoints


def test_checkpoint_is_read_by_every_other_store(make: Make, kind: str) -> None:
    store = make(kind)
    store.write({c: tree_of(c, 1) for c in range(0, 40, 3)})
    store.write({3: ended_tree(3)})
    mark = checkpoint(store)
    store.close()
    for other_kind in KINDS:
        other = make(other_kind, lambda client: pytest.fail(f"client {client} was kept"))
        if other_kind == "host":
            other.write({1: tree_of(1)})
        other.restore(mark)
        assert len(other) == 14
        for client, tree in other.rows(range(0, 40, 3)).items():
            assert_same(tree, ended_tree(3) if client == 3 else tree_of(client, 1))
        other.close()


def test_either_of_the_last_two_checkpoints_can_be_gone_back_to(make: Make, kind: str) -> None:
    """Six checkpoints with other clients written in between, rows written after the last, and nobody closes."""
    store = make(kind)
    known: list[tuple[dict[str, torch.Tensor], dict[int, int]]] = []
    versions: dict[int, int] = {}
    for version in range(1, 7):
        for client in ((7 * version + 3 * i) % POPULATION for i in range(12)):
            store.write({client: tree_of(client, version)})
            versions[client] = version
        known.append((checkpoint(store), dict(versions)))
        for mark, then in known[-2:]:
            store_then = make("disk 0")
            store_then.restore(mark)
            for client, tree in store_then.rows(range(POPULATION)).items():
                assert_same(tree, tree_of(client, then.get(client, 0)))
            store_then.close()
    store.write({c: tree_of(c, 9) for c in range(0, POPULATION, 2)})
    store.save()  # the process dies before the checkpoint itself is written
    for mark, then in reversed(known[-2:]):
        again = make(kind)
        again.restore(mark)
        for client, tree in again.rows(range(POPULATION)).items():
            assert_same(tree, tree_of(client, then.get(client, 0)))
        again.write({c: tree_of(c, 8) for c in range(POPULATION)})
        again.save()  # and the next one dies at the same point, which leaves the older checkpoint whole


def test_run_that_goes_on_from_an_older_checkpoint_forgets_the_future(make: Make, kind: str) -> None:
    store = make(kind)
    store.write({c: tree_of(c, 1) for c in range(10)})
    mark = checkpoint(store)
    store.write({c: tree_of(c, 2) for c in range(5, 15)})
    checkpoint(store)
    store.close()
    again = make(kind)
    again.restore(mark)
    assert len(again) == 10
    again.write({c: tree_of(c, 3) for c in (0, 20)})
    last = checkpoint(again)
    again.close()
    final = make(kind)
    final.restore(last)
    assert len(final) == 11
    for client in range(POPULATION):
        version = 3 if client in (0, 20) else int(client < 10)
        assert_same(final.rows([client])[client], tree_of(client, version))


def test_file_does_not_grow_with_checkpoints(make: Make, kind: str, tmp_path: Path) -> None:
    store = make(kind)
    sizes = []
    for version in range(20):
        store.write({c: tree_of(c, version) for c in range(10)})
        row_bytes = int(checkpoint(store)["row_bytes"])
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("private/*/rows")))
    assert sizes[3] == sizes[-1] <= 2 * 2 * 10 * row_bytes


def test_checkpoint_writes_only_what_changed_since_the_last_but_one(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    original = RowFile.write
    monkeypatch.setattr(
        RowFile, "write", lambda self, c, row, k: written.append(c) or original(self, c, row, k)
    )
    store = make(kind)
    store.write({c: tree_of(c, 1) for c in range(30)})
    checkpoint(store)
    for changed, expected in (([], range(30)), ([], []), ([4, 2], [2, 4]), ([9], [2, 4, 9]), ([], [9])):
        written.clear()
        store.rows(range(30))
        store.write({client: tree_of(client, 2) for client in changed})
        checkpoint(store)
        assert sorted(written) == list(expected)


def test_damaged_row_is_named_with_its_client(make: Make, kind: str, tmp_path: Path) -> None:
    store = make(kind)
    store.write({c: tree_of(c, 1) for c in range(3)})
    mark = checkpoint(store)
    store.close()
    rows = tmp_path / "private" / "a" / "rows"
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 1
    rows.write_bytes(content)
    again = make(kind)

    def look() -> None:
        again.restore(mark)
        again.rows(range(3))

    with pytest.raises(UserError, match="rows is damaged: the row of client 1"):
        look()


@pytest.mark.parametrize("damage", ["altered", "truncated", "missing"])
def test_damaged_index_is_refused(make: Make, damage: str, tmp_path: Path) -> None:
    store = make("host")
    store.write({c: tree_of(c, 1) for c in range(3)})
    mark = checkpoint(store)
    index = tmp_path / "private" / "a" / "index"
    content = bytearray(index.read_bytes())
    content[4] ^= 1
    if damage == "missing":
        index.unlink()
    else:
        index.write_bytes(content if damage == "altered" else index.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"index (is damaged|cannot be read)"):
        make("host").restore(mark)


def test_state_of_another_shape_is_refused(make: Make) -> None:
    store = make("host")
    store.write({0: tree_of(0)})
    mark = checkpoint(store)
    with pytest.raises(UserError, match="another shape"):
        make("disk 0").restore({**mark, "row_bytes": mark["row_bytes"] + 64})
    with pytest.raises(UserError, match="another shape"):
        make("disk 0").restore({"0": {"w": torch.zeros(1)}})


def test_full_disk_is_a_sentence(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    store = make("disk 0")
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(UserError, match=r"cannot write private state to .*No space left.*--resume"):
        store.write({0: tree_of(0)})


# ---- reading ahead


def test_prefetched_rows_are_not_read_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make("disk 0")
    store.write({c: tree_of(c, 1) for c in range(6)})
    where: list[tuple[int, bool]] = []
    original = RowFile.read

    def read(self: RowFile, client: int, row: torch.Tensor) -> int:
        where.append((client, threading.current_thread() is threading.main_thread()))
        return original(self, client, row)

    monkeypatch.setattr(RowFile, "read", read)
    store.prefetch([1, 3, 30])
    found = store.rows([1, 2, 3, 30])
    for client in (1, 2, 3):
        assert_same(found[client], tree_of(client, 1))
    assert sorted(where) == [(1, False), (2, True), (3, False)]


def test_row_written_after_it_was_prefetched_is_the_new_one(make: Make) -> None:
    for cache in (0, 5000, 1_000_000):
        store = make(f"disk {cache}")
        store.write({c: tree_of(c, 1) for c in range(20)})
        store.prefetch(range(8))
        store.write({c: tree_of(c, 2) for c in (2, 5)})
        store.write({c: tree_of(c, 2) for c in range(10, 20)})
        found = store.rows(range(8))
        for client in range(8):
            assert_same(found[client], tree_of(client, 2 if client in (2, 5) else 1))
        store.close()


def test_reading_goes_on_while_others_work() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def read(client: int, memory: torch.Tensor) -> CachedRow:
        begun.set()
        assert may_end.wait(10)
        return CachedRow(memory, client + 100)

    prefetcher = RowPrefetcher(read, 8)
    prefetcher.start([1, 2])
    assert begun.wait(10)  # start came back, and the reading is on its way
    prefetcher.forget(1)
    may_end.set()
    row = prefetcher.take(2)
    assert row is not None and row.layout == 102 and len(row.content) == 8
    assert prefetcher.take(1) is None and prefetcher.take(2) is None
    prefetcher.stop()


def test_reading_that_fails_ahead_fails_for_whoever_needs_it(make: Make, tmp_path: Path) -> None:
    store = make("disk 0")
    store.write({c: tree_of(c, 1) for c in range(3)})
    (tmp_path / "private" / "a" / "rows").write_bytes(b"")
    store.prefetch([0, 1])
    with pytest.raises(UserError, match="the row of client 1"):
        store.rows([1])
