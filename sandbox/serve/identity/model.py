"""Who calls, what an endpoint asks for, and how a refusal tells a client where to sign in.

Sources: RFC 6750 §3 (``WWW-Authenticate``), RFC 9728 (protected resource metadata), MCP 2025-11-25 and 2026-07-28,
basic/authorization.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sandbox.errors import SandboxError
from sandbox.tenant import TenantContext, TenantId

METADATA: Final = "/.well-known/oauth-protected-resource"
"""RFC 9728 §3: the metadata of a resource stands here, followed by the resource's own path."""

ANONYMOUS: Final = TenantId("anonymous")
"""Everybody who may come without a credential; they share nothing with any other tenant."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use an endpoint.

    Attributes:
        anonymous: nobody has to sign in (``auth: none``).
        scopes: all of which a token needs.
        visibility: where it is told of: ``public``, ``authenticated``, ``internal`` or ``restricted``.
        deciding: scopes that decide what is behind it for a caller, beside those that everybody needs.
    """

    anonymous: bool = False
    scopes: tuple[str, ...] = ()
    visibility: str = "authenticated"
    deciding: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified caller.

    Attributes:
        tenant: for whom calls are made.
        scopes: what the credential allows.
        owner: digest of who holds the credential; sessions belong to it. A renewed token of the same holder has it too.
        anonymous: nobody signed in.
        unsafe: nobody had to sign in, by the operator's ``unsafe-tenant``; every scope counts as given.
        bound: thumbprint of the certificate without which the credential does not count; empty when it has none.
    """

    tenant: TenantContext
    scopes: frozenset[str] = frozenset()
    owner: str = ""
    anonymous: bool = False
    unsafe: bool = False
    bound: str = ""

    def may_use(self, access: Access) -> bool:
        """Return whether an endpoint is open to this caller."""
        if self.unsafe or access.anonymous:
            return True
        return not self.anonymous and self.scopes.issuperset(access.scopes)


def owner_of(*parts: str) -> str:
    """Return the digest that stands for a holder: issuer, tenant, subject and client, in this order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def anonymous() -> Identity:
    """Return the identity of whoever does not sign in."""
    return Identity(TenantContext(ANONYMOUS, source="anonymous"), owner=owner_of("anonymous"), anonymous=True)


class Unauthorized(SandboxError):
    """No credential, or one that does not count here.

    Attributes:
        error: RFC 6750 error code, empty when there was no credential.
        status: 401, 403 for a scope, 503 when nobody can be asked.
        scopes: what would be needed.
    """

    rpc_code = -31006

    def __init__(
        self,
        id: str,  # noqa: A002 - the public word for it
        message: str,
        mend: str = "",
        *,
        error: str = "invalid_token",
        status: int = 401,
        scopes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(id, message, mend)
        self.error = error
        self.status = status
        self.scopes = scopes


class Verifier(Protocol):
    """Turns a bearer token into an identity."""

    async def verify(self, token: str, audiences: frozenset[str]) -> Identity:
        """Return who holds the token.

        Args:
            token: as sent.
            audiences: values of which the token has to be made for one.

        Raises:
            Unauthorized: it does not count here.
        """


def challenge(resource_metadata: str, error: Unauthorized, scopes: tuple[str, ...]) -> str:
    """Return ``WWW-Authenticate``: where to sign in, for what, and what was wrong."""
    parts = {"resource_metadata": resource_metadata}
    if error.error:
        parts = {"error": error.error, "error_description": _quotable(error.message), **parts}
    if scopes:
        parts["scope"] = " ".join(scopes)
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items())


def _quotable(text: str) -> str:
    """Return text within what RFC 6750 §3 allows in a description."""
    return "".join(char if " " <= char <= "~" and char not in '"\\' else "'" for char in text)[:200]


def metadata(
    resource: str, issuers: tuple[str, ...], scopes: tuple[str, ...], title: str, *, certificates: bool = False
) -> dict[str, Any]:
    """Return the protected resource metadata of one endpoint (RFC 9728 §2)."""
    found: dict[str, Any] = {"resource": resource, "bearer_methods_supported": ["header"], "resource_name": title}
    if issuers:
        found["authorization_servers"] = list(issuers)
    if scopes:
        found["scopes_supported"] = list(scopes)
    if certificates:
        found["tls_client_certificate_bound_access_tokens"] = True
    return found
