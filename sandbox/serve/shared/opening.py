# ruff: noqa: PLC0415 - each library is imported only where its store is asked for
"""Finds the store that a URL names. Libraries of stores that are not asked for are not imported.

A URL may carry a password: it is never shown or recorded; messages name scheme, host and database only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from sandbox.errors import UsageError
from sandbox.serve.shared.interface import Store

LOOPBACK: Final = frozenset(("127.0.0.1", "::1", "localhost"))
POSTGRES: Final = ("postgresql", "postgres")
REDIS: Final = ("redis", "rediss", "unix")
ENCRYPTED: Final = frozenset(("require", "verify-ca", "verify-full"))
"""``sslmode`` of libpq with which nothing is sent in the clear."""


def store_of(url: str, *, unsafe_clear: bool = False) -> Store:
    """Return the store of a URL, not yet opened.

    Args:
        url: ``sqlite:///PATH``, ``postgresql://…``, ``redis://…``, ``rediss://…`` or ``unix://PATH`` (Redis).
        unsafe_clear: go to other machines without encryption too.

    Raises:
        UsageError: ``CLI-195`` no such URL, ``CLI-196`` its library is missing, ``CLI-199`` it would be reached in the
            clear.
    """
    try:
        parts = urlsplit(url)
        place = place_of(parts)
    except ValueError:
        parts, place = SplitResult("", "", "", "", ""), ""
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        from sandbox.serve.shared.sqlite import SqliteStore

        return SqliteStore(Path(parts.path))
    if parts.scheme not in (*POSTGRES, *REDIS):
        text = f"`[state]` names no store ({place or 'no URL'})"
        raise UsageError("CLI-195", text, "write sqlite:///PATH, postgresql://… or redis://…")
    if not unsafe_clear and not is_safe(parts):
        text = f"{place} is reached in the clear: who can change what is sent can take sessions over"
        raise UsageError("CLI-199", text, "write rediss://…, or `?sslmode=verify-full` for PostgreSQL")
    try:
        if parts.scheme in POSTGRES:
            from sandbox.serve.shared.postgres import PostgresStore

            return PostgresStore(url, place)
        from sandbox.serve.shared.redis import RedisStore

        return RedisStore(url, place)
    except ImportError:
        extra = "postgres" if parts.scheme in POSTGRES else "redis"
        text = f"the library for {parts.scheme}:// is not installed"
        raise UsageError("CLI-196", text, f"install `mcp-sandbox[{extra}]`") from None


def place_of(parts: SplitResult) -> str:
    """Return a URL without user, password and query."""
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"[:200]


def is_safe(parts: SplitResult) -> bool:
    """Return whether nothing is sent to another machine in the clear."""
    asked = parse_qs(parts.query)
    hosts = {*filter(None, (parts.hostname or "").split(",")), *asked.get("host", []), *asked.get("hostaddr", [])}
    if parts.scheme in ("rediss", "unix") or all(host in LOOPBACK or host.startswith("/") for host in hosts):
        return parts.scheme != "redis" or bool(hosts)
    return parts.scheme in POSTGRES and asked.get("sslmode", [""])[-1] in ENCRYPTED
