"""What is refused with secure aggregation, by name, and the commands around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.cli.commands import app
from idiolect.deploy.configuration import read_plan, read_site, write_site
from idiolect.deploy.create_deployment import DeploymentOptions, add_site
from idiolect.deploy.site import Site
from idiolect.deploy.site_requests import SiteConnection
from idiolect.errors import UserError

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import grid_of, play

SUMS = DeploymentOptions(plain=True, wait=0.3, grace=0.2, deadline=5, secure_aggregation=True)
ALONE = "secure aggregation shows the server sums alone, and"


@pytest.mark.parametrize(
    ("options", "settings", "sentence"),
    [
        (
            {},
            {"method": "fedavg + median"},
            f"{ALONE} median of .* looks at every upload before there is a mean",
        ),
        ({}, {"method": "ditto + krum(share=0.34)"}, f"{ALONE} krum of .* looks at every upload"),
        ({}, {"method": "fedavg + norm_bound(bound=1.0)"}, f"{ALONE} norm_bound of .* looks at every upload"),
        (
            {},
            {"method": "fedfomo"},
            f"{ALONE} .* of fedfomo makes what it sends to a site from single uploads",
        ),
        ({}, {"method": "fedamp"}, f"{ALONE} .* of fedamp makes what it sends to a site from single uploads"),
        ({}, {"method": "fedpac"}, f"{ALONE} .* of fedpac "),
        ({}, {"method": "fedgh"}, f"{ALONE} .* of fedgh reads single uploads beside their mean"),
        ({}, {"selection": "poisson"}, "selection=poisson draws rounds of any size; set selection to fixed"),
        ({}, {"participation_rate": 0.4}, "at least 2 sites, and a round of this deployment selects 1"),
        ({"secure_threshold": 1}, {}, r"secure_threshold must be in \[2, 3\], got 1"),
        ({"secure_threshold": 4}, {}, r"secure_threshold must be in \[2, 3\], got 4"),
        ({"min_sites": 2}, {}, "min_sites is 2, and secure aggregation adds up at least 3 sites"),
        ({"secure_aggregation": False, "secure_threshold": 3}, {}, "give --secure-aggregation too"),
    ],
)
def test_refused_when_the_deployment_is_made(
    deploy: Deploy, tmp_path: Path, options: dict[str, Any], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        deploy(replace(SUMS, **options), **settings)
    assert not list(tmp_path.iterdir())


def test_rules_are_what_server_and_sites_agree_on(deploy: Deploy) -> None:
    """A server that leaves secure aggregation out asks for another experiment than the sites know."""
    summed, plain = deploy(replace(SUMS, deadline=4)), deploy(replace(SUMS, secure_aggregation=False))
    lower = deploy(replace(SUMS, secure_threshold=2))
    assert len({read_plan(one.server).identity for one in (summed, plain, lower)}) == 3
    assert read_plan(summed.site_folder(summed.sites[0])).sums == read_plan(summed.server).sums
    grid = grid_of(summed)
    (summed.server / "experiment.json").write_bytes((plain.server / "experiment.json").read_bytes())
    assert "site-0 knows the experiment" in str(play(summed, grid)["events"])
    assert not any(
        message.body for message in grid.log if b'"kind"' not in message.header and len(message.body) > 16
    )


def test_site_that_does_not_know_the_key_of_another_says_so(deploy: Deploy) -> None:
    deployment = deploy(replace(SUMS, deadline=4))
    (deployment.site_folder(deployment.sites[0]) / "peers" / "site-2.pub").unlink()
    found = play(deployment)
    assert found["status"] == "stopped"
    assert (
        "site-0 does not know the key of 'site-2'; give it site-2.pub with idiolect deploy"
        in found["message"]
    )


def test_server_that_sends_sites_different_models_gets_no_sum(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From zeros no layer but the last bias learns anything, so that the sum would tell the upload of site-0."""
    deployment = deploy(replace(SUMS, deadline=60), rounds=1)
    whole = SiteConnection.request

    def lying(self: Any, headers: Any, tensors: Any, *others: Any, **more: Any) -> Any:
        zeros = {
            name: each if name == "site-0" else {key: 0 * leaf for key, leaf in each.items()}
            for name, each in tensors.items()
        }
        return whole(self, headers, zeros, *others, **more)

    monkeypatch.setattr(SiteConnection, "request", lying)
    found = play(deployment)
    assert found["status"] == "stopped"
    assert "as those of site-0 are not signed by site-0 for this sum and the same model" in found["message"]


def test_new_key_is_made_known_to_the_server_and_the_other_sites(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(replace(SUMS, deadline=4), rounds=1)
    folders = [deployment.site_folder(site) for site in deployment.sites]
    run = CliRunner().invoke
    assert run(app, ["deploy", "key", str(folders[2])]).exit_code == 0
    assert "does not carry the signature of site-2" in str(play(deployment)["events"])
    new = str(folders[2] / "key.pub")
    moved = folders[0].rename(tmp_path / "elsewhere")
    assert run(app, ["deploy", "register", str(deployment.folder), "site-2", new]).exit_code == 0
    assert (folders[1] / "peers" / "site-2.pub").read_bytes() == Path(new).read_bytes()
    grid = FakeGrid({100 + number: Site.open(folder) for number, folder in enumerate([moved, *folders[1:]])})
    assert (
        "the keys that the server gives as those of site-2 are not signed by site-2 for this sum and the same model"
        in play(deployment, grid)["message"]
    )
    assert run(app, ["deploy", "register", str(moved), "site-2", new]).exit_code == 0
    assert play(deployment, grid)["status"] == "finished"
    refused = run(app, ["deploy", "register", str(moved), "site-9", new])
    assert "site-0 adds up with no site 'site-9'; it knows site-1, site-2" in str(refused.exception)
    refused = run(app, ["deploy", "register", str(moved), "site-1", new])
    assert "key.pub is the key of site-2 already" in str(refused.exception)


def test_register_in_a_folder_without_secure_aggregation_is_refused(deploy: Deploy) -> None:
    deployment = deploy()
    folder = deployment.site_folder(deployment.sites[0])
    found = CliRunner().invoke(app, ["deploy", "register", str(folder), "site-1", str(folder / "key.pub")])
    assert "has no secure aggregation" in str(found.exception)


def test_share_scores_belongs_to_secure_aggregation(deploy: Deploy) -> None:
    deployment = deploy()
    folder = deployment.site_folder(deployment.sites[0])
    write_site(replace(read_site(folder), share_scores=False))
    with pytest.raises(UserError, match=r"share_scores in .* is for secure aggregation"):
        Site.open(folder)


def test_site_with_more_rows_than_the_rules_allow_is_left_out_by_name(deploy: Deploy) -> None:
    """W is the next power of two after the rows that the server knows of; nobody weighs more in secret."""
    deployment = deploy(replace(SUMS, deadline=60), weighting="samples")
    from idiolect.deploy import summed_answers  # noqa: PLC0415

    whole = summed_answers._most
    try:
        summed_answers._most = lambda method, rules, part: whole(method, rules, part) / 8
        found = play(deployment)
    finally:
        summed_answers._most = whole
    assert (
        "the weight of average is 24, and this deployment adds up weights above 0 and up to 8"
        in found["message"]
    )


def test_added_site_takes_no_part_in_sums(deploy: Deploy) -> None:
    deployment = deploy(SUMS)
    larger = add_site(deployment, read_plan(deployment.server), "late")
    assert not list((larger.site_folder(larger.sites[-1]) / "peers").iterdir())
    assert not (larger.site_folder(larger.sites[0]) / "peers" / "late.pub").exists()


def test_init_on_the_command_line(tmp_path: Path) -> None:
    words = ["deploy", "init", str(tmp_path / "new"), "--method", "fedper", "--secure-aggregation"]
    data = ["--dataset", "synthetic(n_clients=3, samples_per_client=40, n_features=8, n_classes=3)"]
    scene = ["--partition", "by_id", "--model", "mlpnet(hidden=8)", "--plain"]
    found = CliRunner().invoke(app, [*words, *data, *scene])
    assert found.exit_code == 0, found.output
    assert "With secure aggregation: the server sees sums of at least 3 sites" in " ".join(
        found.output.split()
    )
    assert "share_scores = false" in (tmp_path / "new" / "sites" / "site-0" / "site.toml").read_text()
