"""Messages: what was not signed is not read, and what has not the expected form is not taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.keys import private_key, public_key, write_certificates, write_key_pair
from idiolect.deploy.signed_messages import SignedMessage, Tampered, from_record, sign, to_record, verify
from idiolect.deploy.tensor_names import UnexpectedTensors, flatten, tree_digest, unflatten

TREE = {"params": {"w": torch.arange(6.0).reshape(2, 3)}, "pair": (torch.ones(1, dtype=torch.int64),)}


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        write_key_pair(tmp_path / name)
    return tmp_path / "ours", tmp_path / "theirs"


def message(keys: tuple[Path, Path]) -> SignedMessage:
    return sign({"kind": "train", "round": 3}, flatten(TREE), private_key(keys[0] / "key"))


def test_message_comes_back_as_it_went(keys: tuple[Path, Path]) -> None:
    carried = from_record(to_record(message(keys)))
    found = verify(carried, public_key(keys[0] / "key.pub"), "us")
    assert found.header == {"kind": "train", "round": 3}
    assert tree_digest(unflatten(found.tensors, [TREE], "it"), b"") == tree_digest(TREE, b"")


def test_message_may_hold_one_tensor_twice(keys: tuple[Path, Path]) -> None:
    weight = torch.ones(())
    twice = sign({}, flatten({"average": weight, "buffers": weight}), private_key(keys[0] / "key"))
    found = verify(twice, public_key(keys[0] / "key.pub"), "us")
    assert [float(tensor) for tensor in found.tensors.values()] == [1.0, 1.0]


@pytest.mark.parametrize("part", ["header", "body", "signature"])
def test_one_changed_byte_is_refused(keys: tuple[Path, Path], part: str) -> None:
    whole = message(keys)
    content = bytearray(getattr(whole, part))
    content[-1] ^= 1
    with pytest.raises(Tampered, match="does not carry the signature of us"):
        verify(whole._replace(**{part: bytes(content)}), public_key(keys[0] / "key.pub"), "us")


def test_message_of_another_key_is_refused(keys: tuple[Path, Path]) -> None:
    with pytest.raises(Tampered, match="signature"):
        verify(message(keys), public_key(keys[1] / "key.pub"), "them")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"/params/w": torch.zeros(3, 2)}, r"/params/w is float32\[3, 2\] where float32\[2, 3\] is expected"),
        ({"/params/w": torch.zeros(2, 3).double()}, "float64"),
        ({"/params/head": torch.zeros(1)}, "/params/head is not expected"),
    ],
)
def test_tensor_of_another_form_is_refused_by_name(change: dict[str, torch.Tensor], sentence: str) -> None:
    with pytest.raises(UnexpectedTensors, match=sentence):
        unflatten({**flatten(TREE), **change}, [TREE], "the shared model")


def test_missing_tensor_is_refused_by_name() -> None:
    with pytest.raises(UnexpectedTensors, match="/pair/0 is missing"):
        unflatten({"/params/w": TREE["params"]["w"]}, [TREE], "the shared model")


def test_secret_files_are_their_owners_alone(keys: tuple[Path, Path], tmp_path: Path) -> None:
    write_certificates(tmp_path / "tls", ["127.0.0.1", "server.example"])
    for path in (keys[0] / "key", tmp_path / "tls" / "server.key", tmp_path / "tls" / "ca.key"):
        assert path.stat().st_mode & 0o077 == 0
