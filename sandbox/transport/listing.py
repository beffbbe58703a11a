# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""Every page of a ``*/list`` answer, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import ServerFault
from sandbox.limits import MAX_LINE_BYTES, MAX_LIST_ITEMS, MAX_LIST_PAGES

LISTS: Final = MappingProxyType(
    {
        "tools/list": "tools",
        "prompts/list": "prompts",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }
)
"""Listing method → member of its result that holds the items."""


async def list_all(
    request: Callable[..., Awaitable[dict[str, Any]]], method: str, timeout: float
) -> tuple[dict[str, Any], ...]:
    """Follow ``nextCursor`` to the end.

    Args:
        request: as :meth:`~sandbox.transport.peer.ServerPeer.request`.
        method: a key of :data:`LISTS`.
        timeout: for each page, seconds.

    Raises:
        ServerFault: ``WIRE-046`` too many pages or items, too many bytes, or a cursor that comes again; ``WIRE-047``
        not a
            list of objects.
    """
    items: list[dict[str, Any]] = []
    seen: set[str] = set()
    size = 0
    params: dict[str, Any] = {}
    while True:
        page = await request(method, params, timeout=timeout)
        items += _items(page, method)
        size += len(jsontext.dump(page))
        cursor = page.get("nextCursor")
        if cursor is None:
            break
        if not isinstance(cursor, str) or cursor in seen:
            raise _beyond(method, "a cursor that it gave before")
        seen.add(cursor)
        if len(seen) >= MAX_LIST_PAGES:
            raise _beyond(method, f"more than {MAX_LIST_PAGES} pages")
        params = {"cursor": cursor}
        _check_size(method, len(items), size)
    _check_size(method, len(items), size)
    return tuple(items)


def _check_size(method: str, count: int, size: int) -> None:
    if count > MAX_LIST_ITEMS:
        raise _beyond(method, f"more than {MAX_LIST_ITEMS} items")
    if size > MAX_LINE_BYTES:
        raise _beyond(method, f"more than {MAX_LINE_BYTES} bytes")


def _items(page: dict[str, Any], method: str) -> list[dict[str, Any]]:
    items = page.get(LISTS[method])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        message = f"the server answered `{method}` without a list of objects in `{LISTS[method]}`"
        raise ServerFault("WIRE-047", message, "report it to the server's author")
    return items


def _beyond(method: str, what: str) -> ServerFault:
    return ServerFault("WIRE-046", f"the server answered `{method}` with {what}", "offer less, or report the server")
