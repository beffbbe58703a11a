"""Requests to token endpoints (RFC 6749, RFC 8707, RFC 7009) and what of their answers is believed.

What an issuer answers is checked before it is used: a token that could end a header field, another type than Bearer,
more scopes than were asked for. Of an error only its code is shown, when it looks like one: a description may hold
anything, tokens among it. Every secret is told to ``asking.known`` before the outcome is recorded.
"""

from __future__ import annotations

import base64
import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

from sandbox.errors import AuditUnavailable, PlatformError, SandboxError, ServerFault
from sandbox.limits import MAX_TOKEN
from sandbox.transport.remote.oauth.asking import Answer, Asking
from sandbox.transport.remote.oauth.metadata import MAX_NAMES, Issuer

LEEWAY: Final = 60.0
"""Seconds before its end at which a token is renewed; of a token that lives shorter, half of its life."""

MAX_LIFE: Final = 10 * 365 * 86400.0
"""Seconds that a token is believed to live."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""b64token of RFC 6750 §2.1."""

_REFRESH: Final = re.compile(r"[\x21-\x7e]+")
_CODE: Final = re.compile(r"[a-z_]{1,40}")
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: an id, and how it proves who it is (``none``, ``client_secret_basic`` or ``client_secret_post``)."""

    id: str
    secret: str = field(default="", repr=False)
    method: str = "none"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an issuer gave.

    Attributes:
        renew_at: time (seconds since 1970) from which it is to be renewed; 0: it is used until it is refused.
        expires_at: time at which it ends; 0: unknown.
        got_at: when it was got.
    """

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    renew_at: float = 0.0
    expires_at: float = 0.0
    got_at: float = 0.0

    @property
    def fresh(self) -> bool:
        """Whether it need not be renewed yet."""
        return not self.renew_at or self.got_at - LEEWAY <= time.time() < self.renew_at


class TokenRefused(ServerFault):
    """The issuer said no; ``code`` is its word for why, of RFC 6749 §5.2."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        mend = "see the client's id, secret and scopes at the issuer; or log in again with `mcp-sandbox login`"
        super().__init__("OAU-030", message, mend)


def method_of(issuer: Issuer, secret: str) -> str:
    """Return how a client proves at an issuer who it is.

    Raises:
        ServerFault: ``OAU-041``, the issuer takes no way that is known here.
    """
    if not secret:
        return "none"
    found = next((one for one in ("client_secret_basic", "client_secret_post") if one in issuer.methods), "")
    if not found:
        message = f"{issuer.issuer} takes no client secret in a way that is known here"
        raise ServerFault("OAU-041", message, "it must offer client_secret_basic or client_secret_post")
    return found


def proof(client: Client) -> tuple[dict[str, str], dict[str, str]]:
    """Return the parameters and the header fields by which a client proves who it is (RFC 6749 §2.3.1)."""
    if client.method == "client_secret_basic":
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}".encode()
        return {}, {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    if client.method == "client_secret_post":
        return {"client_id": client.id, "client_secret": client.secret}, {}
    return {"client_id": client.id}, {}


async def request(
    asking: Asking, issuer: Issuer, client: Client, resource: str, scopes: tuple[str, ...], form: Mapping[str, str]
) -> Tokens:
    """Ask for tokens.

    Args:
        asking: sends it.
        issuer: whom.
        client: who asks.
        resource: what they are for (RFC 8707).
        scopes: the most that is taken.
        form: ``grant_type`` and what belongs to it.

    Raises:
        TokenRefused: ``OAU-030``.
        ServerFault: ``OAU-031``, the answer is not to be used.
        SandboxError: as :meth:`~.asking.Asking.send`.
    """
    facts: dict[str, Any] = {"grant": form["grant_type"], "issuer": issuer.issuer, "resource": resource}
    asking.scope.intent("oauth.token", **facts)
    try:
        own, fields = proof(client)
        answer = await asking.post(issuer.token, {**form, "resource": resource, **own}, fields)
        found = _read(asking, answer, issuer, scopes)
    except SandboxError as error:
        asking.scope.outcome("oauth.token", **facts, error=error.id, code=getattr(error, "code", ""))
        raise
    life = round(found.expires_at - found.got_at) if found.expires_at else 0
    with contextlib.suppress(AuditUnavailable):  # the next intent fails alike; a rotated token must not be lost by it
        asking.scope.outcome("oauth.token", **facts, scopes=list(found.scopes), life=life, refresh=bool(found.refresh))
    return found


def _read(asking: Asking, answer: Answer, issuer: Issuer, scopes: tuple[str, ...]) -> Tokens:
    access, refresh = answer.body.get("access_token"), answer.body.get("refresh_token")
    for value in (access, refresh, answer.body.get("id_token")):
        if isinstance(value, str):
            asking.known(value)
    if not answer.good:
        raise _refusal(answer, issuer)
    if not isinstance(access, str) or len(access) > MAX_TOKEN or not _TOKEN.fullmatch(access):
        raise _odd(issuer, "no token that a header field can carry")
    if refresh is not None and (
        not isinstance(refresh, str) or len(refresh) > MAX_TOKEN or not _REFRESH.fullmatch(refresh)
    ):
        raise _odd(issuer, "a refresh token that is none")
    if str(answer.body.get("token_type", "")).lower() != "bearer":
        raise _odd(issuer, "another type of token than Bearer")
    given = answer.body.get("scope")
    granted = tuple(given.split()) if isinstance(given, str) and given else scopes
    if len(granted) > MAX_NAMES or not all(one.isascii() and one.isprintable() for one in granted):
        raise _odd(issuer, "scopes that are none")
    if scopes and not set(granted) <= set(scopes):
        raise _odd(issuer, "a token for more scopes than were asked for")
    now = time.time()
    life = _life(answer.body.get("expires_in"))
    renew = now + max(life - LEEWAY, life / 2) if life else 0.0
    return Tokens(access, refresh or "", granted, renew, now + life if life else 0.0, now)


def _life(value: Any) -> float:
    if isinstance(value, str) and value.isdecimal() and len(value) < len("0123456789ab"):
        value = int(value)  # some issuers write a number as text
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return 0.0
    return float(min(value, MAX_LIFE))


def _refusal(answer: Answer, issuer: Issuer) -> SandboxError:
    if answer.status >= _SERVER_ERROR:
        return PlatformError("OAU-019", f"{issuer.issuer} answers with status {answer.status}", "try again later")
    code = error_code(answer.body.get("error"))
    return TokenRefused(code, f"{issuer.issuer} gives no token (status {answer.status}{', ' if code else ''}{code})")


def error_code(value: Any) -> str:
    """Return an error code of OAuth, empty when it is none."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


def _odd(issuer: Issuer, what: str) -> ServerFault:
    return ServerFault("OAU-031", f"{issuer.issuer} answers with {what}", "report it to the issuer")


async def revoke(asking: Asking, issuer: Issuer, client: Client, token: str, kind: str) -> bool:
    """Take a token back (RFC 7009); return whether the issuer says that it is.

    Raises:
        SandboxError: as :meth:`~.asking.Asking.send`.
    """
    if not issuer.revocation or not token:
        return False
    own, fields = proof(client)
    answer = await asking.post(issuer.revocation, {"token": token, "token_type_hint": kind, **own}, fields)
    return answer.status == 200  # noqa: PLR2004 - the one success of RFC 7009
