"""Certificates of clients: an identity is a pinned public key, and nothing else of a certificate is believed.

TLS proves that the peer holds the private key of the certificate it shows. Who that is says the operator, by the pin of
the *public key* (SHA-256 of SubjectPublicKeyInfo, as RFC 7469 §2.4 wrote it): no authority is asked, names inside the
certificate mean nothing, and a client may renew its certificate as long as it keeps its key. Its period of validity is
held to, at every request, so that a key can be given for a time.

The thumbprint of the whole certificate (RFC 8705 §3.1) is what bound access tokens name.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from sandbox.limits import KIB
from sandbox.serve.identity.model import Identity, Unauthorized, owner_of
from sandbox.tenant import TenantContext, TenantId

PIN: Final = "sha256/"
"""Before the Base64 of a pin."""

MAX_PEM: Final = 16 * KIB
"""Characters of a certificate that is read; usual ones have 1 to 2 KiB, and the last ones are kept in memory."""

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What counts of a client's certificate.

    Attributes:
        pin: of its public key.
        thumbprint: ``x5t#S256`` of RFC 8705.
        begins: POSIX seconds from which it is valid.
        ends: the last.
    """

    pin: str
    thumbprint: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class PinnedClient:
    """Whom the holder of a key calls for.

    Attributes:
        tenant: of its calls.
        user: within the tenant, empty when it does not matter.
        scopes: what it may do.
    """

    tenant: str
    user: str = ""
    scopes: frozenset[str] = field(default_factory=frozenset)


def pin_of(key: Any) -> str:
    """Return the pin of a public key."""
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return PIN + base64.b64encode(hashlib.sha256(spki).digest()).decode()


def is_pin(text: str) -> bool:
    """Return whether a text is a pin, written in the one way that pins are compared in."""
    try:
        raw = base64.b64decode(text.removeprefix(PIN), validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(raw) == hashlib.sha256().digest_size and text == PIN + base64.b64encode(raw).decode()


@functools.lru_cache(maxsize=256)
def read_certificate(pem: str) -> Certificate | None:
    """Return what counts of a certificate in PEM, ``None`` for one that cannot be read: its holder is nobody."""
    try:
        found = x509.load_pem_x509_certificate(pem.encode("ascii"))
        digest = base64.urlsafe_b64encode(found.fingerprint(hashes.SHA256())).rstrip(b"=").decode()
        pin = pin_of(found.public_key())
        return Certificate(
            pin, digest, found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
        )  # fmt: skip
    except Exception:  # noqa: BLE001 - a peer's own bytes: whatever is wrong with them, nobody is identified
        return None


def certificate_of(scope: Mapping[str, Any]) -> Certificate | None:
    """Return the certificate with which the peer of an ASGI connection proved itself (ASGI's TLS extension)."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain") or ()
    return read_certificate(chain[0]) if chain and len(chain[0]) <= MAX_PEM else None


def admitted(certificate: Certificate, clients: Mapping[str, PinnedClient], now: float) -> Identity:
    """Return who holds a certificate.

    Args:
        certificate: that TLS has proved.
        clients: by pin.
        now: POSIX seconds.

    Raises:
        Unauthorized: ``GATE-070``, its key is pinned for nobody; ``GATE-073``, it is not valid now.
    """
    client = clients.get(certificate.pin)
    if client is None:
        raise Unauthorized(
            "GATE-070",
            "the key of the certificate is pinned for nobody here",
            "let the operator add it as `[[client]]`, or send a bearer token",
        )
    if not certificate.begins - LEEWAY <= now <= certificate.ends + LEEWAY:
        text = "the certificate of the client is not valid now"
        raise Unauthorized("GATE-073", text, "renew it; its key may stay the same")
    context = TenantContext(
        TenantId(client.tenant), client.user, claims={"key": certificate.pin}, source="mtls"
    )  # fmt: skip
    return Identity(context, client.scopes, owner_of("mtls", certificate.pin, client.tenant, client.user))


def check_bound(bound: str, certificate: Certificate | None) -> None:
    """Refuse a token that is bound to a certificate other than the connection's (RFC 8705 §3).

    Args:
        bound: thumbprint that the token names; empty for one that is not bound.
        certificate: of the connection.

    Raises:
        Unauthorized: ``GATE-071``.
    """
    if bound and (certificate is None or certificate.thumbprint != bound):
        text = "the token is bound to a certificate that this connection does not have"
        raise Unauthorized("GATE-071", text, "connect with the certificate with which it was asked for")


def bound_to(claims: Mapping[str, Any]) -> str:
    """Return the thumbprint of the certificate that a token is bound to, empty when it is bound to nothing.

    Raises:
        Unauthorized: ``GATE-072``, it is bound in a way that is not checked here: then anybody could use it.
    """
    confirmation = claims.get("cnf")
    if confirmation is None:
        return ""
    found = confirmation.get("x5t#S256") if isinstance(confirmation, dict) else None
    if not isinstance(found, str) or not found or len(confirmation) != 1:
        text = "the token is bound to its holder in a way that this gateway does not check"
        raise Unauthorized("GATE-072", text, "ask for a bearer token, or one bound to a certificate (RFC 8705)")
    return found
