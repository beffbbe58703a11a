"""Who may see the operator's page, and who may approve there.

Three ways in, each of which the operator opens; without any there is no page:

- a bearer token of a trusted issuer, or a pinned key, with the scope ``mcp-sandbox:admin`` (looking) or
  ``mcp-sandbox:operator`` (looking and approving); ``unsafe-tenant`` lets nobody in here;
- a sign-in link, printed once on stderr: 256 random bits that count once and for a quarter of an hour;
- a token in a file that only its owner can read.

Link and token are exchanged for a session: 256 random bits in a cookie that scripts cannot read and other sites cannot
send. Only digests of all of them are kept. A link is exchanged by POST, so that whatever fetches links in advance does
not use it up, and a page of somebody else cannot sign a browser in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.certificates import Certificate
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.identity.model import Access, Identity, Unauthorized

ADMIN: Final = "mcp-sandbox:admin"
"""Scope of those who operate the gateway: they may look."""

OPERATOR: Final = "mcp-sandbox:operator"
"""Scope of those who may approve, and look."""

PATH: Final = "/ui"

LINK_SECONDS: Final = 900.0
"""For which a sign-in link counts: time to open a browser, not to find the link in a log."""

SESSION_SECONDS: Final = 8 * 3600.0
"""Of a session in all: a working day."""

IDLE_SECONDS: Final = 3600.0
"""For which a session lasts without anybody doing anything; a page that renews itself does nothing."""

MAX_SESSIONS: Final = 16
"""At once; the oldest ends for a new one."""

SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may look.

    Attributes:
        by: who, for records and the page.
        approver: may approve.
        form: what forms have to send back.
        session: digest of the session's id; empty with a bearer token.
    """

    by: str
    approver: bool
    form: str
    session: str = ""


@dataclass(slots=True)
class _Session:
    by: str
    began: float
    used: float


@dataclass(slots=True)
class Entrance:
    """Decides who comes in.

    Attributes:
        keeper: gives what verifies bearer tokens, as it is now.
        now: seconds that never go back.
        secure: the page is reached over TLS.
        port: of a page without TLS; browsers send cookies of one port to all.
        token: digest of the token in the operator's file, empty without one.
    """

    keeper: Callable[[], Gatekeeper]
    now: Callable[[], float]
    secure: bool = False
    port: int = 0
    token: str = ""
    _link: tuple[str, float] = ("", 0.0)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES))
    _sessions: OrderedDict[str, _Session] = field(default_factory=OrderedDict)

    @property
    def cookie(self) -> str:
        """Name of the cookie; with TLS one that browsers take only from this host itself, for all of it."""
        return "__Host-mcp-sandbox-ui" if self.secure else f"mcp-sandbox-ui-{self.port}"

    def cookie_field(self, session: str) -> str:
        """Return ``Set-Cookie`` that gives a session, or takes it away when it is empty."""
        life = int(SESSION_SECONDS) if session else 0
        where = "Path=/; Secure" if self.secure else f"Path={PATH}"  # __Host- demands both
        return f"{self.cookie}={session}; {where}; HttpOnly; SameSite=Strict; Max-Age={life}"

    def link(self) -> str:
        """Return the secret of a new sign-in link; an earlier one counts no more."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._link = (digest_of(secret), self.now() + LINK_SECONDS)
        return secret

    def knows(self, secret: str) -> str:
        """Return which way a secret opens, ``link`` or ``token-file``; empty when none."""
        found = digest_of(secret)
        link, until = self._link
        if link and hmac.compare_digest(found, link) and self.now() < until:
            return "link"
        return "token-file" if self.token and hmac.compare_digest(found, self.token) else ""

    def sign_in(self, way: str) -> tuple[str, Visitor]:
        """Begin a session for who showed a secret that :meth:`knows`; return its id, which is told to nobody else."""
        if way == "link":
            self._link = ("", 0.0)
        session = secrets.token_urlsafe(SECRET_BYTES)
        digest, now = digest_of(session), self.now()
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[digest] = _Session(f"{way} {digest[:8]}", now, now)
        return session, self._visitor(digest)

    def sign_out(self, visitor: Visitor) -> None:
        """End a session."""
        self._sessions.pop(visitor.session, None)

    async def admit(
        self, headers: Mapping[str, str], certificate: Certificate | None = None, *, acting: bool = True
    ) -> Visitor:
        """Return who asks.

        Args:
            headers: folded.
            certificate: of the connection, proved by TLS; ``None`` without one.
            acting: a person does something; otherwise a page renews itself, and the session does not last longer.

        Raises:
            HttpRefused: ``GATE-085`` (401) nobody who is known, ``GATE-086`` (403) somebody who may not.
        """
        found = None if "authorization" in headers else self._session(headers, acting=acting)
        return found if found is not None else await self._credential(headers, certificate)

    def _session(self, headers: Mapping[str, str], *, acting: bool) -> Visitor | None:
        digest = digest_of(cookie_of(headers, self.cookie))
        session, now = self._sessions.get(digest), self.now()
        if session is None:
            return None
        if now - session.began > SESSION_SECONDS or now - session.used > IDLE_SECONDS:
            del self._sessions[digest]
            return None
        if acting:
            session.used = now
        return self._visitor(digest)

    def _visitor(self, digest: str) -> Visitor:
        return Visitor(self._sessions[digest].by, approver=True, form=self._form(digest), session=digest)

    async def _credential(self, headers: Mapping[str, str], certificate: Certificate | None) -> Visitor:
        """Return who comes with a token or a pinned key; whoever needs neither at the endpoints is nobody here."""
        keeper = self.keeper()
        if "authorization" not in headers and (certificate is None or certificate.pin not in keeper.clients):
            raise _unknown()
        try:
            identity: Identity = await keeper.admit(headers, PATH, Access(), certificate)
        except Unauthorized as error:
            raise _unknown(error.id, 503 if error.status == 503 else 401) from None  # noqa: PLR2004 - nobody to ask
        if not identity.scopes & {ADMIN, OPERATOR} or identity.unsafe:
            mend = f"ask for a credential with the scope `{ADMIN}`"
            raise HttpRefused(403, "GATE-086", "this page is for those who operate the gateway", mend)
        by = f"{identity.tenant.user or identity.owner[:12]} of {identity.tenant.tenant}"
        return Visitor(by, OPERATOR in identity.scopes, self._form(f"credential {identity.owner}"))

    def _form(self, holder: str) -> str:
        return hmac.new(self._key, holder.encode(), "sha256").hexdigest()


def digest_of(secret: str) -> str:
    """Return the digest under which a secret is known."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def cookie_of(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a cookie, empty without one; of two with one name none counts."""
    pairs = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else ""


def _unknown(cause: str = "", status: int = 401) -> HttpRefused:
    text, mend = "sign in to see this page", "use a sign-in link, the token file or a bearer token (docs/ui.md)"
    return HttpRefused(status, "GATE-085", text, mend, headers={"WWW-Authenticate": "Bearer"}, cause=cause)
