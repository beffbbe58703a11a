"""Decides who comes in: a bearer token first, else the pinned key of the connection's certificate, else nobody.

A request may come over a connection with a certificate and have a token too. The token is what it asks with, then; the
certificate only has to be the one that the token is bound to, if it is bound (RFC 8705).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandbox.serve.identity.certificates import Certificate, PinnedClient, admitted, check_bound
from sandbox.serve.identity.model import Access, Identity, Unauthorized, Verifier, anonymous, owner_of
from sandbox.tenant import TenantContext, TenantId


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Decides who comes in.

    Attributes:
        public_url: of the gateway, without a trailing slash.
        verifier: of tokens; without one nobody can sign in with a token.
        issuers: whom clients are sent to.
        unsafe_tenant: everybody who sends no credential is this tenant; for one person on one machine only.
        extra_audiences: values of ``aud`` that count beside the endpoint's URL and the gateway's.
        clients: by the pin of their key.
        certificates: clients are asked for a certificate.
        now: POSIX seconds.
    """

    public_url: str
    verifier: Verifier | None = None
    issuers: tuple[str, ...] = ()
    unsafe_tenant: str = ""
    extra_audiences: frozenset[str] = field(default_factory=frozenset)
    clients: Mapping[str, PinnedClient] = field(default_factory=dict)
    certificates: bool = False
    now: Callable[[], float] = time.time

    async def admit(
        self, headers: Mapping[str, str], path: str, access: Access, certificate: Certificate | None = None
    ) -> Identity:
        """Return who sends a request to an endpoint.

        Args:
            headers: folded.
            path: of the endpoint.
            access: what it asks for.
            certificate: of the connection, proved by TLS; ``None`` without one.

        Raises:
            Unauthorized: nobody who may.
        """
        token = bearer(headers)
        if token is None:
            identity = self._without_token(access, certificate)
        else:
            identity = await self._with_token(token, path)
            check_bound(identity.bound, certificate)
        missing = tuple(scope for scope in access.scopes if scope not in identity.scopes)
        if missing and not (identity.anonymous or identity.unsafe):
            raise Unauthorized(
                "GATE-022", f"the credential lacks the scope {' '.join(missing)}", "ask for one with it",
                error="insufficient_scope", status=403, scopes=access.scopes,
            )  # fmt: skip
        return identity

    def _without_token(self, access: Access, certificate: Certificate | None) -> Identity:
        if certificate is not None and certificate.pin in self.clients:
            return admitted(certificate, self.clients, self.now())
        if self.unsafe_tenant:
            context = TenantContext(TenantId(self.unsafe_tenant), source="unsafe")
            return Identity(context, owner=owner_of("unsafe", self.unsafe_tenant), unsafe=True)
        if access.anonymous:
            return anonymous()
        if certificate is not None:
            return admitted(certificate, self.clients, self.now())  # says why not
        how = "send a bearer token, or connect with a pinned key" if self.clients else "send a bearer token"
        raise Unauthorized("GATE-020", "sign in to use this endpoint", how, error="")

    async def _with_token(self, token: str, path: str) -> Identity:
        if self.verifier is None:
            raise Unauthorized("GATE-021", "no issuer of tokens is trusted here", "configure `[[issuer]]`")
        audiences = frozenset((self.public_url + path, self.public_url, self.public_url + "/")) | self.extra_audiences
        return await self.verifier.verify(token, audiences)


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token, ``None`` without a credential.

    Raises:
        Unauthorized: ``GATE-023``, a credential of another kind, or one that is no token.
    """
    value = headers.get("authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Unauthorized(
            "GATE-023",
            "the credential is not a bearer token",
            "send `Authorization: Bearer …`",
            error="invalid_request",
        )
    return token
