"""The published schema of every event: name, phases and attributes, made from the tables of docs/audit-events.md.

``python -m tests.event_schema`` writes ``docs/schemas/events.schema.json``. It is of one release: a later one may add
events and attributes, and says so there first; the form of a record (``event.schema.json``) is the same for all.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.shared import ROOT

PAGE = ROOT / "docs" / "audit-events.md"
PLACE = ROOT / "docs" / "schemas" / "events.schema.json"
MEND = "document the attribute in docs/audit-events.md, then run `python -m tests.event_schema`"

ALWAYS = ("oversize",)
"""What a record says of attributes that were cut."""

_ROW = re.compile(
    r"^\| `([a-z._]+)` \| ((?:fact|intent|outcome)(?:, (?:fact|intent|outcome))*) \| (.*) \|$", re.MULTILINE
)


def documented() -> dict[str, tuple[list[str], list[str]]]:
    """Return name → phases and attributes; words in parentheses are values and explanations, not attributes."""
    found = {}
    for name, phases, said in _ROW.findall(PAGE.read_text("utf-8")):
        plain = re.sub(r"\([^()]*\)", "", said)
        found[name] = (phases.split(", "), re.findall(r"`([A-Za-z0-9_]+)`", plain))
    return found


def schema() -> dict[str, Any]:
    """Return the schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:mcp-sandbox:schema:events:1",
        "title": "Events of an audit trail",
        "description": "Phases and attributes of each event of this release; docs/audit-events.md explains them.",
        "properties": {"name": {"enum": sorted(documented())}},
        "allOf": [
            {
                "if": {"properties": {"name": {"const": name}}},
                "then": {
                    "properties": {
                        "phase": {"enum": phases},
                        "attrs": {"propertyNames": {"enum": sorted({*attributes, *ALWAYS})}},
                    }
                },
            }
            for name, (phases, attributes) in sorted(documented().items())
        ],
    }


def text() -> str:
    """Return the file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), "utf-8")
