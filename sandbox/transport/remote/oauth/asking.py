"""Requests to authorization servers, and for metadata: dialled like remote servers are, bounded, over TLS, never moved.

The same :class:`~sandbox.transport.remote.dial.Dialer` checks host, port and address of each of them, so that metadata
that names a private address or a host that the driver does not declare leads nowhere. Plain HTTP is refused here
whatever the operator allows for the server, and a redirect is an error: who is asked is who the reviewed file, or the
metadata of an issuer that was checked, names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from sandbox import jsontext
from sandbox.errors import PlanRefused, PlatformError, ServerFault
from sandbox.events import Scope
from sandbox.limits import MAX_OAUTH_BODY, OAUTH_TIMEOUT
from sandbox.transport.remote.address import Target, target_of
from sandbox.transport.remote.dial import Dialer
from sandbox.transport.remote.http import REDIRECTS, HttpClient, Response

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
HEADERS: Final = {"User-Agent": "mcp-sandbox", "Accept": JSON, "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered: a status, and the JSON object of the body, empty when there is none."""

    status: int
    body: Mapping[str, Any]
    challenges: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it is a success with an object."""
        return self.status in {200, 201} and bool(self.body)


@dataclass(frozen=True, slots=True)
class Asking:
    """What sends the requests of one login.

    Attributes:
        dialer: of the server's plan.
        scope: where it is recorded.
        known: is told every secret before anything else is done with it.
    """

    dialer: Dialer
    scope: Scope
    known: Callable[[str], None]

    async def get(self, url: str) -> Answer:
        """Return a document.

        Raises:
            SandboxError: as :meth:`send`.
        """
        return await self.send("GET", url)

    async def post(self, url: str, form: Mapping[str, str], fields: Mapping[str, str]) -> Answer:
        """Send a form.

        Raises:
            SandboxError: as :meth:`send`.
        """
        return await self.send("POST", url, {"Content-Type": FORM, **fields}, urlencode(form).encode())

    async def send(self, method: str, url: str, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        """Send one request and return its answer.

        Raises:
            PlanRefused: ``OAU-016``, the address is not https; ``EGR-…``, it may not be reached.
            ServerFault: ``OAU-017``, a redirect; ``OAU-018``, an answer beyond the bounds.
            PlatformError: ``OAU-019``, no answer in time; ``EGR-…``, no connection.
        """
        target = secure(url)
        client = HttpClient(replace(self.dialer, plain=frozenset()), target, {})
        try:
            async with asyncio.timeout(OAUTH_TIMEOUT):
                response = await client.once(method, target, {**HEADERS, **(fields or {})}, body)
                if response.status in REDIRECTS:
                    response.close()
                    message = f"{target} answers with a redirect, which is not followed: it would be asked elsewhere"
                    raise ServerFault("OAU-017", message, "name the real address, or report it to the server's author")
                return Answer(response.status, _object(await _body(response, target)), response.challenges)
        except TimeoutError:
            message = f"{target} did not answer within {OAUTH_TIMEOUT:g} s"
            raise PlatformError("OAU-019", message, "see whether it is up") from None
        finally:
            client.close()


def secure(url: str) -> Target:
    """Return an address that may be asked.

    Raises:
        PlanRefused: ``OAU-016``, it is not https.
        ServerFault: ``WIRE-062``, it is none.
    """
    target = target_of(url.partition("#")[0])
    if target.scheme != "https" or "#" in url:
        message = f"{target} is not an https address without a fragment, and is not asked about tokens"
        raise PlanRefused("OAU-016", message, "report it to the server's author")
    return target


async def _body(response: Response, target: Target) -> bytes:
    data = bytearray()
    async for piece in response.chunks():
        data += piece
        if len(data) > MAX_OAUTH_BODY:
            response.close()
            message = f"{target} answers with more than {MAX_OAUTH_BODY} bytes"
            raise ServerFault("OAU-018", message, "report it to the server's author")
    return bytes(data)


def _object(data: bytes) -> Mapping[str, Any]:
    """Return a JSON object; what is none is as good as nothing."""
    try:
        value = jsontext.parse(data)
    except jsontext.JsonTextError:
        return {}
    return value if isinstance(value, dict) else {}
