"""Entries of ``network.egress``: screened here so that their line can be named, made canonical by ``policy`` later.

An entry is ``[scheme://]host[:port]``. The host is a name, ``*.`` and a name of two labels or more, or an address. What
could mean two things, or everything, is refused (S0-58, B0-11): ``*``, ``*.com``, globs elsewhere, paths, credentials,
and addresses in any but their plain form. ``policy.hosts`` decides what an entry means; every entry that passes there
passes here.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from sandbox.spec.report import Source

SCHEMES: Final = ("https", "http", "tcp")
"""Prefixes that say how the connection is held to its name; without one ``policy`` decides by the port."""

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE | re.DOTALL)
_QUAD: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}(?:/[0-9]{1,2})?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_MAX_PORT: Final = 65535
_MAX_NAME: Final = 253
_IPV4: Final = 4
_IPV6: Final = 6
_ALLOWED: Final = (
    "`host`, `host:port`, `*.example.org`, each with `https://`, `http://`, `tls://` or `tcp://` before it"
)


def egress_entries(source: Source, path: str, entries: list[str]) -> tuple[str, ...]:
    """Return the entries in lower case; wrong ones are reported and left out."""
    found: list[str] = []
    for index, entry in enumerate(entries):
        place = f"{path}[{index}]"
        if reason := wrong(entry):
            mend = "name the host that the server talks to"
            shown = "" if "@" in entry else entry  # credentials are not repeated
            source.error("SPEC-140", place, reason, found=shown, allowed=_ALLOWED, mend=mend)
            continue
        if not entry.isascii():
            source.warn(
                "SPEC-141",
                place,
                "the name is not in ASCII, and look-alike letters hide in such names",
                found=entry,
                mend="write its `xn--` form",
            )
        found.append(entry.lower())
    return tuple(found)


def wrong(entry: str) -> str:
    """Return why an entry is refused; empty when it is not."""
    scheme, separator, rest = entry.rpartition("://")
    if separator and scheme.lower() not in SCHEMES:
        return "the scheme is not known"
    if rest.startswith("["):
        address, bracket, ports = rest[1:].partition("]")
        if not bracket or (ports and not ports.startswith(":")):
            return "the bracket of an address is not closed"
        return _address(address, _IPV6) or (_wrong_ports(ports[1:]) if ports else "")
    if rest.count(":") > 1:
        return "an IPv6 address stands in brackets"
    host, colon, ports = rest.partition(":")
    if host in ("*", "0.0.0.0/0"):
        return "this would open every host, and a list that opens everything is none"
    return _wrong_host(host) or (_wrong_ports(ports) if colon else "")


def _wrong_ports(ports: str) -> str:
    if all(_PORT.fullmatch(port) and int(port) <= _MAX_PORT for port in ports.split(",")):
        return ""
    return "a port is a number from 1 to 65535"


def _wrong_host(host: str) -> str:
    if "/" in host or _ENDS_IN_NUMBER.fullmatch(host):
        return _address(host, _IPV4)
    if host.isascii() and (len(host) > _MAX_NAME or not _NAME.fullmatch(host)):
        return "this is not a host name"
    if host.startswith("*.") and "." not in host[2:]:
        return "this wildcard would open a whole top-level domain"
    return ""


def _address(text: str, family: int) -> str:
    """Return why an address or network is not in its plain form: no octal, hexadecimal or short IPv4, no zone."""
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError:
        return "this is neither a host name nor an address in its plain form"
    if network.version != family or "%" in text or (family == _IPV4 and not _QUAD.fullmatch(text)):
        return "this is not the plain form of an address"
    return "" if network.prefixlen else "this would open every host, and a list that opens everything is none"
