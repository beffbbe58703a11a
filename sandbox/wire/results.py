"""Results between the eras: what a server's result means, and how it is dressed for a client.

Between the two sides a result is *neutral*: without ``resultType``, caching hints and the protocol's own ``_meta``
keys. ``neutral`` makes it so and says what kind it was; ``dressed`` adds what the client's version requires and takes
away what it does not have:

===================  ===========================================  ==========================================
member               from a server                                 to a client
===================  ===========================================  ==========================================
``resultType``       must be ``complete`` or ``input_required``    ``complete`` from 2026-07-28 on
``ttlMs``            dropped                                       0 where required: what we filter is stale
``cacheScope``       dropped                                       ``private`` where required
``_meta`` reserved   dropped                                       ``serverInfo`` from 2026-07-28 on
structuredContent    kept                                          absent before 2025-06-18; any JSON from 2026
content types        kept                                          unknown ones become a line of text
===================  ===========================================  ==========================================

A server's caching hints are never passed on: ``public`` from a server would let a shared cache serve one tenant's data
to another (probe J19), and lists are filtered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from sandbox.wire import meta
from sandbox.wire.errors import WireError
from sandbox.wire.versions import V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28, Era

Outcome: TypeAlias = Literal["complete", "input_required"]

CACHEABLE: Final = frozenset(
    ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
)
"""Requests whose complete results must carry caching hints (2026-07-28, server/utilities/caching)."""

MAY_ASK_FOR_INPUT: Final = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Requests that a server may answer with ``input_required`` (2026-07-28, basic/patterns/mrtr)."""

TOOL_MEMBERS_SINCE: Final = MappingProxyType(
    {
        "annotations": V2025_03_26,
        "title": V2025_06_18,
        "outputSchema": V2025_06_18,
        "_meta": V2025_06_18,
        "icons": V2025_11_25,
    }
)
"""Members of listed tools, prompts and resources → first version that has them."""

CONTENT_SINCE: Final = MappingProxyType({"audio": V2025_03_26, "resource_link": V2025_06_18})
"""Content types → first version that has them; others are in every version."""

_HINTS: Final = ("resultType", "ttlMs", "cacheScope")


def neutral(result: dict[str, Any], method: str, era: Era) -> tuple[Outcome, dict[str, Any]]:
    """Return what a server's result is, and the result without what belongs to its era.

    Raises:
        WireError: ``WIRE-020``, a result type that is not known or not allowed for the method.
    """
    outcome: Outcome = "complete"
    if era == "stateless" and (kind := result.get("resultType", "complete")) != "complete":
        if kind != "input_required" or method not in MAY_ASK_FOR_INPUT:
            raise WireError(
                "WIRE-020", f"a result of the type {str(kind)[:40]!r} to `{method}`", "answer with a complete result"
            )
        outcome = "input_required"
    if "resultType" in result or "ttlMs" in result or "cacheScope" in result:
        result = {name: value for name, value in result.items() if name not in _HINTS}
    return outcome, meta.without_reserved(result)


def dressed(result: Mapping[str, Any], method: str, version: str, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a neutral result as a client of ``version`` expects it."""
    if version >= V2026_07_28:
        own = {**result.get("_meta", {}), meta.SERVER_INFO: server_info}
        whole = {**result, "resultType": "complete", "_meta": own}
        return {**whole, "ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else whole
    if method == "tools/call":
        return _older_tool_result(result, version)
    if method == "prompts/get" and version < V2025_06_18:
        return {**result, "messages": [_older_message(message, version) for message in result.get("messages", ())]}
    return dict(result)


def listed(definition: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return a listed tool, prompt or resource with the members that ``version`` has."""
    return {name: value for name, value in definition.items() if TOOL_MEMBERS_SINCE.get(name, "") <= version}


def _older_tool_result(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    structured = result.get("structuredContent")
    if structured is not None and (version < V2025_06_18 or not isinstance(structured, dict)):
        result = {name: value for name, value in result.items() if name != "structuredContent"}
    if version >= V2025_06_18:
        return dict(result)
    return {**result, "content": [older_content(block, version) for block in result.get("content", ())]}


def _older_message(message: Any, version: str) -> Any:
    if not isinstance(message, Mapping):
        return message
    return {**message, "content": older_content(message.get("content"), version)}


def older_content(block: Any, version: str) -> Any:
    """Return a content block that ``version`` knows: the block itself, or a line of text in its place."""
    if not isinstance(block, Mapping) or CONTENT_SINCE.get(str(block.get("type")), "") <= version:
        return block
    shown = block.get("uri") or block.get("mimeType") or "no description"
    return {"type": "text", "text": f"[{block['type']}: {shown}; this client's protocol version cannot carry it]"}
