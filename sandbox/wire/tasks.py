"""Words of the tasks extension of 2026-07-28 (``io.modelcontextprotocol/tasks``): calls answered with a task, polled.

Tasks of 2025-11-25 have other methods of partly the same names, and other shapes: :mod:`sandbox.serve.client_tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXTENSION: Final = "io.modelcontextprotocol/tasks"

GET: Final = "tasks/get"
UPDATE: Final = "tasks/update"
CANCEL: Final = "tasks/cancel"
METHODS: Final = frozenset((GET, UPDATE, CANCEL))
"""Requests of clients."""

CHANGED: Final = "notifications/tasks"

CAPABILITY: Final[Mapping[str, Any]] = {"extensions": {EXTENSION: {}}}
"""As a client and as a server declare it."""


def declared(capabilities: Any) -> bool:
    """Return whether MCP ``ClientCapabilities`` declare the extension."""
    extensions = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
    return isinstance(extensions, Mapping) and isinstance(extensions.get(EXTENSION), Mapping)
