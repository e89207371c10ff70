"""Private state on a site's disk: atomic, checksummed, versioned, and never lost in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.cli.deploy import restore_command
from idiolect.deploy.private_store import MERGED, TRAINED, Position, PrivateStore
from idiolect.deploy.site import Site
from idiolect.deploy.tensor_names import tree_digest
from idiolect.errors import UserError

from .conftest import Deploy

FORM = {"slots": {"head": torch.zeros(4)}}
OWNER = {"experiment": "e", "site": "s"}


def state(number: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"slots": {"head": torch.full((4,), float(number))}}


def at(round: int, step: int = TRAINED) -> Position:
    return Position(round, step)


@pytest.fixture
def store(tmp_path: Path) -> PrivateStore:
    """Four rounds, each merged before the next one began."""
    made = PrivateStore(tmp_path / "private", OWNER, [FORM])
    for round in range(4):
        made.write(at(round), state(round), at(round - 1) if round else None)
    return made


def damage(store: PrivateStore, round: int) -> None:
    path = store.folder / f"state-{round}-{TRAINED}.safetensors"
    path.write_bytes(path.read_bytes()[:-2] + b"\1\1")


def test_known_version_is_where_work_goes_on(store: PrivateStore) -> None:
    assert store.base(at(3), at(4)) == at(3)
    assert store.read(at(3))["slots"]["head"].tolist() == [3.0] * 4


def test_version_whose_upload_was_lost_is_not_gone_on_from(store: PrivateStore) -> None:
    assert store.base(at(2), at(3)) == at(2)


def test_known_version_and_backups_are_kept_and_no_more(store: PrivateStore) -> None:
    store.write(at(3, MERGED), state(3.5), at(3))
    store.write(at(4), state(4), at(3, MERGED))
    assert store.versions() == [at(2), at(3), at(3, MERGED), at(4)]


def test_first_round_is_repeated_from_a_fresh_state(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, OWNER, [FORM])
    store.write(at(0), state(0), None)
    assert store.base(None, at(0)) is None


def test_damaged_version_is_refused_and_its_backup_named(store: PrivateStore) -> None:
    damage(store, 3)
    with pytest.raises(UserError, match=r"damaged.*backup of round 3 is sound.*deploy restore"):
        store.check()
    assert store.step_back() == at(2)
    store.check()
    assert store.base(at(3), at(4)) == at(2)


def test_damaged_backup_is_passed_over(store: PrivateStore) -> None:
    damage(store, 3)
    damage(store, 2)
    with pytest.raises(UserError, match="backup of round 2 is sound"):
        store.check()
    assert store.step_back() == at(1)


def test_state_that_the_server_knows_and_the_disk_does_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="private state of round 8 is not in"):
        PrivateStore(tmp_path, OWNER, [FORM]).base(at(7), at(8))


def test_server_that_starts_again_cannot_overwrite_later_state(store: PrivateStore) -> None:
    with pytest.raises(
        UserError, match="holds private state of round 4 and the server starts again at round 1"
    ):
        store.base(None, at(0))


def test_state_is_given_up_only_on_purpose(store: PrivateStore) -> None:
    store.start_afresh()
    assert store.base(at(3), at(4)) is None
    store.write(at(4), state(4), at(3))
    assert store.base(at(4), at(5)) == at(4)


def test_state_of_another_site_is_refused(store: PrivateStore) -> None:
    other = PrivateStore(store.folder, {"experiment": "e", "site": "other"}, [FORM])
    with pytest.raises(UserError, match="is of"):
        other.read(at(3))


def test_message_is_accepted_once(store: PrivateStore) -> None:
    store.accept([5, 2])
    for serial in ([5, 2], [5, 1], [4, 9]):
        with pytest.raises(UserError, match="repetition"):
            store.accept(serial)
    store.accept([6, 1])


def trained(site: Site) -> None:
    """Leaves private state at a site as a round of training does."""
    site.store.write(at(0), site.setting.first_private(site.client), None)


def modes(folder: Path) -> set[int]:
    """What others than the owner may do with a folder and all below it."""
    return {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}


def test_digest_is_the_same_tomorrow_and_means_nothing_elsewhere(store: PrivateStore, tmp_path: Path) -> None:
    digest = store.digest(state(3))
    assert PrivateStore(store.folder, OWNER, [FORM]).digest(state(3)) == digest
    assert store.digest(state(4)) != digest
    assert PrivateStore(tmp_path / "other", OWNER, [FORM]).digest(state(3)) != digest
    (store.folder / "secret").write_bytes(b"")  # damaged: a new one, not none
    assert store.digest(state(3)) != tree_digest(state(3), b"")


def test_state_is_for_its_owner_alone(store: PrivateStore) -> None:
    store.digest(state(3))
    store.accept([1, 1])
    assert modes(store.folder) == {0}


def test_folder_that_was_moved_is_for_its_owner_alone_again(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy()
    folder = tmp_path / "moved"
    assert modes(deployment.site_folder(deployment.sites[0])) == {0}
    shutil.copytree(deployment.site_folder(deployment.sites[0]), folder)
    outside = tmp_path / "outside"
    outside.write_text("mine to share")
    (folder / "link").symlink_to(outside)
    trained(Site.open(folder))
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)
    Site.open(folder)
    (folder / "link").unlink()
    assert modes(folder) == {0}
    assert outside.stat().st_mode & 0o055


def test_restored_state_is_for_its_owner_alone(deploy: Deploy) -> None:
    folder = (made := deploy()).site_folder(made.sites[0])
    trained(Site.open(folder))
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)
    restore_command(folder, fresh=True)
    assert modes(folder / "private") == {0}
