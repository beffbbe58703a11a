"""What an answer of the dialect has to be, one rule a function; each raises :class:`Broken` with what it found."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import jsonschema

from sandbox.dialect.links import Reply
from sandbox.dialect.model import milliseconds
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import RELEASES
from sandbox.errors import SandboxError
from sandbox.serve.ratelimit import parse_header
from sandbox.vet.validators import SchemaValidator

SCHEMAS: Final = ("/resources/schemas/", "resources/schemas/")
"""Where shared definitions lie; a reference inside a document begins with ``#``."""

_SHORTEST, _LONGEST = 0.02, 5.0
_OK, _NOT_MODIFIED, _UNAUTHORIZED, _ERRORS = 200, 304, 401, 400
_WRONG: Final[tuple[dict[str, Any], ...]] = ({}, {"mcp-sandbox-validate": [None]}, {"": {"": 0}})


class Broken(Exception):
    """The server does not keep a rule."""


class Skipped(Exception):
    """A check cannot be made here."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Names a job, and says when to ask for it."""

    job: str
    poll_after: float


def _object(reply: Reply, what: str) -> dict[str, Any]:
    if not isinstance(reply.body, dict):
        raise Broken(f"{what} is no JSON object (HTTP {reply.status})")
    return reply.body


def _metadata(said: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    found = said.get("metadata") or {}
    if not isinstance(found, dict):
        raise Broken(f"`metadata` of {what} is no object")
    return found


def agreement(reply: Reply, target: str, transport: str) -> dict[str, Any]:
    """Return the answer to a handshake that agrees on a release."""
    said = _object(reply, "the answer to the handshake")
    if reply.status >= _ERRORS or said.get("status") == "error":
        raise Broken(f"the handshake was refused: {str(said)[:200]}")
    version = said.get("version") or said.get("mcp_version")
    if version != target:
        raise Broken(f"{target} was asked for, and {str(version)[:40]!r} is the answer")
    if not isinstance(said.get("server_id"), str) or not said["server_id"]:
        raise Broken("the answer to the handshake has no `server_id`")
    named = said.get("capabilities")
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise Broken("the answer to the handshake has no list `capabilities`")
    if said.get("transport", transport) != transport:
        raise Broken(f"the answer to the handshake is for the transport {str(said['transport'])[:20]!r}")
    return said


def not_agreed(reply: Reply, version: str | None, target: str) -> None:
    """Hold a server to refusing a version, or to stepping down to a release that exists."""
    if not isinstance(reply.body, dict) or reply.status >= _ERRORS or reply.body.get("status") == "error":
        return
    said = reply.body.get("version") or reply.body.get("mcp_version")
    if version in RELEASES and said in RELEASES:
        asked, got = RELEASES.index(str(version)), RELEASES.index(str(said))
        if abs(asked - got) <= 1 and str(said) <= target:
            return
    raise Broken(f"the version {version!r} was answered by agreeing on {str(said)[:40]!r}")


def listed(reply: Reply) -> tuple[str, ...]:
    """Return the paths of the descriptors that a folder lists."""
    files = _object(reply, "the listing of `tools/`").get("files")
    if reply.status != _OK or not isinstance(files, list):
        raise Broken(f"`tools/` is no listing with `files` (HTTP {reply.status})")
    paths = [one.get("path") if isinstance(one, dict) else one for one in files]
    if not all(isinstance(path, str) and path.startswith("tools/") and path.endswith(".json") for path in paths):
        raise Broken("`tools/` lists something other than `tools/….json`")
    return tuple(str(path) for path in paths)


def descriptor(path: str, reply: Reply) -> dict[str, Any]:
    """Return the descriptor of a path."""
    found = _object(reply, path)
    for name, kind in (("tool_id", str), ("name", str), ("input_schema", dict), ("output_schema", dict)):
        if not isinstance(found.get(name), kind) or (kind is str and not found[name]):
            raise Broken(f"{path} has no `{name}`")
    for name in ("input_schema", "output_schema"):
        try:
            jsonschema.Draft202012Validator.check_schema(found[name])
        except jsonschema.SchemaError as error:
            raise Broken(f"`{name}` of {path} is no JSON Schema: {error.message[:200]}") from None
    latency = _metadata(found, path).get("latency")
    if latency is not None:
        try:
            milliseconds(str(latency))
        except DialectRefused as error:
            raise Broken(f"{path}: {error.message}") from None
    return found


def references(path: str, found: Mapping[str, Any]) -> None:
    """Hold the references of a descriptor to the document itself and to the server's shared definitions."""
    for reference in _references([found["input_schema"], found["output_schema"]]):
        if not reference.startswith(("#", *SCHEMAS)) or ".." in reference:
            raise Broken(f"{path} refers to {reference[:100]!r}")


def _references(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from (str(one[key]) for key in ("$ref", "$dynamicRef") if isinstance(one.get(key), str))
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def etag(path: str, reply: Reply) -> None:
    """Hold an ETag to being the SHA-256 of what was sent."""
    told = reply.headers.get("etag", "")
    if told.strip('"').removeprefix("sha256:") != hashlib.sha256(reply.data).hexdigest():
        raise Broken(f"the ETag of {path}, {told[:80]!r}, is not the SHA-256 of its bytes")


def unchanged(path: str, reply: Reply) -> None:
    """Hold a server to answering that a client has the bytes already."""
    if reply.status != _NOT_MODIFIED or reply.data:
        raise Broken(f"{path} was sent again (HTTP {reply.status}) to a client that has it")


def refused(reply: Reply, request: str | None, what: str) -> None:
    """Hold an answer to being a refusal in the dialect's form."""
    said = _object(reply, f"the answer to {what}")
    if said.get("status") != "error":
        raise Broken(f"{what} is answered with status {str(said.get('status'))[:20]!r}")
    if request is not None and said.get("request_id") != request:
        raise Broken(f"the refusal of {what} has another `request_id`")


def misfit(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments that a schema refuses, ``None`` when none of a few is."""
    try:
        validator = SchemaValidator(dict(schema), "input_schema")
        return next((dict(one) for one in _WRONG if validator.mismatch(one) is not None), None)
    except SandboxError:
        return None


def success(reply: Reply, request: str) -> dict[str, Any]:
    """Return an answer that is a success, to the request that was made."""
    said = _object(reply, "the answer")
    if said.get("status") != "success":
        raise Broken(f"the call gave {str(said.get('error') or said.get('status'))[:200]}")
    if said.get("request_id") != request:
        raise Broken("the answer has another `request_id` than the request")
    if "result" not in said:
        raise Broken("the answer has no `result`")
    took = _metadata(said, "the answer").get("duration_ms")
    if not isinstance(took, int | float) or isinstance(took, bool) or took < 0:
        raise Broken("the answer has no `metadata.duration_ms`")
    return said


def result(reply: Reply, schema: Mapping[str, Any]) -> None:
    """Hold a result to the output schema of its descriptor."""
    wrong = SchemaValidator(dict(schema), "output_schema").mismatch(reply.body.get("result")) if schema else None
    if wrong is not None:
        raise Broken(f"the result does not fit `output_schema`: {str(wrong)[:200]}")


def handle(reply: Reply, request: str) -> Handle:
    """Return the handle of a job."""
    said = _object(reply, "the answer to an asynchronous request")
    if said.get("status") not in ("in_progress", "success") or said.get("request_id") != request:
        raise Broken(f"an asynchronous request is answered with {str(said)[:200]}")
    job, after = said.get("job_id"), said.get("poll_after")
    if not isinstance(job, str) or not job:
        raise Broken("the handle has no `job_id`")
    if not isinstance(after, int | float) or isinstance(after, bool) or after < 0:
        raise Broken("the handle has no `poll_after`")
    return Handle(job, float(after))


def over(reply: Reply) -> bool:
    """Return whether a job has ended."""
    said = _object(reply, "the answer for a job")
    if said.get("status") not in ("in_progress", "success", "error"):
        raise Broken(f"a job has the status {str(said.get('status'))[:20]!r}")
    return bool(said["status"] != "in_progress")


async def pause(seconds: float) -> None:
    """Wait before a job is asked for again."""
    await asyncio.sleep(min(_LONGEST, max(_SHORTEST, seconds)))


def answer_headers(reply: Reply, url: str) -> None:
    """Hold an answer to the header fields that keep it from being kept or misread."""
    fields = reply.headers
    if "no-store" not in fields.get("cache-control", ""):
        raise Broken("answers do not say `Cache-Control: no-store`")
    if fields.get("x-content-type-options", "").lower() != "nosniff":
        raise Broken("answers do not say `X-Content-Type-Options: nosniff`")
    try:
        parse_header(fields.get("x-mcp-limit", ""))
    except ValueError:
        raise Broken("answers do not say `X-MCP-Limit`") from None
    if url.startswith("https://") and "strict-transport-security" not in fields:
        raise Broken("answers over TLS do not say `Strict-Transport-Security`")


def challenge(reply: Reply) -> None:
    """Hold a server that asks for a token to saying so, and to giving nothing without one."""
    if reply.status != _UNAUTHORIZED or not reply.headers.get("www-authenticate"):
        raise Broken(f"without a token HTTP {reply.status} comes back, not 401 with `WWW-Authenticate`")
    if isinstance(reply.body, dict) and "files" in reply.body:
        raise Broken("without a token the tools are listed")


def clear(url: str, *, token: bool) -> None:
    """Hold an address to TLS, where more than this machine could listen."""
    parts = urlsplit(url)
    if parts.scheme == "https" or _loopback(parts.hostname or ""):
        return
    raise Broken(f"{url} is not TLS{', and the token goes over it' if token else ''}")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
