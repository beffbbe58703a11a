"""What a server tried, while everything was denied, becomes the smallest list of entries that would allow it; pure.

Nothing here widens anything: the entries are proposals for a person, who adds them to DRIVER.md or does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.errors import SpecError
from sandbox.policy.destinations import HTTPS_PORT, covers, is_literal, match, rule_text
from sandbox.policy.hosts import parse_rule, parse_rules


def propose(events: Iterable[Mapping[str, Any]], present: Iterable[str] = ()) -> list[str]:
    """Return entries of ``network.egress`` for what was tried and is not allowed yet, names first, each once.

    Steps:

    1. Every refused TCP connection gives its name (or address) and port.
    2. A name that was looked up, and then not connected to, gives itself with the usual port.
    3. Ports of one name become one entry.

    Args:
        events: attributes of ``egress.dns`` and ``egress.connect`` facts.
        present: entries that the driver has; what they allow is not proposed again.
    """
    rules = parse_rules(present)
    ports: dict[str, set[int]] = {}
    asked: set[str] = set()
    for event in events:
        name, port = str(event.get("host", "")), int(event.get("port") or 0)
        if "type" in event:
            asked.add(name)  # while learning every name has an address, so that its port is seen
        elif event.get("decision") == "deny" and port and event.get("protocol", "tcp") == "tcp":
            # 1
            ports.setdefault(name, set()).add(port)
    # 2
    for name in asked - set(ports):
        if not any(covers(rule.host, name) for rule in rules):
            ports[name] = {HTTPS_PORT}
    # 3
    fresh = {name: {port for port in found if match(rules, name, port) is None} for name, found in ports.items()}
    entries = [_entry(name, sorted(found)) for name, found in sorted(fresh.items(), key=_order) if found]
    return [entry for entry in entries if _usable(entry)]


def _order(item: tuple[str, set[int]]) -> tuple[bool, str]:
    return is_literal(item[0]), item[0]


def _entry(name: str, ports: list[int]) -> str:
    if len(ports) == 1:
        return rule_text(name, ports[0], "auto")
    shown = f"[{name}]" if ":" in name else name
    return f"{shown}:{','.join(map(str, ports))}"


def _usable(entry: str) -> bool:
    try:
        parse_rule(entry)
    except SpecError:
        return False
    return True
