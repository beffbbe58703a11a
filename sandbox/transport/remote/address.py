"""URLs of remote servers and of their redirects, read once into the parts that are checked and dialled; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urljoin, urlsplit

from sandbox.errors import ServerFault
from sandbox.policy.destinations import canonical_address
from sandbox.policy.hosts import canonical_name

MAX_URL: Final = 4096
"""Characters of a URL; proxies refuse longer ones."""

_BAD: Final = re.compile(r"[^\x21-\x7e]|[\\\"<>^`{}|]")
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes.

    Attributes:
        host: canonical name or address.
        path: path and query, as they stand in the request line.
    """

    scheme: Literal["https", "http"]
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port (RFC 6454): what credentials are kept to."""
        return (self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        """``Host`` of a request (RFC 9110 §7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the URL without its query, which may hold what is nobody's business."""
        return f"{self.scheme}://{self.authority}{self.path.partition('?')[0]}"


def target_of(url: str) -> Target:
    """Return the parts of an absolute URL.

    Raises:
        ServerFault: ``WIRE-062``, it is none that every reader reads alike.
    """
    try:
        return _parsed(url)
    except ValueError as error:
        raise ServerFault("WIRE-062", f"a URL that is not usable: {error}", "correct the server's address") from None


def _parsed(url: str) -> Target:
    if len(url) > MAX_URL or _BAD.search(url):
        raise ValueError("too long, or with characters that have no place in it")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.username is not None or parts.password is not None:
        raise ValueError("not https, or with credentials in it")
    scheme: Literal["https", "http"] = "https" if parts.scheme == "https" else "http"
    port = _PORTS[scheme] if parts.port is None else parts.port
    if not port:
        raise ValueError("with the port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, _host(parts.hostname or ""), port, path)


def joined(base: Target, reference: str) -> Target:
    """Return what a reference, such as ``Location``, means at ``base`` (RFC 3986 §5).

    Raises:
        ServerFault: ``WIRE-062``.
    """
    if len(reference) > MAX_URL or _BAD.search(reference):
        message = "the server names a URL with characters that have no place in it"
        raise ServerFault("WIRE-062", message, "report it to the server's author")
    return target_of(urljoin(f"{base.scheme}://{base.authority}{base.path}", reference))


def _host(text: str) -> str:
    """Return the canonical name or address."""
    try:
        return str(canonical_address(text))
    except ValueError:
        return canonical_name(text)
