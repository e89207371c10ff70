"""`idiolect deploy` as a user calls it, without a server."""

from __future__ import annotations

import errno
import json
import os
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from .conftest import DATA

INIT = (
    "--dataset",
    DATA,
    "--partition",
    "by_id",
    "--sites",
    "4",
    "--model",
    "mlpnet(hidden=8)",
    "--rounds",
    "2",
)


def test_init_writes_a_flower_app_and_a_folder_for_each_site(idiolect, tmp_path: Path) -> None:
    answer = idiolect("deploy", "init", "work", "--method", "map", *INIT)
    assert answer.code == 0
    assert "4 sites and a server for map" in answer.out
    work = tmp_path / "work"
    assert (work / "app" / "pyproject.toml").is_file()
    for site in range(4):
        held = {path.name for path in (work / "sites" / f"site-{site}").iterdir()}
        assert held == {"site.toml", "experiment.json", "key", "key.pub", "server.pub", "ca.crt", "data"}
    assert (work / "sites" / "site-0" / "key").stat().st_mode & 0o077 == 0
    assert work.stat().st_mode & 0o077 == 0


def test_status_before_the_start(idiolect) -> None:
    idiolect("deploy", "init", "work", *INIT)
    found = json.loads(idiolect("deploy", "status", "work", "--json").out)
    assert found["status"] == "not started" and not found["server_runs_here"]
    assert "nothing was running" in idiolect("deploy", "down", "work").out


def test_run_without_a_server_is_refused_at_once(idiolect, refused) -> None:
    idiolect("deploy", "init", "work", *INIT, "--address", "127.0.0.1:1")
    refused(idiolect("deploy", "run", "work"), "no server answers at", "start it with idiolect deploy up")


def test_single_site_needs_one_answer(idiolect) -> None:
    one = ("--partition", "iid", "--model", "mlpnet(hidden=8)", "--sites", "1", "--rounds", "2")
    answer = idiolect("deploy", "init", "work", "--dataset", DATA, *one)
    assert answer.code == 0, answer.err


def test_method_that_looks_at_single_uploads_says_so_before_it_starts(idiolect) -> None:
    scene = ("--partition", "iid", "--set", "public=20")
    answer = idiolect("deploy", "init", "work", "--method", "feddf", *scene)
    assert answer.code == 0
    assert "feddf looks at each site's upload by itself" in answer.out.replace("FedDF", "feddf")


def test_added_site_gets_a_folder_and_a_key(idiolect, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT)
    assert "data.npz" in idiolect("deploy", "add", "work", "late").out
    assert (tmp_path / "work" / "server" / "sites" / "late.pub").is_file()


def test_new_key_is_registered(idiolect, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT)
    site = tmp_path / "work" / "sites" / "site-1"
    before = (site / "key.pub").read_text()
    assert "deploy register" in idiolect("deploy", "key", site).out
    assert idiolect("deploy", "register", "work", "site-1", site / "key.pub").code == 0
    known = (tmp_path / "work" / "server" / "sites" / "site-1.pub").read_text()
    assert known == (site / "key.pub").read_text() != before


def test_key_of_another_site_is_not_registered(idiolect, refused, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT)
    known = tmp_path / "work" / "server" / "sites" / "site-1.pub"
    before, other = known.read_bytes(), tmp_path / "work" / "sites" / "site-0" / "key.pub"
    refused(
        idiolect("deploy", "register", "work", "site-1", other),
        "key.pub is the key of site-0 already; make one",
    )
    assert known.read_bytes() == before
    assert (
        idiolect("deploy", "register", "work", "site-1", shutil.copy(known, tmp_path / "same.pub")).code == 0
    )


def test_commands_are_in_the_audit_log_with_the_account_that_gave_them(
    idiolect, refused, tmp_path: Path
) -> None:
    idiolect("deploy", "init", "work", *INIT)
    idiolect("deploy", "down", "work")
    idiolect("deploy", "status", "work")
    refused(idiolect("deploy", "register", "work", "nobody", "key.pub"), "there is no site nobody")
    noted = [json.loads(line) for line in idiolect("deploy", "log", "work", "--json").out.splitlines()]
    assert [line["command"] for line in noted] == ["init", "down", "register"]
    assert all(line["user"] == os.getuid() for line in noted)
    assert noted[0]["options"]["sites"] == 4 and noted[2]["options"]["site"] == "nobody"


def test_audit_log_holds_all_that_was_given_to_a_command(idiolect, tmp_path: Path) -> None:
    """Also of a command that is then refused."""
    idiolect("deploy", "init", "work", *INIT)
    site = tmp_path / "work" / "sites" / "site-2"
    given = [
        (("rollback", "work", "--to", 0), {"to": 0}),
        (("exclude", "work", "site-2"), {"site": "site-2"}),
        (("exclude", "work", "folder"), {"site": "folder"}),
        (("include", "work", "site-2"), {"site": "site-2"}),
        (("restore", site), {}),
        (("restore", site, "--fresh"), {"fresh": True}),
    ]
    for words, _ in given:
        idiolect("deploy", *words)
    noted = [
        json.loads(line)
        for folder in ("work", site)
        for line in idiolect("deploy", "log", folder, "--json").out.splitlines()
    ]
    assert [(line["command"], line["options"]) for line in noted[1:]] == [
        (str(words[0]), options) for words, options in given
    ]


def test_down_works_where_nothing_can_be_written(idiolect, monkeypatch: pytest.MonkeyPatch) -> None:
    from idiolect.deploy.audit import AuditLog  # noqa: PLC0415 - needs the extra

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    idiolect("deploy", "init", "work", *INIT)
    monkeypatch.setattr(AuditLog, "append", full)
    answer = idiolect("deploy", "down", "work")
    assert answer.code == 0 and "nothing was running" in answer.out
    assert "audit.jsonl cannot be written (No space left on device); down goes on" in answer.err
    assert idiolect("deploy", "exclude", "work", "site-2").code == 2, "only the end of all must work"


def test_audit_log_is_shown_safely_and_a_changed_one_is_refused(idiolect, refused, tmp_path: Path) -> None:
    from idiolect.deploy.audit import AuditLog  # noqa: PLC0415 - needs the extra

    idiolect("deploy", "init", "work", *INIT)
    log = AuditLog(tmp_path / "work" / "server")
    log.append("site", {"site": "site-0", "what": "\x1b[2J is connected"})
    shown = idiolect("deploy", "log", "work")
    assert shown.code == 0 and "site=site-0 what=?[2J is connected" in shown.out
    log.path.write_text(log.path.read_text().replace('"init"', '"down"'))
    changed = idiolect("deploy", "log", "work")
    assert "command=down" in changed.out
    assert changed.code == 2 and "line 2" in changed.err and "the log was changed" in changed.err
    refused(idiolect("deploy", "log", tmp_path), "the folder of neither a deployment nor a site")


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (("init", "work", "--method", "nothing"), ("unknown method 'nothing'",)),
        (
            ("init", "work", "--plain", "--address", "10.0.0.1:9"),
            ("plain connections are for trials on loopback",),
        ),
        (("init", "work", "--code", "missing.py"), ("there is no file missing.py",)),
        (("init", "work", "--min-sites", "9"), ("min_sites",)),
        (("up", "missing"), ("there is no missing/deployment.toml", "deploy init")),
        (("run", "missing"), ("there is no missing/deployment.toml",)),
        (("site", "missing"), ("there is no missing/site.toml",)),
        (("restore", "missing"), ("there is no missing/site.toml",)),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(idiolect, refused, tmp_path, words, pieces) -> None:
    refused(idiolect("deploy", *words), *pieces)
    assert not (tmp_path / "work").exists()


def test_mistakes_with_a_deployment_are_one_sentence(idiolect, refused, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT)
    refused(idiolect("deploy", "init", "work", *INIT), "is there already")
    refused(idiolect("deploy", "up", "work", "--local", "9"), "--local 9 is too many")
    refused(idiolect("deploy", "add", "work", "site-1"), "there is a site site-1 already")
    refused(idiolect("deploy", "register", "work", "nobody", "key.pub"), "there is no site nobody")
    refused(idiolect("deploy", "restore", tmp_path / "work" / "sites" / "site-0"), "no sound backup")
    (tmp_path / "work" / "sites" / "site-0" / "data" / "data.npz").unlink()
    refused(
        idiolect("deploy", "site", tmp_path / "work" / "sites" / "site-0"),
        "data.npz",
        "cannot read",
    )


def test_deploy_without_flower_says_how_to_install_it(idiolect, refused, monkeypatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("idiolect.cli.deploy.version", missing)
    refused(idiolect("deploy", "status", "work"), "pip install 'idiolect[flower]'")


def test_sites_are_excluded_and_included_by_name(idiolect, refused, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT)
    assert "excluded: site-1" in idiolect("deploy", "exclude", "work", "site-1").out
    assert 'excluded = ["site-1"]' in (tmp_path / "work" / "deployment.toml").read_text()
    (row,) = (line for line in idiolect("deploy", "status", "work").out.splitlines() if "site-1" in line)
    assert "is excluded" in row
    assert "excluded: none" in idiolect("deploy", "include", "work", "site-1").out
    refused(idiolect("deploy", "exclude", "work", "site-9"), "there is no site site-9", "site-0, site-1")


def test_rollback_without_a_run_is_refused(idiolect, refused) -> None:
    idiolect("deploy", "init", "work", *INIT)
    refused(idiolect("deploy", "rollback", "work", "--to", "2"), "nothing has been trained in")


def test_bounds_and_checkpoints_are_settings_of_the_deployment(idiolect, refused, tmp_path: Path) -> None:
    idiolect("deploy", "init", "work", *INIT, "--norm-bound", "20", "--checkpoints", "9")
    written = (tmp_path / "work" / "deployment.toml").read_text()
    assert "norm_bound = 20.0" in written and "checkpoints = 9" in written
    refused(
        idiolect("deploy", "init", "other", *INIT, "--checkpoints", "1"), "checkpoints must be in [2, 100]"
    )


def test_progress_names_the_sites_of_a_round_and_the_record_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from idiolect.cli.deploy import SiteTable, _print_status  # noqa: PLC0415 - needs the extra

    site = {"runs_here": True, "excluded": False, "here": "connected", "loss": 0.5}
    sites = {
        "site-0": {**site, "round": 4},
        "site-1": {**site, "round": 2, "excluded": True},
        "site-2": dict(site),
    }
    del sites["site-2"]["loss"]
    record = tmp_path / "run"
    found = {
        "status": "running",
        "server_runs_here": True,
        "round": 3,
        "rounds": 9,
        "sites": sites,
        "events": [],
    }
    SiteTable().show(found)
    assert capsys.readouterr().err == "round 3/9: site-0 loss 0.500\n"
    console = Console(width=200)
    _print_status(console, {**found, "message": "", "run": str(record)})
    record.mkdir()
    _print_status(console, {**found, "message": "", "run": str(record)})
    assert capsys.readouterr().out.count("Record: ") == 1


@pytest.mark.parametrize(
    ("file", "written", "changed", "sentence"),
    [
        (
            "deployment.toml",
            "deadline = 3600.0",
            "deadline = nan",
            "deadline must be a finite number at least 0, got nan",
        ),
        (
            "deployment.toml",
            "grace = 30.0",
            "grace = inf",
            "grace must be a finite number at least 0, got inf",
        ),
        ("deployment.toml", "min_sites = 2", "min_sites = 0", "min_sites must be at least 1, got 0"),
        ("deployment.toml", 'name = "site-1"', 'name = "site-0"', "two sites have the name site-0"),
        ("deployment.toml", "client = 1", "client = 0", "two sites have the client 0"),
        ("deployment.toml", 'name = "site-1"', 'name = "../../etc"', "'../../etc' cannot name a site"),
        ("deployment.toml", "grace = 30.0", "grase = 30.0", "there is no setting 'grase'"),
        ("deployment.toml", "grace = 30.0\n", "", "grace is missing"),
        (
            "sites/site-0/site.toml",
            "patience = 600.0",
            "patience = -1.0",
            "patience must be at least 0, got -1",
        ),
        ("sites/site-0/site.toml", "patience = 600.0", "patients = 600.0", "there is no setting 'patients'"),
    ],
)
def test_settings_that_nobody_can_work_with_are_refused(
    idiolect, refused, tmp_path: Path, file: str, written: str, changed: str, sentence: str
) -> None:
    idiolect("deploy", "init", "d", *INIT)
    path = tmp_path / "d" / file
    whole = path.read_text()
    assert written in whole
    path.write_text(whole.replace(written, changed))
    words = ("site", path.parent) if path.name == "site.toml" else ("status", "d")
    refused(idiolect("deploy", *words), f"{path.name} is not the file of a", sentence)
