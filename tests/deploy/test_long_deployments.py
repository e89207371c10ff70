"""Real deployments, long: parity of six methods, a killed server, intruders, and what is on the wire."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import Deployment, read_site, write_site
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.keys import write_certificates, write_key_pair
from idiolect.deploy.private_store import PrivateStore
from idiolect.deploy.processes import deployment_processes
from idiolect.deploy.rollback import roll_back
from idiolect.deploy.site import Site
from idiolect.deploy.status import status
from idiolect.deploy.tensor_names import flatten
from idiolect.errors import UserError
from idiolect.records import find_checkpoint

from .capture import Tap
from .conftest import PERSFL, Deploy
from .played import assert_parity, folder_of
from .real import PATIENCE, idiolect, is_at, kill, site_says, start_run, up, wait_for

pytestmark = pytest.mark.slow

OPTIONS = DeploymentOptions(wait=PATIENCE, grace=PATIENCE, deadline=PATIENCE, min_sites=3)


def finish(deployment: Deployment) -> None:
    done = idiolect("deploy", "run", deployment.folder)
    assert done.returncode == 0, done.stderr
    assert idiolect("deploy", "down", deployment.folder).returncode == 0
    assert deployment_processes(deployment.folder) == {}


@pytest.mark.parametrize("method", ["fedper", "map", "scamap", PERSFL, "superfed_mm", "ditto"])
def test_five_rounds_over_the_network_equal_five_of_a_simulation(deploy: Deploy, method: str) -> None:
    deployment = deploy(OPTIONS, method=method, rounds=5)
    up(deployment)
    finish(deployment)
    assert_parity(deployment)


def test_killed_server_goes_on_after_the_last_complete_round(deploy: Deploy) -> None:
    deployment = deploy(OPTIONS, method="map", rounds=4, local_epochs=150)
    up(deployment)
    with start_run(deployment) as run:
        wait_for(is_at(deployment, 2), "two rounds")
        wait_for(site_says(deployment, 0, "train, round 3"), "the third round")
        loop = next(
            process
            for process, command in deployment_processes(deployment.folder).items()
            if "flwr-serverapp" in command
        )
        kill(deployment, "server")
        wait_for(lambda: loop not in deployment_processes(deployment.folder), "the end of the server's loop")
        _, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 2 and "go on with idiolect deploy run" in err
    found = find_checkpoint(folder_of(deployment, done=False))
    assert found is not None and found[0] == 2
    up(deployment)
    finish(deployment)
    assert_parity(deployment)
    assert (deployment.site_folder(deployment.sites[0]) / "site.log").read_text().count("train, round 3") == 2
    assert (deployment.site_folder(deployment.sites[0]) / "site.log").read_text().count("train, round 2") == 1


def test_kills_of_sites_and_of_the_server_change_no_number(deploy: Deploy) -> None:
    deployment = deploy(OPTIONS, method="map", rounds=4, local_epochs=150)
    up(deployment)
    with start_run(deployment) as run:
        wait_for(site_says(deployment, 1, "train, round 2"), "the second round")
        kill(deployment, "site-1")
        up(deployment)
        wait_for(site_says(deployment, 0, "train, round 3"), "the third round")
        kill(deployment, "site-0")
        kill(deployment, "server")
        _, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 2 and "go on with idiolect deploy run" in err
    up(deployment)
    with start_run(deployment) as run:
        wait_for(site_says(deployment, 2, "train, round 4"), "the fourth round")
        kill(deployment, "site-2")
        up(deployment)
        _, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert idiolect("deploy", "down", deployment.folder).returncode == 0
    assert deployment_processes(deployment.folder) == {}
    assert_parity(deployment)


def test_server_and_sites_go_back_and_end_like_a_run_that_never_did(deploy: Deploy) -> None:
    deployment = deploy(OPTIONS, method="map", rounds=4, local_epochs=50)
    up(deployment)
    with start_run(deployment) as run:
        wait_for(is_at(deployment, 3), "three rounds")
        with pytest.raises(
            UserError, match="the run is on its way"
        ):  # in this process: a command takes a round
            roll_back(deployment, 1, print)
        assert idiolect("deploy", "down", deployment.folder).returncode == 0
        run.communicate(timeout=PATIENCE)
    done = idiolect("deploy", "rollback", deployment.folder, "--to", 1)
    assert done.returncode == 0 and "The server stands after round 1" in done.stdout, done.stderr
    assert status(deployment)["round"] == 1
    up(deployment)
    finish(deployment)
    log = (deployment.site_folder(deployment.sites[0]) / "site.log").read_text()
    assert log.count("goes back with the server: private state from round 2 on is put aside") == 1
    assert_parity(deployment)


def test_site_without_a_registered_key_and_wrong_certificate_are_refused(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(replace(OPTIONS, min_sites=1, wait=30, grace=3), rounds=1)
    up(deployment, 1)
    unregistered, mistrustful = (deployment.site_folder(member) for member in deployment.sites[1:])
    write_key_pair(unregistered)
    write_certificates(tmp_path / "other", ["127.0.0.1"])
    shutil.copyfile(tmp_path / "other" / "ca.crt", mistrustful / "ca.crt")
    for folder, sentence in (
        (unregistered, "the site's key is not registered with the server"),
        (mistrustful, "the server's certificate is not signed by the authority in ca.crt"),
    ):
        done = idiolect("deploy", "site", folder)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert deployment_processes(folder) == {}
    finish(deployment)
    assert set(status(deployment)["sites"]["site-0"]) >= {"round"}
    assert "round" not in status(deployment)["sites"]["site-1"]


def test_wire_of_a_whole_run_holds_no_private_tensor(deploy: Deploy) -> None:
    """A plain run through a tap: shared tensors are found in it, private ones are not, at no round."""
    deployment = deploy(replace(OPTIONS, plain=True), rounds=3, evaluate_every=1)
    private: dict[bytes, str] = {}
    stores = {m.name: Site.open(deployment.site_folder(m)).store for m in deployment.sites}
    with Tap(int(deployment.address.rpartition(":")[2])) as tap:
        for member in deployment.sites:
            config = read_site(deployment.site_folder(member))
            write_site(replace(config, address=f"127.0.0.1:{tap.port}"))
        up(deployment)
        with start_run(deployment) as run:
            while run.poll() is None:
                private |= held(stores)
                time.sleep(0.2)
            _, err = run.communicate()
        assert run.returncode == 0, err
        private |= held(stores)
        assert idiolect("deploy", "down", deployment.folder).returncode == 0
    wire = tap.recorded()
    found = find_checkpoint(folder_of(deployment))
    assert found is not None
    rounds = {name.split()[0] for name in private.values()}
    assert rounds == {"0", "1", "2"}
    body = initial_body(deployment)
    assert body and all(content in wire for content in body)
    assert [name for content, name in private.items() if content in wire] == []


def held(stores: dict[str, PrivateStore]) -> dict[bytes, str]:
    """The bytes of the sites' private tensors as they are on disk now, and halves of them; a file may just go."""
    found: dict[bytes, str] = {}
    for site, store in stores.items():
        for version in store.versions():
            try:
                tree = store.read(version)
            except UserError:
                continue
            for name, tensor in flatten(tree).items():
                content = tensor.contiguous().numpy().tobytes()
                half = len(content) // 2
                for piece in (content, content[:half], content[half:]):
                    if len(piece) >= 16 and any(piece):
                        found[piece] = f"{version.round} {site} {name}"
    return found


def initial_body(deployment: Deployment) -> list[bytes]:
    """What the server sends first."""
    site = Site.open(deployment.site_folder(deployment.sites[0]))
    shared = site.setting.first_server()["params"]
    return [tensor.contiguous().numpy().tobytes() for tensor in shared.values() if tensor.any()]
