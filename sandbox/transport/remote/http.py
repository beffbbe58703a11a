"""HTTP/1.1 requests to one remote server: bounded, uncompressed, redirects checked hop by hop.

h11 parses and writes. What a hostile server can do is held here: an endless head or body, a body that is compressed,
two fields of one name, a redirect to somewhere else. Credentials go to the origin that the driver names and to no
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final, Protocol

import h11

from sandbox.errors import PlatformError, SandboxError, ServerFault
from sandbox.limits import HTTP_IDLE, MAX_HTTP_HEAD, MAX_IDLE_CONNECTIONS, MAX_REDIRECTS
from sandbox.transport.remote.address import Target, joined
from sandbox.transport.remote.dial import Connection, Dialer

REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
KEEPING: Final = frozenset((307, 308))
"""Redirects that keep method and body (RFC 9110 §15.4)."""

MAX_INFORMATIONAL: Final = 8
"""1xx answers before the real one."""

SINGLE: Final = (b"content-type", b"content-encoding", b"mcp-session-id", b"location")
"""Fields that may stand once: two readers might choose different ones."""


REFUSED: Final = "see whether server.url is the resource that its tokens are for, and what the account may do there"
"""What to do about a server that takes no token."""

MAX_CHALLENGES: Final = 8
"""``WWW-Authenticate`` fields of one answer that are looked at."""

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


class Bearer(Protocol):
    """Has the token for one server (:mod:`sandbox.transport.remote.oauth.bearer`)."""

    async def token(self) -> str:
        """Return an access token that is good as far as is known.

        Raises:
            SandboxError: there is none, and none can be got.
        """

    async def renewed(self, refused: str) -> bool:
        """Return whether there is another token now that the server has refused this one.

        Raises:
            SandboxError: none can be got.
        """

    def insufficient(self, challenges: tuple[str, ...]) -> SandboxError | None:
        """Return what to say of an answer that asks for more scopes, ``None`` when it does not."""


class Response:
    """The head of an answer, and its body to be read.

    Attributes:
        target: what answered, after redirects.
        challenges: its ``WWW-Authenticate`` fields.
        headers: lower-case name → value, of those in :data:`SINGLE`.
    """

    def __init__(self, client: HttpClient, line: _Line, target: Target, event: h11.Response) -> None:
        self.target = target
        self.status = int(event.status_code)
        self.headers = _single(event)
        found = [value.decode("latin-1") for name, value in event.headers if name.lower() == b"www-authenticate"]
        self.challenges = tuple(found[:MAX_CHALLENGES])
        self._client, self._line = client, line

    def check(self) -> None:
        """Refuse a compressed body: a few bytes of it can stand for any amount of memory (WIRE-067)."""
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            message = "the server sent a compressed body, which was not asked for"
            raise ServerFault("WIRE-067", message, "report it to the server's author")

    @property
    def kind(self) -> str:
        """Media type without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; afterwards the connection serves another request.

        Raises:
            ServerFault: ``WIRE-064``, it breaks HTTP.
            PlatformError: ``WIRE-063``, the connection broke.
        """
        while (data := await self._line.body()) is not None:
            yield data
        self._client.give_back(self.target, self._line)

    def close(self) -> None:
        """Drop the connection with what of the body was not read; idempotent, harmless after the end."""
        self._line.close()


class _Line:
    """One connection with its HTTP state."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HTTP_HEAD)
        self.in_pool = False

    async def request(self, method: str, target: Target, headers: list[tuple[str, str]], body: bytes) -> h11.Response:
        """Send one request and return the head of its answer."""
        fields = [("Host", target.authority), *headers]
        if body:
            fields.append(("Content-Length", str(len(body))))
        try:
            out = self._state.send(h11.Request(method=method, target=target.path, headers=fields)) or b""
            out += self._state.send(h11.Data(data=body)) or b"" if body else b""
            out += self._state.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise ServerFault("WIRE-064", f"a request that HTTP cannot carry: {error}", "correct the headers") from None
        await self._connection.write(out)
        for _ in range(MAX_INFORMATIONAL):
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                break
        raise ServerFault("WIRE-064", "the server did not answer in HTTP", "report it to the server's author")

    async def body(self) -> bytes | None:
        """Return the next bytes of the body, ``None`` at its end."""
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return None
        raise ServerFault("WIRE-064", "the server did not answer in HTTP", "report it to the server's author")

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            try:
                event = self._state.next_event()
            except h11.RemoteProtocolError as error:
                self.close()
                if str(error).startswith("peer closed connection") or "unexpectedly" in str(error):
                    raise PlatformError("WIRE-063", "the server closed the connection", "try again") from None
                message = f"the server broke HTTP: {str(error)[:200]}"
                raise ServerFault("WIRE-064", message, "report it to the server's author") from None
            if event is not h11.NEED_DATA:
                if isinstance(event, h11.ConnectionClosed):
                    raise PlatformError("WIRE-063", "the server closed the connection", "try again")
                return event  # type: ignore[return-value] # NEED_DATA is excluded above
            self._state.receive_data(await self._connection.read())

    def renewed(self) -> bool:
        """Return whether it can carry another request; then it is ready for it."""
        if not self._connection.usable or self._state.our_state is not h11.DONE:
            return False
        if self._state.their_state is not h11.DONE or self._state.trailing_data[0]:
            return False
        self._state.start_next_cycle()
        return True

    @property
    def usable(self) -> bool:
        """Whether nothing came since the last answer, not even the end."""
        return self._connection.usable

    def close(self) -> None:
        """Close; idempotent."""
        self._connection.close()


class HttpClient:
    """Requests to one server.

    Args:
        dialer: makes its connections.
        home: the URL that the driver names; credentials go to its origin only.
        credentials: header fields of the driver.
        bearer: has tokens for the home origin, where the driver asks for them.
    """

    def __init__(
        self, dialer: Dialer, home: Target, credentials: Mapping[str, str], bearer: Bearer | None = None
    ) -> None:
        self._dialer, self._home = dialer, home
        self._credentials = dict(credentials)
        self._bearer = bearer
        self._idle: dict[tuple[str, str, int], list[_Line]] = {}
        self._closed = False

    async def send(
        self, method: str, target: Target, headers: Mapping[str, str], private: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """Send a request and return its answer, after at most :data:`~sandbox.limits.MAX_REDIRECTS` redirects.

        Args:
            method: ``GET``, ``POST`` or ``DELETE``.
            target: where it begins.
            headers: sent at every hop.
            private: sent to the home origin only, like the credentials.
            body: sent again at hops that keep it.

        Raises:
            ServerFault: ``WIRE-062``, ``WIRE-064``, ``WIRE-066`` the server redirects in a way that is not followed.
            SandboxError: as :meth:`~sandbox.transport.remote.dial.Dialer.open`.
        """
        headers = {"User-Agent": "mcp-sandbox", "Accept-Encoding": "identity", **headers}
        for _ in range(MAX_REDIRECTS + 1):
            if target.origin != self._home.origin:
                response = await self._hop(method, target, [*headers.items()], body)
            else:
                response = await self._at_home(method, target, {**headers, **self._credentials, **private}, body)
            if response.status not in REDIRECTS:
                return response
            response.close()
            target = self._redirected(method, target, response)
        raise ServerFault("WIRE-066", f"more than {MAX_REDIRECTS} redirects", "name the server's real address")

    async def once(self, method: str, target: Target, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """Send a request without any credentials of this client and return its answer, which may be a redirect.

        Raises:
            SandboxError: as :meth:`send`.
        """
        return await self._hop(method, target, [*headers.items()], body)

    async def _at_home(self, method: str, target: Target, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request to the home origin, with a token where there are any; a refused one is renewed once.

        A request that is refused with 401 was not carried out (RFC 9110 §15.5.2), so that it can be sent again.
        """
        if self._bearer is None:
            return await self._hop(method, target, [*headers.items()], body)
        for last in (False, True):
            token = await self._bearer.token()
            fields = {**headers, "Authorization": f"Bearer {token}"}
            response = await self._hop(method, target, [*fields.items()], body)
            if response.status == _FORBIDDEN and (error := self._bearer.insufficient(response.challenges)) is not None:
                response.close()
                raise error
            if response.status != _UNAUTHORIZED:
                break
            response.close()
            if last or not await self._bearer.renewed(token):
                raise ServerFault("OAU-033", "the server refuses a token that was just issued for it", REFUSED)
        return response

    async def _hop(self, method: str, target: Target, headers: list[tuple[str, str]], body: bytes) -> Response:
        line = self._pooled(target) or _Line(await self._dialer.open(target))
        try:
            response = Response(self, line, target, await line.request(method, target, headers, body))
            response.check()
        except BaseException:
            line.close()
            raise
        return response

    def _redirected(self, method: str, target: Target, response: Response) -> Target:
        """Return where a redirect leads; it is checked like any address when it is dialled."""
        location = response.headers.get("location", "")
        if not location:
            raise ServerFault("WIRE-066", "a redirect without a location", "name the server's real address")
        if method != "GET" and response.status not in KEEPING:
            message = f"status {response.status} would turn a {method} into something else"
            raise ServerFault("WIRE-066", message, "name the server's real address")
        there = joined(target, location)
        if target.scheme == "https" and there.scheme == "http":
            raise ServerFault("WIRE-066", "a redirect from https to plain http", "name the server's real address")
        self._dialer.check(there)
        return there

    def _pooled(self, target: Target) -> _Line | None:
        lines = self._idle.get(target.origin, [])
        while lines:
            line = lines.pop()
            line.in_pool = False
            if line.usable:
                return line
            line.close()
        return None

    def give_back(self, target: Target, line: _Line) -> None:
        """Keep a connection for the next request, for a while."""
        lines = self._idle.setdefault(target.origin, [])
        if self._closed or not line.renewed() or len(lines) >= MAX_IDLE_CONNECTIONS:
            line.close()
            return
        line.in_pool = True
        lines.append(line)
        asyncio.get_running_loop().call_later(HTTP_IDLE, self._expire, lines, line)

    def _expire(self, lines: list[_Line], line: _Line) -> None:
        if line.in_pool and line in lines:
            lines.remove(line)
            line.close()

    def close(self) -> None:
        """Close every idle connection, and those that come back."""
        self._closed = True
        for lines in self._idle.values():
            for line in lines:
                line.close()
            lines.clear()


def _single(event: h11.Response) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in event.headers:
        if name.lower() not in SINGLE:
            continue
        key = name.decode("ascii").lower()
        if key in found:
            raise ServerFault("WIRE-064", f"the server sent `{key}` twice", "report it to the server's author")
        found[key] = value.decode("latin-1")
    return found
