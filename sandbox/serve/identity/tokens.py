"""Bearer tokens that are JWTs (RFC 9068, RFC 7519): signature, issuer, audience, time, tenant.

What is checked, in this order; each refusal has its own id, and none says more than the holder of a token may know:

1. form and size; an algorithm of public keys from our list (``none`` and the symmetric ones are not on it);
2. the issuer is one that the operator trusts; its key by ``kid``, used only with the algorithm that the key is for;
3. signature, ``exp``, ``nbf``, ``iss``; **audience always**: the endpoint's own URL or the gateway's;
4. the tenant from the claim that the operator names; a token without it has no tenant and is refused;
5. ``cnf``: a token that is bound to a certificate counts with it only, which the gatekeeper sees to (RFC 8705).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from sandbox.serve.identity.certificates import bound_to
from sandbox.serve.identity.keys import KeySource
from sandbox.serve.identity.model import Identity, Unauthorized, owner_of
from sandbox.tenant import TenantContext, TenantId

MAX_TOKEN: Final = 8 * 1024
"""Characters of a token; real ones have up to 4 KiB."""

MAX_CLAIM: Final = 256
"""Characters of a tenant, subject or client id."""

MAX_SCOPES: Final = 256
"""Scopes of one token."""

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with public keys (RFC 8725 §3.1)."""

TYPES: Final = frozenset(("jwt", "at+jwt", "application/at+jwt", ""))
"""``typ`` of an access token; an ID token or a logout token of the same issuer is none (RFC 8725 §3.11)."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer that is trusted.

    Attributes:
        url: exactly as tokens write ``iss``.
        keys: its keys.
        tenant_claim: claim that names the tenant.
        user_claim: claim that names the user within the tenant.
        algorithms: of :data:`ALGORITHMS`.
    """

    url: str
    keys: KeySource
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    algorithms: tuple[str, ...] = ALGORITHMS


class JwtVerifier:
    """Implements :class:`~sandbox.serve.identity.model.Verifier` for JWTs.

    Args:
        issuers: who is trusted.
    """

    def __init__(self, issuers: Mapping[str, Issuer]) -> None:
        self._issuers = dict(issuers)

    async def verify(self, token: str, audiences: frozenset[str]) -> Identity:
        """Return who holds a token.

        Raises:
            Unauthorized: it does not count here.
        """
        issuer, kid, algorithm = self._read(token)
        key = await issuer.keys.key(kid)
        claims = _verified(token, key, issuer, audiences, algorithm)
        return identity_of(claims, issuer)

    def _read(self, token: str) -> tuple[Issuer, str, str]:
        """Return the issuer, the key's id and the algorithm that a token names, all unverified."""
        if len(token) > MAX_TOKEN:
            raise Unauthorized("GATE-024", "the token is too long", f"send one of at most {MAX_TOKEN} characters")
        try:
            head = jwt.get_unverified_header(token)
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.exceptions.PyJWTError, ValueError, RecursionError):
            raise Unauthorized("GATE-024", "the token cannot be read", "send a JWT of a trusted issuer") from None
        algorithm, kid = head.get("alg"), head.get("kid", "")
        kind = str(head.get("typ") or "").lower()
        if "crit" in head or kind not in TYPES or not isinstance(kid, str):
            raise Unauthorized("GATE-024", "the token is of another kind", "send an access token")
        issuer = self._issuers.get(str(claims.get("iss")))
        if issuer is None:
            raise Unauthorized(
                "GATE-025", "the issuer of the token is not trusted here", "sign in where the metadata says"
            )
        if algorithm not in issuer.algorithms or algorithm not in ALGORITHMS:
            raise Unauthorized(
                "GATE-024", "the token is signed in a way that is not accepted", "use a public-key signature"
            )
        return issuer, kid, str(algorithm)


def _verified(token: str, key: jwt.PyJWK, issuer: Issuer, audiences: frozenset[str], algorithm: str) -> dict[str, Any]:
    """Return the claims of a token whose signature and times hold and that is made for us."""
    fits = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[algorithm[:2]]
    declared = key.key_id is not None and key._jwk_data.get("alg")  # noqa: SLF001 - the library shows it nowhere else
    if key.key_type != fits or (declared and declared not in {algorithm, "Ed25519"}):
        raise Unauthorized("GATE-026", "the token is not signed with the algorithm of its key", "get a new one")
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key.key, algorithms=[algorithm], audience=list(audiences), issuer=issuer.url, leeway=LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"], "verify_aud": True, "verify_iss": True},
        )  # fmt: skip
    except jwt.ExpiredSignatureError:
        raise Unauthorized("GATE-028", "the token has expired", "get a new one") from None
    except jwt.InvalidAudienceError:
        raise Unauthorized("GATE-029", "the token is made for somebody else", "ask for one for this resource") from None
    except (jwt.exceptions.PyJWTError, ValueError):
        raise Unauthorized("GATE-026", "the token does not hold", "get a new one") from None
    return claims


def identity_of(claims: Mapping[str, Any], issuer: Issuer) -> Identity:
    """Return the identity that verified claims describe.

    Raises:
        Unauthorized: ``GATE-030`` (403), they name no usable tenant; ``GATE-072``, bound in a way not checked here.
    """
    tenant, user = claims.get(issuer.tenant_claim), claims.get(issuer.user_claim, "")
    subject, client = str(claims.get("sub", "")), str(claims.get("azp") or claims.get("client_id") or "")
    if not usable(tenant) or not (user == "" or usable(user)):
        text = f"the token names no usable tenant in `{issuer.tenant_claim}`"
        raise Unauthorized("GATE-030", text, "ask the operator of the issuer", status=403)
    context = TenantContext(
        TenantId(str(tenant)), str(user), claims={"iss": issuer.url, "sub": subject[:MAX_CLAIM]}, source="token"
    )
    owner = owner_of(issuer.url, str(tenant), subject, client)
    return Identity(context, scopes_of(claims), owner, bound=bound_to(claims))


def usable(value: object) -> bool:
    """Return whether a claim can stand in records, rules and names of folders without being mistaken."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CLAIM or value != value.strip():
        return False
    return value.isprintable() and unicodedata.normalize("NFC", value) == value and value != "anonymous"


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: ``scope`` as text (RFC 8693 §4.2), or ``scp`` as a list or text."""
    found = claims.get("scope", claims.get("scp", ""))
    parts = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(str(part) for part in parts[:MAX_SCOPES])
