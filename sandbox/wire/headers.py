"""Header fields that repeat parts of a message (MCP 2026-07-28, basic/transports/streamable-http, request metadata).

Servers and the proxies before them refuse requests whose fields and body disagree, so the fields are made from the
message that is sent and from nothing else. Tools may ask that single arguments be repeated as ``Mcp-Param-…``
(``x-mcp-header`` in their input schema); a tool that asks in a way the specification forbids is not offered.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.limits import MAX_HEADER_VALUE
from sandbox.wire import meta, tasks
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Notification, Request

NAMES: Final = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri", **dict.fromkeys(tasks.METHODS, "taskId"),
}  # fmt: skip
"""Method → parameter that ``Mcp-Name`` repeats."""

ANNOTATION: Final = "x-mcp-header"

Path = tuple[str, ...]

_SAFE: Final = re.compile(r"[\x20-\x7e]*")
_SENTINEL: Final = re.compile(r"=\?base64\?.*\?=", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_TYPES: Final = ("integer", "string", "boolean")
_MAX_NODES: Final = 20_000


def of_message(message: Request | Notification, params: Mapping[Path, str]) -> dict[str, str]:
    """Return the fields of one message of the stateless era; empty for one that names no protocol version.

    Args:
        message: about to be sent.
        params: argument path → name, of the tool that is called.

    Raises:
        WireError: ``WIRE-061``, a value is too long for a header field.
    """
    version = meta.of(message.params).get(meta.PROTOCOL_VERSION)
    if not isinstance(version, str):
        return {}
    found = {"MCP-Protocol-Version": version, "Mcp-Method": message.method}
    name = message.params.get(NAMES.get(message.method, ""))
    if isinstance(name, str):
        found["Mcp-Name"] = encoded(name)
    if message.method == "tools/call":
        arguments = message.params.get("arguments")
        for path, token in params.items():
            value = _at(arguments, path)
            if isinstance(value, bool):
                found[f"Mcp-Param-{token}"] = "true" if value else "false"
            elif isinstance(value, str | int):
                found[f"Mcp-Param-{token}"] = encoded(str(value))
    return found


def encoded(value: str) -> str:
    """Return a value as a header field carries it: itself, or in Base64 between ``=?base64?`` and ``?=``.

    Raises:
        WireError: ``WIRE-061``.
    """
    if not (_SAFE.fullmatch(value) and value == value.strip() and not _SENTINEL.fullmatch(value)):
        value = f"=?base64?{base64.b64encode(value.encode()).decode('ascii')}?="
    if len(value) > MAX_HEADER_VALUE:
        message = f"a value of more than {MAX_HEADER_VALUE} characters that the protocol repeats in a header field"
        raise WireError("WIRE-061", message, "shorten it")
    return value


def repeated(schema: Any) -> dict[Path, str]:
    """Return the arguments of a tool that are repeated in header fields: path → name.

    Raises:
        ValueError: it asks for that in a way that the specification forbids; the text says how.
    """
    found: dict[Path, str] = {}
    for path, node in _positions(schema):
        if ANNOTATION not in node:
            continue
        token = node[ANNOTATION]
        if not path:
            raise ValueError("an annotation that no chain of `properties` leads to")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError("an annotation that is no header name")
        if node.get("type") not in _TYPES:
            raise ValueError("an annotation of something other than a string, integer or boolean")
        if token.lower() in {name.lower() for name in found.values()}:
            raise ValueError("two annotations of one name")
        found[path] = token
    return found


def _positions(root: Any) -> Iterator[tuple[Path | None, Mapping[str, Any]]]:
    """Yield every object of a schema with the chain of ``properties`` that leads to it, ``None`` when there is none.

    Any object or list is entered, so that an annotation is seen wherever it stands.
    """
    stack: list[tuple[Path | None, Any]] = [((), root)]
    for _ in range(_MAX_NODES):
        if not stack:
            return
        path, node = stack.pop()
        if isinstance(node, list):
            stack += [(None, item) for item in node]
        if not isinstance(node, dict):
            continue
        yield path, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, name), below) for name, below in value.items()]
            elif key not in {"const", "enum", "default", "examples"}:
                stack.append((None, value))
    raise ValueError("a schema that is too large to look through")


def _at(value: Any, path: Path) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
