"""Makes the markup of the operator's page: escaped, with everything written out that hides or moves.

Templates are files of this package and are read once. Every value that they print passes :func:`_shown`: what is not
printable (control, bidirectional and invisible characters) is written out, and the rest is escaped by Jinja.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Undefined
from markupsafe import Markup

from sandbox.vet.reading import plain

HERE: Final = Path(__file__).parent

STATIC: Final[Mapping[str, tuple[bytes, str]]] = {
    "ui.css": ((HERE / "static" / "ui.css").read_bytes(), "text/css; charset=utf-8"),
    "icon.svg": ((HERE / "static" / "icon.svg").read_bytes(), "image/svg+xml"),
    "ui.js": ((HERE / "static" / "ui.js").read_bytes(), "text/javascript; charset=utf-8"),
}
"""By name: there are no others, whatever a path says."""

_MIB: Final = 1 << 20


def _shown(value: Any) -> Any:
    if isinstance(value, Markup | Undefined):
        return value
    text = "" if value is None else str(value)
    return text if text.isascii() and text.isprintable() else plain(text)  # most, and a page has thousands


def ago(seconds: float | None) -> str:
    """Return a duration as people say it."""
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def took(seconds: float) -> str:
    """Return the duration of a call."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def clock(at: float) -> str:
    """Return a time of day in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") if at else ""


def mib(size: int | None) -> str:
    """Return a size."""
    return "" if size is None else f"{size / _MIB:.0f} MiB" if size >= _MIB else "below 1 MiB"


def query(value: str) -> str:
    """Return a value as part of a query."""
    return quote(plain(value), safe="")


def status_of(code: int) -> str:
    """Return what an HTTP status of a refusal means."""
    said = {400: "malformed", 401: "not signed in", 403: "not allowed", 404: "not found", 421: "other host"}
    return said.get(code, {429: "too many", 503: "not available", 409: "no longer so"}.get(code, "refused"))


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(ago=ago, took=took, clock=clock, mib=mib, query=query, status_of=status_of)
    return found


_ENVIRONMENT: Final = _environment()


def made(body: bytes) -> Markup:
    """Return what :func:`render` made, to stand in another page."""
    return Markup(body.decode())  # noqa: S704 - every value in it was escaped


def render(name: str, **values: Any) -> bytes:
    """Return a page or a part of one."""
    text = _ENVIRONMENT.get_template(name).render(now=time.time(), monotonic=time.monotonic(), **values)
    return text.encode("utf-8", "backslashreplace")
