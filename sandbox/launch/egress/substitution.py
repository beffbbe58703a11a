"""Substitution: what one sandbox and the broker are told, so that a secret's value is put in outside of the sandbox.

1. Each secret gets a placeholder, unguessable and new for each sandbox: text that somebody else makes the server send
   (an issue, a web page) cannot name it, so no value is put in where the server did not mean it (ADR 0077).
2. A certificate authority is made for this sandbox, and one certificate for each intended host. The authority's key is
   dropped before this returns; the broker gets the certificates' keys, the server the authority's certificate.
3. The broker verifies the real servers with the authorities of this host and those of the operator.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.errors import PlanRefused
from sandbox.limits import KIB, MIB
from sandbox.plan.model import SandboxPlan

PREFIX: Final = "mcpsub_"
"""What placeholders begin with; letters, digits and _ stand for themselves in every encoding of requests."""

MAX_VALUE: Final = 8 * KIB
"""A value that is put into requests; header fields of servers end there."""

MIN_VALUE: Final = 8
"""A shorter value could not be told from chance in an answer."""

MAX_TRUSTED: Final = 2 * MIB
"""The authorities of a host; the usual bundle has 220 KB."""

BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where distributions keep the host's authorities; the first that exists is meant."""

EARLIER: Final = dt.timedelta(hours=1)
"""Clocks may differ by as much."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """What is substituted in one sandbox.

    Attributes:
        placeholders: slug → placeholder.
        secrets: placeholder, value and hosts of each secret.
        leaves: host → PEM of its certificate and key.
        authorities: PEM of whom the broker trusts to name real servers.
        trusted: PEM of whom the server is to trust: the same, and the sandbox's own authority.
    """

    placeholders: Mapping[str, str]
    secrets: tuple[tuple[str, str, tuple[str, ...]], ...]
    leaves: Mapping[str, str]
    authorities: str
    trusted: bytes

    def message(self) -> dict[str, Any]:
        """Return what the broker is told."""
        return {
            "secrets": [[placeholder, value, list(hosts)] for placeholder, value, hosts in self.secrets],
            "leaves": dict(self.leaves),
            "authorities": self.authorities,
        }

    def __repr__(self) -> str:
        """Return no value: this may stand in a traceback."""
        return f"Substitution({', '.join(self.placeholders)})"


def prepare(plan: SandboxPlan, values: Mapping[str, str]) -> Substitution:
    """Return what is substituted in one sandbox.

    Args:
        plan: with ``substitutes``.
        values: slug → value.

    Raises:
        PlanRefused: ``SEC-012``, a value cannot be put into requests; ``EGR-062``, an authority cannot be read.
    """
    # 1
    placeholders = {entry.secret: PREFIX + secrets.token_hex(16) for entry in plan.substitutes}
    put = tuple(
        (placeholders[entry.secret], _usable(entry.secret, values[entry.secret]), entry.hosts)
        for entry in plan.substitutes
    )
    # 2
    hosts = sorted({host for entry in plan.substitutes for host in entry.hosts})
    authority, leaves = _certificates(hosts, plan.limits.lifetime)
    # 3
    trusted = _authorities(plan.authorities)
    return Substitution(placeholders, put, leaves, trusted, f"{trusted}\n{authority}".encode())


def _usable(slug: str, value: str) -> str:
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if not plain or not MIN_VALUE <= len(value) <= MAX_VALUE:
        raise PlanRefused(
            "SEC-012",
            f"secret `{slug}` cannot be put into requests: one line of {MIN_VALUE} to {MAX_VALUE} ASCII characters",
            "see what its source gives, or hand it over as a variable",
        )
    return value


def _authorities(own: Iterable[str]) -> str:
    host = next((path for path in BUNDLES if Path(path).exists()), None)
    parts = []
    for path in [*([host] if host else []), *own]:
        try:
            text = Path(path).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            message = f"the certificate authority {path} cannot be read: {error.strerror}"
            raise PlanRefused("EGR-062", message, "correct [[egress.ca]] in the policy") from None
        parts.append(text)
    joined = "\n".join(parts)
    if not joined or len(joined) > MAX_TRUSTED:
        message = f"this host has no certificate authorities, or more than {MAX_TRUSTED} bytes of them"
        raise PlanRefused("EGR-062", message, "install ca-certificates, or name [[egress.ca]] in the policy")
    return joined


def _certificates(hosts: Iterable[str], lifetime: float) -> tuple[str, dict[str, str]]:
    """Return the authority's certificate, and each host's with its key; the authority's key ends here."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"mcp-sandbox {secrets.token_hex(4)}")])
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=lifetime) + EARLIER
    root = _builder(name, name, key.public_key(), until)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(_usage(signs=True), critical=True)
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    root = root.add_extension(own_id, critical=False)
    limits = x509.NameConstraints(permitted_subtrees=[x509.DNSName(host) for host in hosts], excluded_subtrees=None)
    root = root.add_extension(limits, critical=True)
    leaves = {host: _leaf(host, name, key, until) for host in hosts}
    return _pem(root.sign(key, hashes.SHA256())), leaves


def _leaf(host: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: dt.datetime) -> str:
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    leaf = _builder(subject, issuer, own.public_key(), until)
    leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(signs=False), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    leaf = leaf.add_extension(issuer_id, critical=False)
    private = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return _pem(leaf.sign(key, hashes.SHA256())) + private.decode("ascii")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: dt.datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(dt.datetime.now(dt.UTC) - EARLIER).not_valid_after(until)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
