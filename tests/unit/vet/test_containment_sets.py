"""Containment against truth that nobody here wrote: test suites, a library's tests, and 600 schemas of real tools."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox.vet.containment import No, Options, Relation, Unknown, Yes, compare, contained, inhabited
from tests.containment_sets import Pair, library_pairs, refuted_label, suite, tool_schemas
from tests.shared import shared, shared_data

pytestmark = [pytest.mark.data, pytest.mark.claim("P-VET-01")]

GOAL = 0.9
"""Share of the pairs without formats that has to be decided (issue: contracts)."""


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """Every pair of every shared set."""
    return [*suite(shared_data("schema")), *library_pairs(shared_data("schema", "jsonsubschema_pairs.jsonl"))]


@pytest.mark.slow
def test_no_pair_is_unsound_and_most_are_decided(pairs: list[Pair]) -> None:
    """No answer contradicts a label, unless two validators prove the label wrong; and enough is decided."""
    wrong: list[str] = []
    decided: Counter[bool] = Counter()
    for pair in pairs:
        answer = contained(pair.a, pair.b, options=Options(dialect=pair.dialect))
        decided[not isinstance(answer, Unknown)] += pair.plain
        if not isinstance(answer, Unknown) and bool(answer) != pair.label and not refuted_label(pair, answer):
            wrong.append(pair.name)

    assert [] == wrong
    assert decided[True] / decided.total() >= GOAL


@pytest.fixture(scope="module")
def tools() -> list[tuple[str, Any]]:
    """Every schema of a real tool."""
    return list(tool_schemas(shared_data("tools")))


def test_every_real_schema_is_in_itself(tools: list[tuple[str, Any]]) -> None:
    """A contract copied from a tool fits the tool, has instances, and another title changes nothing."""
    odd = [
        name
        for name, schema in tools
        if not isinstance(contained(schema, schema), Yes)
        or not isinstance(inhabited(schema), Yes)
        or compare({**schema, "title": "x", "description": "y"}, schema) is not Relation.EQUAL
    ]

    assert [] == odd


def optional_becomes_required(schema: dict[str, Any]) -> Relation | None:
    """Ask for a member that was optional."""
    optional = [name for name in schema["properties"] if name not in schema.get("required", [])]
    if not optional:
        return None
    schema["required"] = [*schema.get("required", []), optional[0]]
    return Relation.NARROWER


def required_becomes_optional(schema: dict[str, Any]) -> Relation | None:
    """Ask for one member less."""
    if not schema.get("required"):
        return None
    schema["required"] = schema["required"][1:]
    return Relation.WIDER


def another_type(schema: dict[str, Any]) -> Relation | None:
    """Turn a string into an integer."""
    return _on(schema, lambda part: part == {"type": "string"}, {"type": "integer"}, Relation.INCOMPARABLE)


def nullable(schema: dict[str, Any]) -> Relation | None:
    """Allow null beside a string."""
    either = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    return _on(schema, lambda part: part == {"type": "string"}, either, Relation.WIDER)


def shorter(schema: dict[str, Any]) -> Relation | None:
    """Bound the length of a string."""
    return _on(schema, lambda part: part == {"type": "string"}, {"type": "string", "maxLength": 9}, Relation.NARROWER)


def patterned(schema: dict[str, Any]) -> Relation | None:
    """Ask for a pattern."""
    return _on(schema, lambda part: part == {"type": "string"}, {"type": "string", "pattern": "^/"}, Relation.NARROWER)


def same_in_other_words(schema: dict[str, Any]) -> Relation | None:
    """Say an integer as a number without fraction."""
    return _on(schema, lambda part: part == {"type": "integer"}, {"type": "number", "multipleOf": 1}, Relation.EQUAL)


def fewer_choices(schema: dict[str, Any]) -> Relation | None:
    """Drop a choice of a list."""
    for part in schema["properties"].values():
        if isinstance(part, dict) and len(part.get("enum", ())) > 1:
            part["enum"] = part["enum"][1:]
            return Relation.NARROWER
    return None


def more_choices(schema: dict[str, Any]) -> Relation | None:
    """Add a choice to a list of strings."""
    for part in schema["properties"].values():
        if isinstance(part, dict) and part.get("type") == "string" and part.get("enum"):
            part["enum"] = [*part["enum"], "quite another"]
            return Relation.WIDER
    return None


def closed(schema: dict[str, Any]) -> Relation | None:
    """Allow no other members."""
    if "additionalProperties" in schema:
        return None
    schema["additionalProperties"] = False
    return Relation.NARROWER


def a_new_member(schema: dict[str, Any]) -> Relation | None:
    """Type a member that was free before."""
    if "additionalProperties" in schema:
        return None
    schema["properties"]["brand_new_member"] = {"type": "boolean"}
    return Relation.NARROWER


def _on(schema: dict[str, Any], fits: Callable[[Any], bool], other: Any, relation: Relation) -> Relation | None:
    for name, part in schema["properties"].items():
        bare = {key: value for key, value in part.items() if key not in {"description", "title", "default"}}
        if fits(bare):
            schema["properties"][name] = other
            return relation
    return None


CHANGES = [
    optional_becomes_required, required_becomes_optional, another_type, nullable, shorter, patterned,
    same_in_other_words, fewer_choices, more_choices, closed, a_new_member,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_real_change_is_classified(
    change: Callable[[dict[str, Any]], Relation | None], tools: list[tuple[str, Any]]
) -> None:
    """A change of known effect is told for what it is, on every real schema that it applies to."""
    found = Counter(_classified(change, tools))

    assert {True} == set(found)
    assert found[True] >= 20


def _classified(change: Callable[[dict[str, Any]], Relation | None], tools: list[tuple[str, Any]]) -> Iterator[bool]:
    for _, schema in tools:
        changed = copy.deepcopy(schema)
        if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
            continue
        if not all(isinstance(part, dict) for part in schema["properties"].values()):
            continue
        expected = change(changed)
        if expected is not None:
            yield compare(changed, schema) is expected


def test_witnesses_on_real_schemas_are_small(tools: list[tuple[str, Any]]) -> None:
    """A counterexample to a real schema holds the required members and at most one more."""
    large: list[str] = []
    for name, schema in tools:
        answer = contained(schema, {**schema, "additionalProperties": False})
        if isinstance(answer, No) and len(answer.witness) > len(schema.get("required", ())) + 1:
            large.append(name)

    assert [] == large


VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")


def definitions(version: str) -> dict[str, Any]:
    """Return every definition of a version of the protocol as a schema of its own."""
    document = json.loads(shared("upstream", "mcp-spec", "schema", version, "schema.json").read_text())
    keyword = "$defs" if "$defs" in document else "definitions"
    kept = {key: document[key] for key in ("$schema", keyword)}
    return {name: {**kept, "allOf": [{"$ref": f"#/{keyword}/{name}"}]} for name in document[keyword]}


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), list(itertools.pairwise(VERSIONS)))
def test_the_protocols_own_schemas_are_decided(old: str, new: str) -> None:
    """Every definition of MCP is in itself, and is decided against the next version's, in both directions."""
    before, after = definitions(old), definitions(new)
    common = sorted(before.keys() & after.keys())
    undecided = [
        name
        for name in common
        if not isinstance(contained(before[name], before[name]), Yes)
        or isinstance(contained(before[name], after[name]), Unknown)
        or isinstance(contained(after[name], before[name]), Unknown)
    ]

    assert [] == undecided
    assert len(common) > 80
