"""What the header fields of a request may say: where it was sent, from where, and that they agree with its body.

Sources: MCP 2025-11-25 and 2026-07-28, basic/transports, Streamable HTTP (Origin, Accept, versions, request metadata);
RFC 9110 §7.2 (Host), §12.5.1 (Accept).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.serve.http.refusals import HttpRefused, malformed
from sandbox.wire import headers as wire_headers
from sandbox.wire import meta, tasks
from sandbox.wire.codes import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from sandbox.wire.jsonrpc import Request
from sandbox.wire.methods import FROM_CLIENT
from sandbox.wire.versions import STATELESS_VERSIONS, VERSIONS

SINGLE: Final = (
    b"host", b"origin", b"authorization", b"content-type", b"content-length", b"mcp-session-id",
    b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"last-event-id",
)  # fmt: skip
"""Fields that may stand once: of two, two readers would take different ones."""

_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.IGNORECASE)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

RawHeaders = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Places:
    """Where this gateway may be addressed, and from where browsers may.

    Attributes:
        hosts: values of ``Host``, lower case.
        origins: values of ``Origin``, lower case.
    """

    hosts: frozenset[str]
    origins: frozenset[str]


def places_of(
    listen: tuple[str, int], public_url: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()
) -> Places:
    """Return what a gateway answers to: its own address, its public URL and what its operator names.

    Args:
        listen: address and port.
        public_url: as clients write it, empty when they use the address.
        hosts: further values of ``Host``.
        origins: values of ``Origin`` beside those of the hosts.
    """
    address, port = listen
    names = {address}
    if address in {"127.0.0.1", "::1", "localhost"}:
        names = {"127.0.0.1", "[::1]", "localhost"}
    own = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())  # noqa: PLR2004 - http's
    allowed = {f"http://{one}" for one in own}
    if public_url:
        parts = urlsplit(public_url)
        own.add(parts.netloc.lower())
        allowed.add(f"{parts.scheme}://{parts.netloc}".lower())
    return Places(frozenset(own | {one.lower() for one in hosts}), frozenset(allowed | {o.lower() for o in origins}))


def folded(raw: RawHeaders) -> dict[str, str]:
    """Return the header fields by lower-case name.

    Raises:
        HttpRefused: ``GATE-003``, a field that may stand once stands twice.
    """
    found: dict[str, str] = {}
    for name, value in raw:
        if name in SINGLE and name.decode("latin-1") in found:
            text = f"two `{name.decode('latin-1')}` fields"
            raise malformed("GATE-003", text, "send it once", code=HEADER_MISMATCH)
        found.setdefault(name.decode("latin-1"), value.decode("latin-1").strip(" \t"))
    return found


def check_place(headers: Mapping[str, str], places: Places, *, any_origin: bool = False) -> None:
    """Refuse requests that a browser was tricked into: to a name that is not ours, or from a page that is not.

    Args:
        headers: folded.
        places: what is ours.
        any_origin: pages of others may read this.

    Raises:
        HttpRefused: ``GATE-001`` (421) another host, ``GATE-002`` (403) another origin.
    """
    if headers.get("host", "").lower() not in places.hosts:
        raise HttpRefused(421, "GATE-001", "this gateway does not answer to that `Host`", "name it in `allowed_hosts`")
    origin = None if any_origin else headers.get("origin")
    if origin is not None and _without_default_port(origin.lower()) not in places.origins:
        raise HttpRefused(403, "GATE-002", "requests of that `Origin` are refused", "name it in `allowed_origins`")


def _without_default_port(origin: str) -> str:
    scheme, _, rest = origin.partition("://")
    return origin.removesuffix(f":{_DEFAULT_PORTS[scheme]}") if scheme in _DEFAULT_PORTS and rest else origin


def accepts(headers: Mapping[str, str], *kinds: str) -> bool:
    """Return whether a client takes every one of some media types; a missing field takes all (RFC 9110 §12.5.1)."""
    offered = [part.split(";")[0].strip().lower() for part in headers.get("accept", "*/*").split(",")]
    return all(kind in offered or "*/*" in offered or f"{kind.split('/')[0]}/*" in offered for kind in kinds)


def check_post(headers: Mapping[str, str]) -> None:
    """Refuse a POST of another type than JSON, and one whose client cannot read our answers.

    Raises:
        HttpRefused: ``GATE-004`` (406), ``GATE-005`` (415).
    """
    if not accepts(headers, "application/json", "text/event-stream"):
        mend = "send `Accept: application/json, text/event-stream`"
        raise malformed("GATE-004", "the client does not accept both JSON and event streams", mend, status=406)
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" or "content-encoding" in headers:
        raise malformed("GATE-005", "the body is not plain JSON", "send `Content-Type: application/json`", status=415)


def is_stateless(headers: Mapping[str, str], message: Any) -> bool:
    """Return whether a message is of the stateless era, by its field or by itself; they are compared later."""
    named = headers.get("mcp-protocol-version", "")
    params = getattr(message, "params", {})
    return named in STATELESS_VERSIONS or (
        meta.PROTOCOL_VERSION in meta.of(params) and getattr(message, "method", "") != "initialize"
    )


def is_about_task(headers: Mapping[str, str]) -> bool:
    """Return whether a request says that it is about a task of the extension; its body is compared later."""
    named = headers.get("mcp-protocol-version", "")
    return named in STATELESS_VERSIONS and headers.get("mcp-method") in tasks.METHODS


def check_version(headers: Mapping[str, str], request_id: Any = None, spoken: tuple[str, ...] = VERSIONS) -> None:
    """Refuse a version that we do not speak; a missing field stands for an old client.

    Args:
        headers: folded.
        request_id: of the message.
        spoken: versions of the era that the request is of.

    Raises:
        HttpRefused: ``GATE-006``.
    """
    named = headers.get("mcp-protocol-version")
    if named is not None and named not in spoken:
        data = {"supported": list(spoken), "requested": named[:64]}
        text = "the protocol version is not spoken here"
        raise malformed(
            "GATE-006", text, f"use one of {', '.join(spoken)}", code=UNSUPPORTED_VERSION, data=data,
            request_id=request_id,
        )  # fmt: skip


def check_agreement(headers: Mapping[str, str], request: Request, more: Collection[str] = ()) -> None:
    """Hold the fields of a stateless request against its body (2026-07-28, request metadata).

    Args:
        headers: folded.
        request: of the body.
        more: methods of extensions that are offered here.

    Raises:
        HttpRefused: ``GATE-007`` they disagree or one is missing (−32020); ``GATE-008`` the body does not say its
            version (−32602); ``GATE-009`` the version has no such method (404, −32601).
    """
    version = meta.of(request.params).get(meta.PROTOCOL_VERSION)
    named = headers.get("mcp-protocol-version")
    if request.method == "initialize":
        raise _unknown(request)
    if not isinstance(version, str):
        mend = f"send `_meta[{meta.PROTOCOL_VERSION!r}]` with every request"
        text = "the body does not say its protocol version"
        raise malformed("GATE-008", text, mend, code=INVALID_PARAMS, request_id=request.id)
    if named != version:
        raise _disagree("MCP-Protocol-Version", request)
    check_version(headers, request.id, STATELESS_VERSIONS)
    if headers.get("mcp-method") != request.method:
        raise _disagree("Mcp-Method", request)
    if version in FROM_CLIENT and request.method not in FROM_CLIENT[version] and request.method not in more:
        raise _unknown(request)
    repeated = wire_headers.NAMES.get(request.method)
    if repeated is not None:
        name = request.params.get(repeated)
        if not isinstance(name, str) or decoded(headers.get("mcp-name")) != name:
            raise _disagree("Mcp-Name", request)


def check_parameters(headers: Mapping[str, str], request: Request, schema: Mapping[str, Any]) -> None:
    """Hold ``Mcp-Param-…`` fields against the arguments that a tool's schema says they repeat.

    Raises:
        HttpRefused: ``GATE-007``.
    """
    try:
        wanted = wire_headers.repeated(schema)
    except ValueError:  # such a tool is not exposed; nothing of it is repeated
        return
    expected = {
        name.lower(): value
        for name, value in wire_headers.of_message(request, wanted).items()
        if name.startswith("Mcp-Param-")
    }
    for token in wanted.values():
        name = f"mcp-param-{token.lower()}"
        if decoded(headers.get(name)) != decoded(expected.get(name)):
            raise _disagree(f"Mcp-Param-{token}", request)


def decoded(value: str | None) -> str | None:
    """Return what a field repeats, out of Base64 where it is in it; ``None`` when it is malformed or absent."""
    found = _SENTINEL.fullmatch(value) if value is not None else None
    if found is None:
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _disagree(field: str, request: Request) -> HttpRefused:
    mend = "make the fields from the message that is sent"
    text = f"`{field}` is missing or does not say what the body says"
    return malformed("GATE-007", text, mend, code=HEADER_MISMATCH, request_id=request.id)


def _unknown(request: Request) -> HttpRefused:
    text = f"there is no method `{request.method[:64]}` in this version"
    return malformed(
        "GATE-009", text, "use the methods of the version", status=404, code=METHOD_NOT_FOUND, request_id=request.id
    )
