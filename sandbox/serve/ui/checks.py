"""What every form of the operator's page has to pass before it is read: where it comes from, and its own secret."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Receive

from sandbox.serve.http.refusals import HttpRefused

MAX_FORM: Final = 4096
"""Bytes of a form: digests and a driver's id."""

MAX_FIELDS: Final = 8

FORM_SECONDS: Final = 10.0

FORM_TYPE: Final = "application/x-www-form-urlencoded"


def same_origin(headers: Mapping[str, str], origins: frozenset[str]) -> None:
    """Refuse a form that a page of somebody else has sent; a browser says whose page it is, and cannot be told not to.

    Args:
        headers: folded; ``Host`` was checked.
        origins: of this gateway itself, without those that its operator admits to the endpoints.

    Raises:
        HttpRefused: ``GATE-087`` (403).
    """
    origin, site = headers.get("origin", "").lower(), headers.get("sec-fetch-site", "same-origin")
    host = origin.partition("://")[2]
    if origin not in origins or host != headers.get("host", "").lower() or site != "same-origin":
        raise _foreign()


def own_form(form: Mapping[str, str], expected: str) -> None:
    """Refuse a form that does not carry what this visitor's own page was given.

    Raises:
        HttpRefused: ``GATE-087`` (403).
    """
    if not hmac.compare_digest(form.get("form", "").encode(), expected.encode()):
        raise _foreign()


async def read_form(receive: Receive, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        HttpRefused: ``GATE-093`` (400), too large, too slow, of another type, or ambiguous.
    """
    if headers.get("content-type", "").split(";")[0].strip().lower() != FORM_TYPE:
        raise _malformed(f"its type is not {FORM_TYPE}")
    try:
        body = await asyncio.wait_for(_body(receive), FORM_SECONDS)
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=MAX_FIELDS, keep_blank_values=True, strict_parsing=True)
    except (TimeoutError, ValueError) as error:
        raise _malformed(type(error).__name__) from None
    if len(dict(pairs)) != len(pairs):
        raise _malformed("a field stands twice")
    return dict(pairs)


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ValueError
        body += message.get("body", b"")
        if len(body) > MAX_FORM:
            raise ValueError
        if not message.get("more_body"):
            return body


def _foreign() -> HttpRefused:
    return HttpRefused(403, "GATE-087", "the form was not sent from this page", "open the page, and send its own form")


def _malformed(why: str) -> HttpRefused:
    return HttpRefused(400, "GATE-093", f"the form cannot be read: {why}", "send what the page holds")
