"""A certificate authority of a test's own, for servers that pretend to be on the internet."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """An authority and one server certificate.

    Attributes:
        bundle: PEM file of the authority.
        cert: PEM file of the server's certificate; ``key`` of its private key.
    """

    bundle: Path
    cert: Path
    key: Path


def authority(folder: Path, *names: str) -> Authority:
    """Write an authority and a server certificate for names or addresses."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    root = _builder(ca_name, ca_name, ca_key.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    own = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), ca_name, key.public_key())
    own = own.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    ca_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    own = own.add_extension(ca_id, critical=False)
    root = root.add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
    files = Authority(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    files.bundle.write_bytes(root.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    files.cert.write_bytes(own.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
