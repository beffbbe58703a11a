"""What the broker reports becomes facts, with the line that would allow what was denied.

A connection is an intent before anything is dialled and an outcome after it; everything else is a fact of its own.
Repeated denials come counted (``count``). Attributes are listed in docs/egress.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.errors import SpecError
from sandbox.launch.egress.inside import reasons
from sandbox.policy.destinations import HTTPS_PORT, is_literal, rule_text
from sandbox.policy.hosts import parse_rule

MAX_DETAIL: Final = 400
"""Characters of what was found that are recorded."""

BROKER_GONE: Final = "EGR-205"
"""Reason of a connection that was cut because the broker died; its counts are unknown."""

_RAW: Final = frozenset(
    {
        reasons.SNI,
        reasons.NO_SNI,
        reasons.ECH,
        reasons.NOT_TLS,
        reasons.SECOND_HELLO,
        reasons.HOST,
        reasons.HTTP,
        reasons.TUNNEL,
    }
)
"""Denials that an entry ``tcp://host:port`` would lift: it carries bytes without looking at them."""

_OPEN: Final = frozenset({reasons.PORT, reasons.DIRECT, reasons.LEARNING})
_FAILURES: Final = frozenset({reasons.UNRESOLVED, reasons.UNREACHABLE, reasons.IDLE, reasons.DETACHED, BROKER_GONE})
"""Reasons that are no decision of the policy."""


def dns_attributes(event: Mapping[str, Any], calls: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of ``egress.dns`` for a question."""
    reason = str(event.get("reason", ""))
    found = {
        "host": str(event["name"]),
        "type": str(event.get("type", "")),
        "transport": str(event.get("transport", "")),
        "decision": "deny" if reason else "allow",
        "count": int(event.get("count", 1)),
        "calls": list(calls),
    }
    if event.get("address"):
        found["address"] = str(event["address"])
    return found | _why(reason, "", allow_line(reason, str(event["name"]), 0))


def connect_attributes(event: Mapping[str, Any], calls: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of ``egress.connect`` for an intent, an outcome or a refusal."""
    reason = str(event.get("reason", ""))
    name, port = str(event.get("name", "")), int(event.get("port", 0))
    found: dict[str, Any] = {
        "host": name,
        "port": port,
        "protocol": str(event.get("protocol", "tcp")),
        "calls": list(calls),
    }
    found |= {key: event[key] for key in ("flow", "mode", "sni", "address") if event.get(key)}
    if event["phase"] == "intent":
        return found | {"decision": "allow"}
    if event["phase"] == "outcome":
        found |= {"bytes_up": event.get("up"), "bytes_down": event.get("down"), "duration_ms": event.get("ms")}
    else:
        found |= {"count": int(event.get("count", 1)), "bytes_up": 0, "bytes_down": 0}  # refused before a dial
    found["decision"] = "allow" if not reason or reason in _FAILURES else "deny"
    return found | _why(reason, str(event.get("detail", "")), allow_line(reason, name, port))


def flood_attributes(event: Mapping[str, Any], calls: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of ``egress.flood``: refusals of which only the number is known."""
    return {"count": int(event["count"]), "decision": "deny", "calls": list(calls)} | _why(reasons.FLOOD, "", "")


def allow_line(reason: str, name: str, port: int) -> str:
    """Return the entry of ``network.egress`` that would allow what was denied, as YAML; empty when none would.

    Args:
        reason: id of the denial.
        name: name or address.
        port: 0 when it is not known (a question is asked before a port is named); then the usual one.
    """
    if reason == reasons.NAME:
        entry = name
    elif reason in _OPEN:
        entry = rule_text(name, port, "auto")
    elif reason in _RAW:
        entry = rule_text(name, port, "tcp")
    else:
        return ""
    try:
        parse_rule(entry)
    except SpecError:
        return ""
    return f'- "{entry}"'


def sentence(name: str, attributes: Mapping[str, Any]) -> str:
    """Return one line for people about a denial, empty for anything else.

    Args:
        name: ``egress.dns``, ``egress.connect`` or ``egress.flood``.
        attributes: of that fact.
    """
    if attributes.get("decision") != "deny":
        return ""
    what = attributes.get("host", f"{attributes.get('count')} attempts")
    if attributes.get("port"):
        what = f"{what}:{attributes['port']}"
    kind = "lookup of " if name == "egress.dns" else ""
    detail = f" ({attributes['detail']})" if attributes.get("detail") else ""
    return f"egress denied: {kind}{what}: {attributes['reason']} {attributes['why']}{detail}{_mend(name, attributes)}"


def _mend(name: str, attributes: Mapping[str, Any]) -> str:
    """Return what to do about a denial, empty when nothing in a driver or policy would help."""
    line = attributes.get("allow_line")
    if line:
        port = f" (port {HTTPS_PORT}; another port is told when it is tried)" if name == "egress.dns" else ""
        consent = "; the operator has to allow addresses" if is_literal(str(attributes.get("host", ""))) else ""
        return f"; to allow it, add to network.egress: {line}{port}{consent}"
    if attributes.get("reason") == reasons.FLOOR:
        return "; the operator may open a private network with [[egress.private]]"
    return ""


def _why(reason: str, detail: str, line: str) -> dict[str, Any]:
    found: dict[str, Any] = {"reason": reason, "why": reasons.TEXT.get(reason, "")} if reason else {}
    if detail:
        found["detail"] = detail[:MAX_DETAIL]
    if line:
        found["allow_line"] = line
    return found
