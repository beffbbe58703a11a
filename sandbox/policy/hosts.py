"""Reads entries of ``network.egress``: one text, one parser, one canonical form; pure.

Grammar (docs/egress.md)::

    entry   = [ scheme "://" ] target [ ":" port *( "," port ) ]
    scheme  = "https" | "http" | "tcp"
    target  = name | "*." name | IPv4 | "[" IPv6 "]" | CIDR | "[" IPv6-CIDR "]"

The theory: every bypass of a host allow-list known to us is two parsers that read one text differently (NUL, percent,
userinfo, trailing dots, numbers that are addresses). So what could be read in two ways is refused rather than repaired,
with one exception that has a standard: international names are mapped once (UTS #46, non-transitional) to lower-case
A-labels (RFC 5891), and that is the form which is matched, resolved, dialled and recorded.

``*.example.org`` stands for one label or more below ``example.org`` and not for ``example.org`` itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from sandbox.errors import Problem, SpecError
from sandbox.policy.destinations import (
    HTTP_PORT,
    HTTPS_PORT,
    NEVER,
    EgressRule,
    Mode,
    address_allowed,
    covers,
    default_mode,
    is_literal,
    match,
    networks,
)

__all__ = ["EgressRule", "address_allowed", "canonical_name", "match", "narrowed", "parse_rule", "parse_rules"]

MAX_RULE_CHARS: Final = 400
"""One entry: the longest name (RFC 1035 §2.3.4: 253), a scheme and a handful of ports."""

MAX_NAME_CHARS: Final = 253
"""A name in presentation form without its final dot (RFC 1035 §2.3.4)."""

MAX_PORTS: Final = 16
"""Ports of one entry; a service that needs more is several entries, which a reviewer can read."""

MAX_RULES: Final = 256
"""Entries of one driver; longer lists are not reviewed by anybody."""

WIDEST: Final = {4: 8, 6: 32}
"""Shortest prefix of a CIDR, by IP version: 10.0.0.0/8 is the largest private network, a provider's IPv6 a /32."""

_SCHEMES: Final[dict[str, Mode]] = {"https": "tls", "http": "http", "tcp": "tcp"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\xa0%\\@?#\"'<>^`|{}()!$&+;=~\u2028\u2029]")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\Z")
_QUAD: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}\Z")
_MAX_PORT: Final = 65535
_MAX_LABEL_CHARS: Final = 63
_OWN_NAMES: Final = ("localhost", "localhost.localdomain")


def parse_rules(entries: Iterable[str], sources: Sequence[str] = ()) -> tuple[EgressRule, ...]:
    """Return the rules of a whole list.

    Args:
        entries: ``network.egress`` as written.
        sources: file and line of each entry, as far as known.

    Raises:
        SpecError: every entry that cannot be read, at once; or ``EGR-007``, the list is too long.
    """
    rules: list[EgressRule] = []
    problems: list[Problem] = []
    for number, entry in enumerate(entries):
        source = sources[number] if number < len(sources) else ""
        if number >= MAX_RULES:
            problems.append(
                _problem("EGR-007", f"more than {MAX_RULES} egress entries", source, "", "split the driver")
            )
            break
        try:
            rules.append(parse_rule(entry, source))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(tuple(problems))
    return tuple(rules)


def parse_rule(text: str, source: str = "") -> EgressRule:
    """Return the rule that one entry of ``network.egress`` means.

    Steps:

    1. Bound the length; refuse every character with a second meaning somewhere (control, space, percent, userinfo, …).
    2. Take the scheme, which sets how the name is held to (:class:`~sandbox.policy.destinations.EgressRule`).
    3. Take the ports; without any, 443, or 80 for ``http://``.
    4. Make the target canonical: an address, a CIDR, a wildcard or a name.
    5. Refuse what no sandbox may reach in any mode.

    Args:
        text: the entry as written.
        source: ``file:line`` for messages and for the rule.

    Raises:
        SpecError: ``EGR-001`` … ``EGR-008``, one problem.
    """
    try:
        # 1
        _plain(text)
        # 2
        mode, rest = _scheme(text)
        # 3
        target, ports = _split(rest)
        numbers = _ports(ports, mode)
        # 4
        host = _target(target)
        # 5
        _reachable(host)
    except _Bad as bad:
        raise SpecError((_problem(bad.id, bad.message, source, text, bad.mend),)) from None
    return EgressRule(host, numbers, mode or _common_mode(numbers), source)


def narrowed(rule: EgressRule, ceiling: Iterable[str]) -> bool:
    """Return whether a rule stays within an operator's patterns; an empty ceiling allows nothing.

    A pattern is ``*`` (every name), or an entry as in ``network.egress``; without a port it allows every port.
    Addresses and CIDRs need a pattern that is itself an address or CIDR: ``*`` does not stand for them, because they
    name a machine that nobody who reads the driver can see.

    Raises:
        SpecError: a pattern cannot be read.
    """
    patterns = [_pattern(text) for text in ceiling]
    return all(any(_contains(pattern, rule.host, port) for pattern in patterns) for port in rule.ports)


def canonical_name(text: str) -> str:
    """Return a host name in the one form that is compared: lower-case A-labels (UTS #46 mapping, RFC 5891 validity).

    Raises:
        ValueError: it is no host name, or is one only to some parsers.
    """
    try:
        return _name(text)
    except _Bad as bad:
        raise ValueError(bad.message) from None


class _Bad(Exception):
    """No error of its own: carries id, message and mend to where the source is known."""

    def __init__(self, id: str, message: str, mend: str) -> None:  # noqa: A002 - the public word for it
        self.id, self.message, self.mend = id, message, mend
        super().__init__(id, message, mend)


def _problem(id: str, message: str, source: str, found: str, mend: str) -> Problem:  # noqa: A002 - the public word for it
    file, _, line = source.rpartition(":")
    place = (file, int(line)) if file and line.isdecimal() else (source or "DRIVER.md", 0)
    return Problem(id, *place, "network.egress", message, found=ascii(found[:80]) if found else "", mend=mend)


def _plain(text: str) -> None:
    if not text or len(text) > MAX_RULE_CHARS:
        raise _Bad(
            "EGR-001", f"an egress entry has 1 to {MAX_RULE_CHARS} characters", "name one host, such as api.example.com"
        )
    bad = _FORBIDDEN.search(text)
    if bad is not None:
        raise _Bad(
            "EGR-001",
            f"the character {bad[0]!a} has no place in a destination",
            "write host, host:port, *.suffix, or one of these after https://, http:// or tcp://",
        )


def _scheme(text: str) -> tuple[Mode | None, str]:
    found = _SCHEME.match(text)
    if found is None:
        return None, text
    mode = _SCHEMES.get(found[1].lower())
    if mode is None:
        raise _Bad("EGR-001", f"the scheme {found[1]} is not known", "use https://, http:// or tcp://, or none")
    return mode, found[2]


def _split(rest: str) -> tuple[str, str | None]:
    """Return target and ports; brackets keep an IPv6 address together."""
    if rest.startswith("["):
        target, closed, tail = rest.partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise _Bad("EGR-001", "the bracket of an IPv6 address is not closed", "write [2001:db8::1]:443")
        return target + closed, tail[1:] if tail else None
    if rest.count(":") > 1:
        raise _Bad("EGR-001", "more than one colon", "write an IPv6 address in brackets, and ports as host:1,2")
    target, colon, ports = rest.partition(":")
    return target, ports if colon else None


def _ports(text: str | None, mode: Mode | None) -> tuple[int, ...]:
    if text is None:
        if mode == "tcp":
            raise _Bad("EGR-002", "tcp:// has no usual port", "write the port, such as tcp://db.example.com:5432")
        return (HTTP_PORT if mode == "http" else HTTPS_PORT,)
    parts = text.split(",")
    if len(parts) > MAX_PORTS:
        raise _Bad("EGR-002", f"more than {MAX_PORTS} ports in one entry", "write several entries")
    if not all(_PORT.match(part) and int(part) <= _MAX_PORT for part in parts):
        raise _Bad("EGR-002", "a port is a decimal number from 1 to 65535", "write host:443 or host:443,8443")
    return tuple(sorted({int(part) for part in parts}))


def _common_mode(ports: tuple[int, ...]) -> Mode:
    modes = {default_mode(port) for port in ports}
    if len(modes) > 1:
        return "auto"
    return modes.pop()


def _target(text: str) -> str:
    if text.startswith("["):
        return _ipv6(text[1:-1])
    if "/" in text:
        return _ipv4_network(text)
    if text.startswith("*"):
        return _wildcard(text)
    if _ends_in_number(text):
        return _ipv4(text)
    return _name(text)


def _ipv4(text: str) -> str:
    if not _QUAD.match(text):
        raise _Bad(
            "EGR-005",
            "an address in a short, octal, hexadecimal or decimal form",
            "write it as four decimal numbers, 198.51.100.7",
        )
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise _Bad("EGR-005", "no IPv4 address", "each of its four numbers is at most 255") from None


def _ipv4_network(text: str) -> str:
    try:
        if not _QUAD.match(text.partition("/")[0]):
            raise ValueError  # noqa: TRY301 - the same mend as for a bad prefix
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise _Bad("EGR-005", "no CIDR", "write 198.51.100.0/24, without bits below the prefix, and no path") from None


def _ipv6(text: str) -> str:
    try:
        if "/" in text:
            network = ipaddress.IPv6Network(text)
            address, value = network.network_address, str(network)
        else:
            address = ipaddress.IPv6Address(text)
            value = str(address)
    except ValueError:
        raise _Bad("EGR-005", "no IPv6 address", "write [2001:db8::1] or [2001:db8::/32], without a zone") from None
    if address.ipv4_mapped is not None or address.sixtofour is not None or address.teredo is not None:
        raise _Bad("EGR-005", "an IPv4 address inside an IPv6 one", "write the IPv4 address itself")
    return value


def _wildcard(text: str) -> str:
    if not text.startswith("*.") or "*" in text[1:]:
        raise _Bad("EGR-004", "a wildcard stands alone as the first label", "write *.example.org")
    if text[2:].startswith(".") or _ends_in_number(text[2:]):
        raise _Bad("EGR-004", "a wildcard stands before a name", "write *.example.org; for addresses write a CIDR")
    suffix = _name(text[2:])
    if "." not in suffix:
        raise _Bad(
            "EGR-004", f"*.{suffix} is a whole top-level domain", "name the domain below it, such as *.example.org"
        )
    return f"*.{suffix}"


def _name(text: str) -> str:
    """Return a canonical host name; a name that turns into a number or into something else by mapping is refused."""
    if text.startswith(".") or text.endswith(".") or ".." in text or not text:
        raise _Bad(
            "EGR-003", "an empty label or a trailing dot", "write the name without leading, doubled or trailing dots"
        )
    lowered = text.lower() if text.isascii() else text
    if not text.isascii() or any(label.startswith("xn--") for label in lowered.split(".")):
        lowered = _mapped(lowered)
    if len(lowered) > MAX_NAME_CHARS or not all(_LABEL.match(label) for label in lowered.split(".")):
        raise _Bad("EGR-003", "no host name", "labels have letters, digits, - and _, at most 63; the name at most 253")
    if _ends_in_number(lowered):
        raise _Bad("EGR-005", "a name that some programs read as an IPv4 address", "write the address, or another name")
    return lowered


def _mapped(text: str) -> str:
    # Deferred: only international names need the tables, and starting must not wait for them.
    import idna  # noqa: PLC0415 - see above

    try:
        return idna.encode(text, uts46=True, std3_rules=True, transitional=False).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise _Bad("EGR-003", f"no international name ({ascii(str(error))[1:90]})", "write its A-label form") from None


def _ends_in_number(text: str) -> bool:
    """Return whether URL parsers take a host for IPv4 (WHATWG URL, *ends in a number checker*)."""
    return _NUMBER.match(text.rpartition(".")[2]) is not None


def _reachable(host: str) -> None:
    plain = host.removeprefix("*.")
    if plain in _OWN_NAMES or plain.endswith(".localhost"):
        raise _Bad(
            "EGR-006", f"{host} is the sandbox itself", "take the entry out; a server reaches its own loopback anyhow"
        )
    if not is_literal(host):
        return
    asked = ipaddress.ip_network(host)
    if asked.prefixlen < WIDEST[asked.version]:
        mend = f"name networks of /{WIDEST[asked.version]} or smaller"
        raise _Bad("EGR-008", f"{host} is a large part of the whole internet", mend)
    for cidr, why in NEVER:
        never = ipaddress.ip_network(cidr)
        if never.version == asked.version and _subnet(asked, never):
            raise _Bad("EGR-006", f"{host} is never reachable: {why}", "take the entry out")


def _subnet(inner: ipaddress.IPv4Network | ipaddress.IPv6Network, outer: object) -> bool:
    return inner.subnet_of(outer)  # type: ignore[arg-type]  # versions were compared before


def _pattern(text: str) -> tuple[str, tuple[int, ...]]:
    """Return host and ports of a ceiling's pattern; no ports means every port."""
    if text == "*":
        return "*", ()
    rule = parse_rule(text)
    explicit = _split(_scheme(text)[1])[1] is not None
    return rule.host, rule.ports if explicit else ()


def _contains(pattern: tuple[str, tuple[int, ...]], host: str, port: int) -> bool:
    allowed, ports = pattern
    if ports and port not in ports:
        return False
    if is_literal(host):
        return is_literal(allowed) and _within(host, allowed)
    return allowed in {"*", host} or (allowed.startswith("*.") and covers(allowed, host.removeprefix("*.")) > 0)


def _within(host: str, cidr: str) -> bool:
    inner, outer = networks((host,))[0], networks((cidr,))[0]
    return inner.version == outer.version and _subnet(inner, outer)
