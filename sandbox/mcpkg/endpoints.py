"""Endpoints of a tool: an address that is read in one way, or a command in words (MCPKG §4.1, §10.2)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.errors import SpecError
from sandbox.mcpkg.bounds import DEFAULT_TIMEOUT_MS
from sandbox.mcpkg.contents import Contents
from sandbox.mcpkg.documents import MAX_SHOWN, Findings
from sandbox.mcpkg.model import Endpoint, HttpEndpoint, LocalEndpoint
from sandbox.policy.hosts import parse_rules

_PORTS: Final = {"http": 80, "https": 443}


def endpoint_of(
    raw: Mapping[str, Any], place: str, file: str, contents: Contents, findings: Findings
) -> Endpoint | None:
    """Return an endpoint; what is wrong is noted as ``PKG-013`` and gives ``None``."""
    timeout = raw.get("timeoutMs", DEFAULT_TIMEOUT_MS)
    if raw["type"] == "http":
        origin = _origin(raw["url"], f"{place}.url", file, findings)
        return HttpEndpoint(method=raw["method"], url=raw["url"], origin=origin, timeout_ms=timeout) if origin else None
    argv = _words(raw["command"], f"{place}.command", file, contents, findings)
    return LocalEndpoint(argv=argv, timeout_ms=timeout) if argv else None


def _origin(url: str, place: str, file: str, findings: Findings) -> str:
    """Return ``scheme://host:port`` of an address that every reader reads alike; empty after noting a problem."""
    reason = ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        reason, parts, port = str(error), urlsplit(""), None
    if not reason and (parts.scheme not in _PORTS or not parts.hostname):
        reason = "it is not an absolute http or https address"
    elif not reason and (not url.isascii() or not url.isprintable() or any(char in url for char in " \\{*")):
        reason = "it has a space, backslash, brace, asterisk or a character outside ASCII"
    elif not reason and (parts.username is not None or parts.fragment or "#" in url):
        reason = "it carries credentials or a fragment"
    if not reason:
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        origin = f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}"
        try:
            (rule,) = parse_rules([origin])
        except SpecError as error:
            reason = error.problems[0].message
        else:
            if rule.host == parts.hostname:  # neither a wildcard nor a network
                return origin
            reason = "it does not name one host"
    message = f"{url[:MAX_SHOWN]!r} is refused: {reason}"
    findings.error("PKG-013", file, place, message, "write it plainly: https://api.example.com/path")
    return ""


def _words(command: str, place: str, file: str, contents: Contents, findings: Findings) -> tuple[str, ...]:
    """Return a command in words; files of the package that it names must exist."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        findings.error("PKG-013", file, place, f"{command[:MAX_SHOWN]!r} is no command: {error}", "close the quotes")
        return ()
    if not words or not command.isprintable():
        findings.error("PKG-013", file, place, "the command is empty or has control characters", "name a program")
        return ()
    for word in words:
        if word.startswith("./") and word[2:] not in contents.names():
            message = f"{word[:MAX_SHOWN]!r} is not in the package"
            findings.error("PKG-013", file, place, message, "package it, or correct the path")
            return ()
    program = words[0]
    if "/" in program and not program.startswith("./"):
        message = f"{program[:MAX_SHOWN]!r} is neither a program's name nor a file of the package"
        findings.error("PKG-013", file, place, message, "write `node …` or `./tool …`")
        return ()
    return words
