"""Key pairs of server and sites, and the TLS certificates of the connection between them."""

from __future__ import annotations

import datetime
import ipaddress
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from idiolect.errors import UserError

__all__ = [
    "is_loopback",
    "keep_to_owner",
    "private_key",
    "public_key",
    "refuse_key_of_another",
    "write_certificates",
    "write_key_pair",
    "write_secret",
]

VALID_DAYS = 825  # of a certificate
KEY, PUBLIC = "key", "key.pub"


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, from its creation on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def keep_to_owner(folder: Path, below: bool = True) -> None:
    """Takes away from everybody but the owner what they may do with a folder and all below it; links stay as they are.

    A folder that was copied or unpacked has the modes that the tool at hand gave it.

    Args:
        below: also with what lies in it, for the day on which it is moved again; a closed folder closes that as well.

    Raises:
        UserError: others may read something here that belongs to another user.
    """
    for path in (folder, *(folder.rglob("*") if below else ())):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & 0o077:
            continue
        try:
            path.chmod(stat.S_IMODE(mode) & 0o700)
        except OSError as error:
            raise UserError(
                f"others may read {path}, and its mode cannot be changed ({error.strerror}); give the folder to the "
                "user that runs this"
            ) from None


def write_key_pair(folder: Path) -> None:
    """Writes a new key pair as ``key`` and ``key.pub``, in the formats of OpenSSH."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, private = serialization.Encoding, serialization.PrivateFormat
    write_secret(folder / KEY, key.private_bytes(encoding.PEM, private.OpenSSH, serialization.NoEncryption()))
    public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / PUBLIC).write_bytes(public + b"\n")


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Reads a private key of OpenSSH's format."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise UserError(
            f"{path} is not a private key that can be read; make one with idiolect deploy key"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is not an ECDSA key; make one with idiolect deploy key")
    return key


def public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Reads a public key of OpenSSH's format."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise UserError(f"{path} is not a public key that can be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{path} is not an ECDSA key")
    return key


def refuse_key_of_another(public: Path, others: Iterable[Path]) -> None:
    """Refuses a public key that another party has already, since a signature would not tell the two apart.

    Args:
        others: files of the other parties' public keys, each named for its owner.
    """
    numbers = public_key(public).public_numbers()
    for other in sorted(others):
        if public_key(other).public_numbers() == numbers:
            raise UserError(
                f"{public} is the key of {other.stem} already; make one for each site with idiolect deploy key"
            )


def write_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Writes the deployment's own certificate authority (``ca.crt``) and the server's certificate for ``hosts``."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = _name("Idiolect deployment")
    ca = (
        _certificate(name, name, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    server = (
        _certificate(_name("Idiolect server"), name, key)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
        .sign(authority, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    for file, certificate in (("ca.crt", ca), ("server.crt", server)):
        (folder / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    write_secret(folder / "ca.key", _pem(authority))
    write_secret(folder / "server.key", _pem(key))


def is_loopback(host: str) -> bool:
    """Returns whether a host name or address is this machine itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
