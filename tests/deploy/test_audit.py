"""The audit log: every command, site and round is in it, and a line that was changed shows."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.audit import BLOCK, AuditLog
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.progress import read_progress
from idiolect.deploy.server import run_server
from idiolect.deploy.signed_messages import SignedMessage

from .conftest import Deploy
from .fake_grid import FakeGrid
from .played import grid_of, play


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    found = AuditLog(tmp_path)
    for number in range(4):
        found.append("site", {"site": f"site-{number}", "what": "is connected"})
    return found


def faults(log: AuditLog) -> list[str]:
    return [fault for _, fault in log.lines() if fault]


def test_lines_are_in_their_order_and_the_owners_alone(log: AuditLog) -> None:
    assert [line["site"] for line, _ in log.lines()] == [f"site-{number}" for number in range(4)]
    assert faults(log) == []
    assert log.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["change", "remove", "insert", "swap"])
def test_log_that_was_changed_shows_where(log: AuditLog, how: str) -> None:
    lines = log.path.read_text().splitlines()
    changed = {
        "change": [lines[0], lines[1].replace("site-1", "site-9"), *lines[2:]],
        "remove": [lines[0], *lines[2:]],
        "insert": [*lines[:2], lines[1], *lines[2:]],
        "swap": [lines[0], lines[2], lines[1], lines[3]],
    }[how]
    log.path.write_text("\n".join(changed) + "\n")
    assert any("the log was changed" in fault for fault in faults(log))


def test_line_that_was_torn_is_named_and_the_log_goes_on(log: AuditLog) -> None:
    log.path.write_bytes(log.path.read_bytes()[:-20])
    log.append("site", {"site": "late", "what": "is connected"})
    (fault,) = faults(log)
    assert "line 4" in fault and "killed as it wrote" in fault
    assert [line for line, _ in log.lines()][-1]["site"] == "late"


def test_line_that_is_nested_too_deeply_is_named(log: AuditLog) -> None:
    with open(log.path, "a") as file:
        file.write("[" * 100_000 + "\n")
    assert any("line 5" in fault and "cannot be read" in fault for fault in faults(log))


def test_long_text_of_a_site_is_cut(log: AuditLog) -> None:
    log.append("site", {"what": "x" * 100_000})
    log.append("site", {"what": "next"})
    assert [len(line["what"]) for line, _ in log.lines()][-2:] == [500, 4]
    assert faults(log) == []


def test_line_longer_than_what_is_read_at_once_is_followed(log: AuditLog) -> None:
    used = [f"site-{number}" for number in range(8_000)]
    log.append("round", {"used": used})
    log.append("site", {"what": "next"})
    assert log.path.stat().st_size > BLOCK
    assert faults(log) == []
    log.path.write_text(log.path.read_text().replace("site-7999", "site-7998"))
    assert len(faults(log)) == 1


def test_text_with_ends_of_lines_of_other_kinds_is_one_line(log: AuditLog) -> None:
    log.path.write_bytes(log.path.read_bytes() + b'{"torn\r\x0b')
    log.append("site", {"what": "a\rb\x0bc\u2028d"})
    log.append("site", {"what": "next"})
    assert len(faults(log)) == 1 and "line 5" in faults(log)[0]


def test_status_says_that_a_run_ended_where_the_log_cannot_be_written(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(
        DeploymentOptions(plain=True, wait=0.0, grace=0.0, deadline=0.1, min_sites=1), rounds=1
    )
    append = AuditLog.append

    def full(log: AuditLog, event: str, facts: dict[str, Any]) -> None:
        if event == "run" and facts["what"] != "begins":
            raise OSError(errno.ENOSPC, "No space left on device")
        append(log, event, facts)

    monkeypatch.setattr(AuditLog, "append", full)
    with pytest.raises(OSError, match="No space left"):
        run_server(FakeGrid({}), deployment.folder)
    found = read_progress(deployment.server)
    assert found is not None and found["status"] == "stopped" and "needs 1 sites" in found["message"]


def test_run_says_who_joined_who_was_left_out_and_whom_each_round_used(deploy: Deploy) -> None:
    deployment = deploy(DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=1), rounds=1)
    grid = grid_of(deployment)
    grid.away = {102}

    def change(message: SignedMessage) -> SignedMessage:
        if b'"loss"' in message.header and b"site-1" in message.header:
            return message._replace(body=message.body[:-1] + bytes([message.body[-1] ^ 1]))
        return message

    grid.change = change
    play(deployment, grid)
    lines: list[dict[str, Any]] = [line for line, fault in AuditLog(deployment.server).lines() if not fault]
    assert [(line["round"], line["what"]) for line in lines if line["event"] == "run"] == [
        (0, "begins"),
        (1, "finished"),
    ]
    assert [(line["round"], line["used"]) for line in lines if line["event"] == "round"] == [
        (1, ["site-0"]),
    ]
    said = {(line.get("site"), line.get("round"), line.get("what", "")) for line in lines}
    assert ("site-0", 1, "is connected") in said
    assert ("site-2", 1, "left out: is not connected") in said
    assert any(site == "site-1" and round == 1 and "signature" in what for site, round, what in said)
