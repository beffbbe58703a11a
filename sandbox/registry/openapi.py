"""The OpenAPI document of a gateway: ``docs/schemas/openapi.json`` with the address where it is reached."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson

from sandbox.resources import shipped


@cache
def _text() -> bytes:
    return shipped("schemas", "openapi.json").read_bytes()


def document(base_url: str) -> dict[str, Any]:
    """Return the document.

    Args:
        base_url: of the gateway.

    Raises:
        PlatformError: ``CLI-090``, the installation lacks it.
    """
    found: dict[str, Any] = orjson.loads(_text())
    return {**found, "servers": [{"url": base_url}]}
