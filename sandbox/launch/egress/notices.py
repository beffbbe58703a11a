"""Tells a person what was refused, and the line that would allow it: once for each destination, and a bounded number.

The audit trail has every refusal; this is for who reads the stderr of ``mcp-sandbox run`` and wonders why a server
does not work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.launch.egress import evidence

MAX_NOTICES: Final = 40
"""Destinations named one by one; a flood of made-up names ends in one further line (S0-36)."""

ENOUGH: Final = "egress denied: further destinations; they are in the audit trail only (`mcp-sandbox audit query`)"


class Notices:
    """Turns facts about egress into lines.

    Args:
        say: shows one line; it is untrusted text, whose control characters are the caller's to escape.
        most: destinations named before the rest is left to the trail.
    """

    def __init__(self, say: Callable[[str], None], most: int = MAX_NOTICES) -> None:
        self._say = say
        self._left = most
        self._named: set[tuple[str, int]] = set()

    def fact(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Take one fact; only a denial of a destination that was not named before makes a line."""
        line = evidence.sentence(name, attributes)
        destination = (str(attributes.get("host", "")), int(attributes.get("port") or 0))
        if not line or self._left < 0 or destination in self._named:
            return
        self._left -= 1
        if self._left < 0:
            self._say(ENOUGH)
            return
        self._named.add(destination)
        self._say(line)
