"""Reads the shared sets of schema pairs and of real tools for tests and for the benchmark; nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs

from sandbox.vet.containment import Answer, Dialect, No, Yes

FORMAT_KEYWORDS = frozenset({"format", "contentMediaType", "contentEncoding", "contentSchema"})
DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})

REFERENCE = {
    Dialect.DRAFT4: jsonschema.Draft4Validator,
    Dialect.DRAFT7: jsonschema.Draft7Validator,
    Dialect.D2020: jsonschema.Draft202012Validator,
}
SECOND = {
    Dialect.DRAFT4: jsonschema_rs.Draft4Validator,
    Dialect.DRAFT7: jsonschema_rs.Draft7Validator,
    Dialect.D2020: jsonschema_rs.Draft202012Validator,
}


@dataclass(frozen=True)
class Pair:
    """Two schemas, and whether the first is said to be contained in the second.

    Attributes:
        group: keyword group, the name of the file.
        dialect: dialect of the set, ``None`` when the schemas have to tell.
    """

    source: str
    group: str
    name: str
    dialect: Dialect | None
    a: Any
    b: Any
    label: bool

    @property
    def plain(self) -> bool:
        """Whether no keyword about formats or content is used."""
        return not (keywords_of(self.a) | keywords_of(self.b)) & FORMAT_KEYWORDS


def keywords_of(schema: Any) -> set[str]:
    """Return every member name of a schema outside data."""
    if isinstance(schema, dict):
        inner = (keywords_of(value) for key, value in schema.items() if key not in DATA_KEYWORDS)
        return set(schema).union(*inner)
    return set().union(*map(keywords_of, schema)) if isinstance(schema, list) else set()


def suite(root: Path) -> Iterator[Pair]:
    """Yield the pairs of the containment test suites below ``data/schema``."""
    for folder, dialect in (("containment-draft7", Dialect.DRAFT7), ("containment-draft2020-12", Dialect.D2020)):
        for path in sorted((root / folder).rglob("*.json")):
            for case in json.loads(path.read_text()):
                name = f"{folder}/{path.relative_to(root / folder)}#{case['id']}"
                sides = (case["schema1"], case["schema2"])
                for key, (a, b) in (("s1SubsetEqOfs2", sides), ("s2SubsetEqOfs1", sides[::-1])):
                    if key in case["tests"]:
                        yield Pair(folder, path.stem, f"{name}/{key}", dialect, a, b, case["tests"][key])


def library_pairs(path: Path) -> Iterator[Pair]:
    """Yield the pairs from a library's own unit tests; those that expect an error have no truth value."""
    for number, line in enumerate(path.read_text().splitlines()):
        record = json.loads(line)
        if not isinstance(record["expected"], bool):
            continue
        sides = (record["schema1"], record["schema2"])
        both = record["op"] == "isEquivalent"
        if both and not record["expected"]:
            continue
        for a, b in (sides, sides[::-1]) if both else (sides,):
            yield Pair("library", "library", f"library#{number}", None, a, b, record["expected"])


def refuted_label(pair: Pair, answer: Answer) -> bool:
    """Return whether an answer that contradicts a label is right beyond doubt: both judges agree with it.

    A *no* proves itself by its witness. A *yes* against a label is accepted only when the first schema is a constant,
    which both judges accept under the second.
    """
    dialect = pair.dialect or _dialect_of(pair)
    judges = [table[dialect] for table in (REFERENCE, SECOND)]
    if isinstance(answer, No):
        return all(judge(pair.a).is_valid(answer.witness) > judge(pair.b).is_valid(answer.witness) for judge in judges)
    return (
        isinstance(answer, Yes)
        and "const" in pair.a
        and all(judge(pair.b).is_valid(pair.a["const"]) for judge in judges)
    )


def _dialect_of(pair: Pair) -> Dialect:
    old = any(isinstance(schema, dict) and "draft-04" in str(schema.get("$schema")) for schema in (pair.a, pair.b))
    return Dialect.DRAFT4 if old else Dialect.D2020


def tool_schemas(root: Path) -> Iterator[tuple[str, Any]]:
    """Yield every distinct input and output schema of the real tools below ``data/tools``."""
    seen: set[str] = set()
    tools = [json.loads(line)["tool"] for line in (root / "benign_dev.jsonl").read_text().splitlines()]
    for path in sorted(root.glob("*.json")):
        tools.extend(_tools_in(json.loads(path.read_text())))
    for tool in tools:
        for side in ("inputSchema", "outputSchema"):
            schema = tool.get(side)
            text = json.dumps(schema, sort_keys=True)
            if isinstance(schema, dict) and text not in seen:
                seen.add(text)
                yield f"{tool.get('name')}.{side}", schema


def _tools_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "inputSchema" in value:
            yield value
        for inner in value.values():
            yield from _tools_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _tools_in(inner)
