"""A certificate authority of a test's own, for servers that pretend to be on the internet."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from sandbox.serve.identity.certificates import pin_of


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
    files.key.chmod(0o600)
    return files


Private = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Holder:
    """A client with a self-signed certificate.

    Attributes:
        cert: PEM file of the certificate; ``key`` of the private key.
        private: the private key itself.
    """

    cert: Path
    key: Path
    private: Private

    @property
    def pin(self) -> str:
        """The pin of its public key."""
        return pin_of(self.private.public_key())

    @property
    def thumbprint(self) -> str:
        """``x5t#S256`` of its certificate."""
        digest = x509.load_pem_x509_certificate(self.cert.read_bytes()).fingerprint(hashes.SHA256())
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def holder(folder: Path, name: str, *, days: tuple[float, float] = (-1, 1), private: Private | None = None) -> Holder:
    """Write a self-signed certificate of a client, valid between two moments, for a new key or one that it had."""
    key = private or ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = _builder(own, own, key.public_key(), days).sign(key, digest)
    found = Holder(folder / f"{name}.pem", folder / f"{name}.key", key)
    found.cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return found


def trusting(authority: Authority, client: Holder | None = None) -> ssl.SSLContext:
    """Return what a client connects with: it trusts an authority, and shows a certificate where it has one."""
    context = ssl.create_default_context(cafile=str(authority.bundle))
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, days: tuple[float, float] = (-1, 1)
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
