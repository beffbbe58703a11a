"""Which destinations an egress rule means, and which addresses may be dialled at all; pure, standard library only.

The egress broker runs this module inside its own image, so nothing here may import a package. Names come in
already canonical (:mod:`sandbox.policy.hosts` makes them so) and are compared as they stand: one form, decided once, is
what is checked, resolved, dialled and recorded.

Two independent gates stand before every dial:

1. *the rule*: name and port are named by the driver (:func:`match`);
2. *the floor*: the resolved address is public (:func:`address_refusal`). The floor is an explicit list rather than
   ``ipaddress.is_global``, whose meaning changes between Python versions and knows no operator's exception.

``NEVER`` has no exceptions: loopback, link-local and the cloud metadata services are not destinations of a sandbox in
any mode. ``RESERVED`` may be opened by an operator's CIDR (``[[egress.private]]``).
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Mode = Literal["tls", "http", "tcp", "auto"]

HTTPS_PORT: Final = 443
HTTP_PORT: Final = 80


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One allowed destination.

    Attributes:
        host: lower-case A-label name, ``*.suffix`` (one label or more below it), or a canonical address or CIDR.
        ports: allowed TCP ports.
        mode: ``tls`` (SNI must equal the name), ``http`` (Host must equal the name), ``tcp`` (any protocol) or ``auto``
            (any protocol; what looks like TLS or HTTP is held to its name).
        source: file and line it comes from.
    """

    host: str
    ports: tuple[int, ...]
    mode: Mode = "auto"
    source: str = ""


NEVER: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "unspecified: this host on this network (RFC 1122 §3.2.1.3)"),
    ("127.0.0.0/8", "loopback (RFC 1122 §3.2.1.3)"),
    ("169.254.0.0/16", "link-local, cloud metadata services in it (RFC 3927)"),
    ("100.100.100.200/32", "cloud metadata service"),
    ("168.63.129.16/32", "cloud metadata service, although in a public range"),
    ("192.0.0.192/32", "cloud metadata service"),
    ("224.0.0.0/4", "multicast (RFC 5771)"),
    ("255.255.255.255/32", "limited broadcast (RFC 919)"),
    ("::/96", "unspecified, loopback and IPv4-compatible addresses (RFC 4291 §2.5)"),
    ("fe80::/10", "link-local (RFC 4291 §2.5.6)"),
    ("ff00::/8", "multicast (RFC 4291 §2.7)"),
    ("fd00:ec2::/32", "cloud metadata service"),
    ("fd20:ce::/32", "cloud metadata service"),
)
"""Never dialled, whatever an operator allows."""

RESERVED: Final[tuple[tuple[str, str], ...]] = (
    ("10.0.0.0/8", "private (RFC 1918)"),
    ("100.64.0.0/10", "shared address space of carriers (RFC 6598)"),
    ("172.16.0.0/12", "private (RFC 1918)"),
    ("192.0.0.0/24", "IETF protocol assignments (RFC 6890)"),
    ("192.0.2.0/24", "documentation (RFC 5737)"),
    ("192.88.99.0/24", "former 6to4 relays (RFC 7526)"),
    ("192.168.0.0/16", "private (RFC 1918)"),
    ("198.18.0.0/15", "benchmarking (RFC 2544), and the broker's own synthetic addresses"),
    ("198.51.100.0/24", "documentation (RFC 5737)"),
    ("203.0.113.0/24", "documentation (RFC 5737)"),
    ("240.0.0.0/4", "reserved (RFC 1112 §4)"),
    ("2001::/23", "IETF protocol assignments, Teredo and ORCHID in it (RFC 2928)"),
    ("2001:db8::/32", "documentation (RFC 3849)"),
    ("2002::/16", "6to4: an IPv4 address of any kind inside (RFC 7526)"),
    ("3fff::/20", "documentation (RFC 9637)"),
)
"""Not public; dialled only when an operator's CIDR contains the address."""

GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA gives out as global unicast (RFC 4291 §2.4). The rest of IPv6 is not public."""

NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Well-known NAT64 prefix (RFC 6052): judged by the IPv4 address inside."""

_NEVER: Final = tuple((ipaddress.ip_network(cidr), why) for cidr, why in NEVER)
_RESERVED: Final = tuple((ipaddress.ip_network(cidr), why) for cidr, why in RESERVED)


def canonical_address(text: str) -> Address:
    """Return the address that is really meant: an IPv4-mapped IPv6 address is its IPv4 address.

    Only the strict textual forms are taken (dotted decimal without leading zeros; RFC 4291 text without a zone).

    Raises:
        ValueError: the text is no address in strict form.
    """
    if "%" in text:
        raise ValueError("an address with a zone means nothing outside its host")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def address_refusal(address: Address, allowed: Sequence[Network] = ()) -> str:
    """Return why an address is not dialled, empty when it may be.

    Steps:

    1. NAT64 addresses are judged by the IPv4 address inside them, IPv4-mapped ones likewise.
    2. ``NEVER`` refuses, whatever the operator allows.
    3. An operator's CIDR allows.
    4. ``RESERVED``, and IPv6 outside global unicast, refuse.

    Args:
        address: the address about to be dialled.
        allowed: the operator's CIDRs.
    """
    # 1
    inner = _embedded(address)
    if inner is not None:
        return address_refusal(inner, allowed)
    # 2
    for network, why in _NEVER:
        if address in network:
            return why
    # 3
    if any(address in network for network in allowed):
        return ""
    # 4
    for network, why in _RESERVED:
        if address in network:
            return why
    if isinstance(address, ipaddress.IPv6Address) and address not in GLOBAL_IPV6:
        return "not global unicast (RFC 4291 §2.4)"
    return ""


def address_allowed(text: str, allowed_cidrs: Iterable[str] = ()) -> bool:
    """Return whether an address in textual form may be dialled; text that is no strict address may not."""
    try:
        address = canonical_address(text)
    except ValueError:
        return False
    return not address_refusal(address, networks(tuple(allowed_cidrs)))


@functools.lru_cache(maxsize=256)
def networks(cidrs: tuple[str, ...]) -> tuple[Network, ...]:
    """Return CIDRs as networks.

    Raises:
        ValueError: one has host bits set or is no CIDR.
    """
    return tuple(ipaddress.ip_network(cidr) for cidr in cidrs)


def match(rules: Iterable[EgressRule], name: str, port: int) -> EgressRule | None:
    """Return the rule that allows ``name:port``, the most specific first; ``None`` denies.

    Args:
        rules: in the order of the driver.
        name: canonical name or canonical address.
        port: TCP port.
    """
    best: tuple[int, EgressRule] | None = None
    for rule in rules:
        weight = covers(rule.host, name)
        if weight and port in rule.ports and (best is None or weight > best[0]):
            best = (weight, rule)
    return None if best is None else best[1]


def covers(pattern: str, name: str) -> int:
    """Return how specifically a rule's host stands for a canonical name or address: 0 not at all, higher is closer.

    ``*.example.org`` stands for one label or more below ``example.org``, not for ``example.org`` itself.
    """
    if pattern == name:
        return 1_000
    if pattern.startswith("*."):
        return len(pattern) if name.endswith(pattern[1:]) and len(name) >= len(pattern) else 0
    if "/" in pattern:
        return _covers_address(pattern, name)
    return 0


def names_of(rules: Iterable[EgressRule]) -> dict[str, tuple[int, ...]]:
    """Return exact host names → every allowed port, in rule order; wildcards, addresses and CIDRs are left out."""
    found: dict[str, tuple[int, ...]] = {}
    for rule in rules:
        if is_name(rule.host):
            found[rule.host] = tuple(sorted({*found.get(rule.host, ()), *rule.ports}))
    return found


def is_name(host: str) -> bool:
    """Return whether a rule's host is one exact name."""
    return not host.startswith("*.") and not is_literal(host)


def is_literal(host: str) -> bool:
    """Return whether a rule's host is an address or a CIDR."""
    try:
        ipaddress.ip_network(host)
    except ValueError:
        return False
    return True


def default_mode(port: int) -> Mode:
    """Return how a port without a scheme is held to its name: 443 speaks TLS, 80 HTTP, others are watched."""
    if port == HTTPS_PORT:
        return "tls"
    return "http" if port == HTTP_PORT else "auto"


def rule_text(host: str, port: int, mode: Mode) -> str:
    """Return the shortest entry of ``network.egress`` that allows one destination in one mode."""
    shown = f"[{host}]" if ":" in host else host
    if mode == "http":
        return f"http://{shown}" if port == HTTP_PORT else f"http://{shown}:{port}"
    if mode == "tcp":
        return f"tcp://{shown}:{port}"
    if mode == "tls" and port != HTTPS_PORT:
        return f"https://{shown}:{port}"
    return shown if port == HTTPS_PORT else f"{shown}:{port}"


def _embedded(address: Address) -> Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def _covers_address(cidr: str, name: str) -> int:
    try:
        address = ipaddress.ip_address(name)
        network = ipaddress.ip_network(cidr)
    except ValueError:
        return 0
    return 1 + network.prefixlen if address in network else 0
