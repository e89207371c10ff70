"""What a cluster that we start lets in: it listens on loopback alone, and a call without its token is refused."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from http.client import HTTPException
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra ray is not installed: pip install 'idiolect[ray]'")
pytest.importorskip("grpc", reason="a stranger's calls are made with gRPC")

import grpc
import ray

from idiolect.engines.ray import connection
from idiolect.errors import UserError

from ...ray_nodes import family

pytestmark = pytest.mark.usefixtures("ray_session")

METHODS = (  # one of each of Ray's servers
    "/ray.rpc.NodeInfoGcsService/GetClusterId",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
)


def test_cluster_that_we_start_listens_on_loopback_alone() -> None:
    found = listening()
    assert len(found) >= 4, "the cluster has a server, a raylet and this driver"
    assert all(address.is_loopback for address, _ in found), found


def test_call_without_the_token_is_refused_at_every_port() -> None:
    token = os.environ["RAY_AUTH_TOKEN"]
    served = set()
    for _, port in listening():
        for words in ({}, {"authorization": "Bearer " + "0" * 64}):
            assert "OK" not in answers(port, words), port
        known = answers(port, {"authorization": f"Bearer {token}"})
        served |= {method for method, answer in zip(METHODS, known, strict=True) if answer == "OK"}
    assert set(METHODS[:3]) <= served, "with the token the same calls are answered"


def test_token_is_in_no_command_line_and_the_sockets_are_their_owners_alone() -> None:
    token = os.environ["RAY_AUTH_TOKEN"].encode()
    for process in family(os.getpid()):
        assert token not in Path(f"/proc/{process}/cmdline").read_bytes()
    above = Path(ray._private.worker._global_node.get_sockets_dir_path()).parents
    (ours,) = (folder for folder in above if folder.name.startswith("idiolect-ray-"))
    assert ours.stat().st_mode & 0o077 == 0


def test_cluster_that_would_listen_elsewhere_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_init", lambda *arguments, **options: None)
    monkeypatch.setattr(connection, "_disconnect", lambda: None)
    monkeypatch.setattr(connection, "_use_token_settings", lambda settings: None)
    monkeypatch.setattr(connection, "LOOPBACK", ("nowhere:",))
    with pytest.raises(UserError, match="which other machines reach"):
        connection._start_private_cluster({})


def listening() -> list[tuple[IPv4Address | IPv6Address, int]]:
    """The addresses and ports at which this process and all that it started listen for TCP connections."""
    sockets = set()
    for process in family(os.getpid()):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            try:
                sockets.add(os.readlink(entry))
            except OSError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A" and f"socket:[{line.split()[9]}]" in sockets:
                address, _, port = local.partition(":")
                found.append((address_of(address), int(port, 16)))
    return found


def address_of(words: str) -> IPv4Address | IPv6Address:
    """The kernel writes addresses as 32-bit words in the machine's byte order."""
    content = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    if len(content) == 4:
        return IPv4Address(content)
    return IPv6Address(content).ipv4_mapped or IPv6Address(content)


def answers(port: int, words: dict[str, str]) -> list[str]:
    """What a port answers to each of the calls: the code of gRPC, or the status of an HTTP server."""
    found = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in METHODS:
            try:
                channel.unary_unary(method)(b"", metadata=tuple(words.items()), timeout=5)
                found.append("OK")
            except grpc.RpcError as error:
                found.append(error.code().name)
            if found[-1] == "UNAVAILABLE":
                return [status(port, words)] * len(METHODS)
    return found


def status(port: int, words: dict[str, str]) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/get_runtime_envs_info", data=b"", headers=words
    )
    try:
        with urllib.request.urlopen(request, timeout=5):
            return "OK"
    except urllib.error.HTTPError as error:
        with error:
            return "REFUSED" if error.code in (401, 403) else "OK"
    except (OSError, HTTPException):
        return "GONE"  # the port of a process that ends, or has ended since


def test_workers_have_the_priority_of_the_run() -> None:
    """By Ray's default they give way to all other work of the machine."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert ray.get(ray.remote(lambda: os.getpriority(os.PRIO_PROCESS, 0)).remote()) == ours
