"""The operator's page as an ASGI application below ``/ui``; ``Host`` and ``Origin`` were checked before.

Without a credential every path but style sheet and icon answers 401 with the same words, whether there is anything or
not. Whatever changes anything is a form sent by POST from the page itself (:mod:`sandbox.serve.ui.checks`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from sandbox.errors import AuditUnavailable, SandboxError
from sandbox.serve.http import fields
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.certificates import certificate_of
from sandbox.serve.ui.checks import own_form, read_form, same_origin
from sandbox.serve.ui.entrance import PATH, Entrance, Visitor
from sandbox.serve.ui.model import Note, Source
from sandbox.serve.ui.render import STATIC, made, render

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types mcp-sandbox-ui"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with `no-referrer` browsers would send forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
OPEN: Final = {"/static/ui.css": "ui.css", "/static/icon.svg": "icon.svg"}
"""What refusals are shown with, for everybody; it is the same in every gateway."""

HTML: Final = "text/html; charset=utf-8"

RENEW: Final = "x-mcp-sandbox-ui"
"""Header field of the script that renews the page: nobody does anything."""

KEEP: Final = 1.0
"""Seconds for which the parts are shown again, however many pages ask."""

MAX_LINES: Final = 5000
MAX_CHARACTERS: Final = 400_000
"""Of a change that is shown; a longer one is not approved here, since nobody has seen it whole."""


class Page:
    """The application.

    Args:
        source: gives what is shown.
        entrance: decides who comes in.
        origins: of this gateway itself.
        note: records a refusal.
    """

    def __init__(self, source: Source, entrance: Entrance, origins: frozenset[str], note: Note) -> None:
        self._source = source
        self._entrance = entrance
        self._origins = origins
        self._note = note
        self._parts: tuple[float, bytes] = (0.0, b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = fields.folded(scope["headers"])
        extra: dict[str, str] = {}
        try:
            status, body, kind = await self._answer(scope, receive, headers, extra)
        except HttpRefused as refusal:
            peer = (scope.get("client") or ("", 0))[0]
            self._note(refusal, path=scope["path"], method=scope["method"], peer=peer)
            status, kind, extra = refusal.status, HTML, refusal.headers
            body = render("refused.html", error=refusal, sign_in=status == 401, code="")  # noqa: PLR2004 - HTTP
        await _send(send, status, body, kind, extra, whole=scope["method"] != "HEAD")

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], extra: dict[str, str]
    ) -> tuple[int, bytes, str]:
        path, method = scope["path"].removeprefix(PATH).rstrip("/"), scope["method"]
        if path in OPEN and method in ("GET", "HEAD"):
            return 200, *STATIC[OPEN[path]]
        if path == "/sign-in":
            return await self._sign_in(scope, receive, headers, extra)
        visitor = await self._entrance.admit(headers, certificate_of(scope), acting=RENEW not in headers)
        if method == "POST":
            return await self._act(path, scope, receive, headers, extra, visitor)
        if method not in ("GET", "HEAD"):
            raise HttpRefused(405, "GATE-091", "this page is read, or sent one of its forms", "use GET")
        return await self._show(path, scope, visitor)

    async def _show(self, path: str, scope: Scope, visitor: Visitor) -> tuple[int, bytes, str]:
        name = path.removeprefix("/static/")
        if path.startswith("/static/") and name in STATIC:
            return 200, *STATIC[name]
        if path == "":
            return (
                200,
                render("page.html", parts=made(self._rendered()), visitor=visitor, about=self._source.about),
                HTML,
            )
        if path == "/parts":
            return 200, self._rendered(), HTML
        if path == "/change":
            return await self._change(_query(scope), visitor)
        raise HttpRefused(404, "GATE-090", "the operator's page has no such part", f"begin at `{PATH}`")

    def _rendered(self) -> bytes:
        """Return the parts of the page that change, made anew only every so often."""
        at, body = self._parts
        now = time.monotonic()
        if not body or now - at > KEEP:
            source = self._source
            body = render("parts.html", state=source.state(), seen=source.seen.now(), calls=source.calls)
            self._parts = (now, body)
        return body

    async def _change(self, query: Mapping[str, str], visitor: Visitor) -> tuple[int, bytes, str]:
        found = await self._source.told(*(query.get(name, "") for name in ("driver", "digest", "base")))
        if found is None:
            raise _stale()
        row, lines = found
        seen = _seen(lines)
        values = {"lines": lines[:seen], "whole": seen == len(lines), "about": self._source.about}
        return 200, render("change.html", change=row, visitor=visitor, **values), HTML

    # --- what changes something --------------------------------------------------------------------------------------
    async def _sign_in(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], extra: dict[str, str]
    ) -> tuple[int, bytes, str]:
        if scope["method"] != "POST":
            code = _query(scope).get("code", "")
            if not self._entrance.knows(code):
                await self._entrance.admit(headers, certificate_of(scope))  # says what is said everywhere
            return 200, render("refused.html", error=None, sign_in=True, code=code), HTML
        same_origin(headers, self._origins)
        form = await read_form(receive, headers)
        way = self._entrance.knows(form.get("code", "").strip())
        if not way:
            mend = "use the newest link, within its time, or the token of the file"
            raise HttpRefused(401, "GATE-089", "that does not open this page, or does so no more", mend)
        session, visitor = self._entrance.sign_in(way)
        peer = (scope.get("client") or ("", 0))[0]
        try:
            self._source.scope.fact("operator.sign_in", by=visitor.by, way=way, peer=peer)
        except SandboxError:
            self._entrance.sign_out(visitor)
            raise
        extra |= {"Set-Cookie": self._entrance.cookie_field(session), "Location": PATH}
        return 303, b"", HTML

    async def _act(
        self,
        path: str,
        scope: Scope,  # noqa: ARG002 - as the others
        receive: Receive,
        headers: Mapping[str, str],
        extra: dict[str, str],
        visitor: Visitor,
    ) -> tuple[int, bytes, str]:
        same_origin(headers, self._origins)
        form = await read_form(receive, headers)
        own_form(form, visitor.form)
        if path == "/sign-out":
            self._entrance.sign_out(visitor)  # also when it cannot be recorded
            self._source.scope.fact("operator.sign_out", by=visitor.by)
            extra |= {"Set-Cookie": self._entrance.cookie_field("")}
            return 200, render("refused.html", error=None, sign_in=True, code=""), HTML
        if path != "/approve":
            raise HttpRefused(404, "GATE-090", "the operator's page has no such part", f"begin at `{PATH}`")
        await self._approve(form, visitor)
        self._parts = (0.0, b"")
        extra |= {"Location": f"{PATH}#changes"}
        return 303, b"", HTML

    async def _approve(self, form: Mapping[str, str], visitor: Visitor) -> None:
        """Approve what was shown; who wants to is on record before anything is judged."""
        if not visitor.approver:
            mend = "ask for a credential with the scope `mcp-sandbox:operator`"
            raise HttpRefused(403, "GATE-086", "you may look, and not approve", mend)
        driver, digest, base = (form.get(name, "") for name in ("driver", "digest", "base"))
        found = await self._source.told(driver, digest, base)
        if found is None or _seen(found[1]) < len(found[1]):
            raise _stale()
        scope = self._source.scope.within(driver=driver)
        scope.intent("operator.approve", by=visitor.by, digest=digest, base=base)
        try:
            await self._source.approve(driver, digest, base, visitor.by)
        except OSError as error:
            scope.outcome("operator.approve", by=visitor.by, status="GATE-092")
            text = f"driver.lock of `{driver[:80]}` cannot be written: {type(error).__name__}"
            raise HttpRefused(409, "GATE-092", text, "let the gateway write there, or run `pins approve`") from None
        except AuditUnavailable:
            raise
        except SandboxError as error:
            scope.outcome("operator.approve", by=visitor.by, status=error.id)
            if error.id == "VET-133":
                raise _stale() from None
            raise HttpRefused(409, "GATE-094", f"not approved: {error.id} {error.message}", error.mend) from None
        scope.outcome("operator.approve", by=visitor.by, status="approved")


def _seen(lines: Sequence[str]) -> int:
    """Return how many lines of a change are shown."""
    characters = itertools.accumulate(map(len, lines[:MAX_LINES]))
    return sum(1 for _ in itertools.takewhile(lambda reached: reached <= MAX_CHARACTERS, characters))


def _stale() -> HttpRefused:
    text = "what was shown is no longer the change that is pending; nothing was approved"
    return HttpRefused(409, "GATE-088", text, "look at what is pending now, and decide again")


def _query(scope: Scope) -> dict[str, str]:
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=8)
    except ValueError:
        return {}
    return {name: value[:512] for name, value in pairs}


async def _send(send: Send, status: int, body: bytes, kind: str, extra: Mapping[str, str], *, whole: bool) -> None:
    told = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body)), **extra}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body if whole else b"", "more_body": False})
