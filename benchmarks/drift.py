"""How every real change of the shared sets is classified, as a table for people.

    python benchmarks/drift.py [--data ../shared/data] [--out docs/drift.md]

The sets have no labels. What passes is few, so all of it is listed for a reader, and held against a check that shares
nothing with the classifier: no text, name or choice is new, and thousands of instances made from the new schema are
valid under the old one for another validator. What waits is counted by what has changed; the part of it that changes
neither behaviour nor wording about behaviour (display titles, icons, generated schema titles) is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox.vet.containment import Options  # noqa: E402
from sandbox.vet.drift import ABSENT, Change, drift  # noqa: E402
from sandbox.vet.model import ServerSurface  # noqa: E402
from sandbox.vet.reading import schema_lines  # noqa: E402

ORDER = ("undecided", "widening", "text", "narrowing", "same", "noted")
COSMETIC = {"title", "icons"}
INSTANCES = 2000
DEEP = 12
ANY: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "a", [], [1], {}, {"a": 1})
SETS = ("drift_github_toolsnaps.jsonl", "drift_live_versions.jsonl")


@dataclass(frozen=True)
class Judged:
    """One real change of one tool."""

    set_: str
    origin: str
    tool: str
    changes: tuple[Change, ...]
    seconds: float

    @property
    def kind(self) -> str:
        """The kind that decides what happens to the tool."""
        kinds = {change.kind for change in self.changes}
        return next((kind for kind in ORDER if kind in kinds), "same")

    @property
    def cause(self) -> str:
        """What has changed, of what waits."""
        return " + ".join(sorted({_cause(change) for change in self.changes if change.waits}))


def _cause(change: Change) -> str:
    if change.field not in ("inputSchema", "outputSchema"):
        return change.field
    if change.before is ABSENT or change.after is ABSENT:
        return f"{change.field} {'appeared' if change.before is ABSENT else 'gone'}"
    if change.kind == "text" and all(one.what.endswith("`title`") for one in change.news):
        return "schema titles"
    names = any("names" in one.what for one in change.news)
    return f"{change.field} {'names' if names else 'values' if change.kind == 'widening' else 'wording'}"


def pairs(data: Path) -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    """Yield set, origin, tool, before and after."""
    for name in SETS:
        for line in (data / "tools" / name).read_text().splitlines():
            row = json.loads(line)
            if "before" in row:
                yield name, row["commit"][:10], row["tool"], row["before"], row["after"]
            for one in row.get("changed", ()):
                origin = f"{row['package']} {row['from']} → {row['to']}"
                yield name, origin, one["tool"], one["before"], one["after"]


def judged(data: Path) -> list[Judged]:
    """Classify every change."""
    found = []
    for name, origin, tool, before, after in pairs(data):
        start = time.thread_time()
        changes = drift(_offering(tool, before), _offering(tool, after), options=Options(clock=time.monotonic))
        found.append(Judged(name, origin, tool, changes, time.thread_time() - start))
    return found


def _offering(name: str, tool: dict[str, Any]) -> ServerSurface:
    return ServerSurface("handshake", "2025-11-25", {"name": "s"}, {}, tools={name: tool})


# --- the other check -----------------------------------------------------------------------------------------------
def wrong(change: Change) -> list[str]:
    """Return what an independent look finds new in a schema that passed."""
    before, after = (True if side is ABSENT else side for side in (change.before, change.after))
    new = sorted(set(_texts(after)) - set(_texts(before)))
    return [f"new text {text!r}" for text in new] + _refuted(after, before)


def _texts(schema: Any) -> Iterator[str]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo.extend(value for key, value in one.items() if key not in ("$schema", "type", "pattern", "format"))
            named = [one[key] for key in ("properties", "$defs", "patternProperties") if isinstance(one.get(key), dict)]
            todo.extend(list(names) for names in named)
        elif isinstance(one, list):
            todo.extend(one)


def _refuted(after: Any, before: Any) -> list[str]:
    """Return instances of ``after`` that another validator refuses under ``before``."""
    new, old = jsonschema_rs.validator_for(after), jsonschema_rs.validator_for(before)
    chance = random.Random(1)
    made = (_instance(after, after, chance, 0) for _ in range(INSTANCES))
    return [f"accepts {json.dumps(value)[:80]}" for value in made if new.is_valid(value) and not old.is_valid(value)][
        :1
    ]


def _instance(schema: Any, root: Any, chance: random.Random, depth: int) -> Any:
    """Return a value that is often valid under a schema."""
    if not isinstance(schema, dict) or depth > DEEP:
        return chance.choice(ANY)
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return _instance(target, root, chance, depth + 1)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return _instance(chance.choice(schema[union]), root, chance, depth + 1)
    if "enum" in schema or "const" in schema:
        return chance.choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = chance.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        inner = schema.get("properties", {})
        needed = set(schema.get("required", ()))
        chosen = {name for name in inner if name in needed or chance.random() < 0.5}
        extra = {chance.choice("xyz"): chance.choice(ANY)} if chance.random() < 0.2 else {}
        return {**extra, **{name: _instance(inner[name], root, chance, depth + 1) for name in chosen}}
    if kind == "array":
        return [_instance(schema.get("items"), root, chance, depth + 1) for _ in range(chance.randint(0, 3))]
    values = {"string": "abc", "integer": chance.choice((0, 1, 5, 10**9)), "number": 1.5, "boolean": True, "null": None}
    return values.get(kind, chance.choice(ANY)) if isinstance(kind, str) else chance.choice(ANY)


# --- the page ------------------------------------------------------------------------------------------------------
def page(found: list[Judged]) -> Iterator[str]:
    """Yield the lines of the page."""
    passed = [one for one in found if one.kind in ("same", "narrowing")]
    waiting = [one for one in found if one not in passed]
    schemas = [
        (one, change)
        for one in found
        for change in one.changes
        if change.field in ("inputSchema", "outputSchema") and change.kind in ("same", "narrowing")
    ]
    faults = [fault for _, change in schemas for fault in wrong(change)]
    alarms = [one for one in waiting if all(_cosmetic(change) for change in one.changes if change.waits)]
    yield from (
        "# How real changes of tools are classified",
        "",
        "Generated by `python benchmarks/drift.py`; do not edit. [pins.md](pins.md) explains the kinds.",
        "",
        f"{len(found)} changes of one tool each, from the histories of public servers. {len(passed)} pass,",
        f"{len(waiting)} take the tool out of service until somebody approves.",
        f"**{len(faults)} of the {len(schemas)} schema changes that pass are a change of meaning**, by a check that",
        f"shares nothing with the classifier: no new text or name, {INSTANCES} generated instances each, judged by",
        f"another validator. False alarms: {len(alarms)} changes wait although only display titles, icons or generated",
        f"schema titles differ. One tool took {max(one.seconds for one in found) * 1000:.0f} ms at most.",
        "",
        "| set | " + " | ".join(ORDER[:5]) + " |",
        "|---|" + "---|" * 5,
    )
    for name in SETS:
        kinds = Counter(one.kind for one in found if one.set_ == name)
        yield f"| {name} | " + " | ".join(str(kinds[kind]) for kind in ORDER[:5]) + " |"
    yield from ("", "## Why tools wait", "", "| what differs | changes | false alarm |", "|---|---|---|")
    for cause, count in Counter(one.cause for one in waiting).most_common():
        alarm = "yes" if any(one in alarms for one in waiting if one.cause == cause) else ""
        yield f"| {cause} | {count} | {alarm} |"
    yield from ("", "## What passes", "", "Annotations and `execution` that spell out the protocol's defaults: ")
    spelled = Counter(c.field for one in passed for c in one.changes if c.field in ("annotations", "execution"))
    yield (
        ", ".join(f"`{field}` {count}" for field, count in sorted(spelled.items()))
        + ". Schemas, also of tools that wait for something else:"
    )
    yield from ("", "| tool | origin | field | kind | what differs |", "|---|---|---|---|---|")
    for one, change in schemas:
        sides = (None if side is ABSENT else side for side in (change.before, change.after))
        told = "; ".join(schema_lines(*sides)) or "order and spelling only"
        yield f"| {one.tool} | {one.origin} | {change.field} | {change.kind} | {_cell(told)} |"
    yield from ("", "## Every change", "", "| tool | origin | kind | fields |", "|---|---|---|---|")
    for one in found:
        fields = ", ".join(f"{change.field} {change.kind}" for change in one.changes)
        yield f"| {one.tool} | {one.origin} | {one.kind} | {fields} |"


def _cosmetic(change: Change) -> bool:
    return change.field in COSMETIC or _cause(change) == "schema titles"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:300]


def main() -> int:
    """Write the page; the exit status is 1 when a change of meaning passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "drift.md")
    given_ = parser.parse_args()
    found = judged(given_.data)
    lines = list(page(found))
    given_.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:20]))
    passed = [c for one in found for c in one.changes if c.field.endswith("Schema") and c.kind in ("same", "narrowing")]
    return 1 if any(wrong(change) for change in passed) else 0


if __name__ == "__main__":
    sys.exit(main())
