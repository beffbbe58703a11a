"""Each keyword, alone and against its neighbours: what is in what, in both directions."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from sandbox.vet.containment import Dialect, No, Options, Relation, Yes, compare, contained

EQUAL, NARROWER, WIDER, APART = Relation.EQUAL, Relation.NARROWER, Relation.WIDER, Relation.INCOMPARABLE
OBJECT = {"type": "object"}
ARRAY = {"type": "array"}
TREE = {"$defs": {"t": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}}}

PAIRS: list[tuple[str, Any, Any, Relation]] = [
    # types
    ("integer is a number", {"type": "integer"}, {"type": "number"}, NARROWER),
    ("integer and multipleOf 1", {"type": "integer"}, {"type": "number", "multipleOf": 1}, EQUAL),
    ("all types", {}, {"type": ["null", "boolean", "number", "string", "array", "object"]}, EQUAL),
    ("integer beside number", {"type": ["integer", "number"]}, {"type": "number"}, EQUAL),
    ("booleans listed", {"enum": [True, False]}, {"type": "boolean"}, EQUAL),
    ("null listed", {"const": None}, {"type": "null"}, EQUAL),
    ("nothing", {"not": {}}, False, EQUAL),
    # values
    ("one is one point zero", {"const": 1}, {"enum": [1.0]}, EQUAL),
    ("one is not true", {"const": 1}, {"const": True}, APART),
    ("zero in a list is not false", {"const": [0]}, {"const": [False]}, APART),
    ("order of members", {"const": {"a": 1, "b": [2]}}, {"enum": [{"b": [2.0], "a": 1.0}]}, EQUAL),
    ("a const object said structurally", {"const": {"a": 1}},
     {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "maxProperties": 1}, EQUAL),
    ("a const array said structurally", {"const": [1, "x"]},
     {"type": "array", "prefixItems": [{"const": 1}, {"const": "x"}], "minItems": 2, "items": False}, EQUAL),
    ("enum minus one", {"enum": ["a", "b"], "not": {"const": "b"}}, {"const": "a"}, EQUAL),
    # numbers
    ("bounds", {"minimum": 2, "maximum": 3}, {"minimum": 1}, NARROWER),
    ("exclusive", {"exclusiveMinimum": 0}, {"minimum": 0}, NARROWER),
    ("exclusive over integers", {"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}, EQUAL),
    ("an empty interval", {"type": "number", "minimum": 2, "maximum": 1}, False, EQUAL),
    ("a point", {"type": "number", "minimum": 2, "maximum": 2}, {"const": 2}, EQUAL),
    ("multiples", {"type": "integer", "multipleOf": 6}, {"multipleOf": 3}, NARROWER),
    ("common multiples", {"type": "number", "multipleOf": 4, "allOf": [{"multipleOf": 6}]},
     {"type": "number", "multipleOf": 12}, EQUAL),
    ("a fractional divisor", {"type": "number", "multipleOf": 0.5}, {"type": "number", "multipleOf": 0.25}, NARROWER),
    ("the same awkward divisor", {"multipleOf": 0.1}, {"multipleOf": 0.1}, EQUAL),
    ("multiples in an interval", {"type": "integer", "minimum": 4, "maximum": 7, "multipleOf": 3}, {"const": 6}, EQUAL),
    ("even or odd", {"type": "integer"},
     {"type": "integer", "anyOf": [{"multipleOf": 2}, {"not": {"multipleOf": 2}}]}, EQUAL),
    # strings
    ("lengths", {"type": "string", "minLength": 2, "maxLength": 3}, {"type": "string", "minLength": 1}, NARROWER),
    ("empty string", {"type": "string", "maxLength": 0}, {"const": ""}, EQUAL),
    ("a pattern and its length", {"type": "string", "pattern": "^[ab]{2}$"}, {"minLength": 2}, NARROWER),
    ("search, not match", {"type": "string", "pattern": "ab"}, {"type": "string", "pattern": "b"}, NARROWER),
    ("alternation", {"pattern": "^(a|b)"}, {"pattern": "^[ab]"}, EQUAL),
    ("look-ahead at the start", {"type": "string", "pattern": "^(?!a)[ab]"}, {"type": "string", "pattern": "^b"},
     EQUAL),
    ("a list against a pattern", {"enum": ["aa", "ab"]}, {"pattern": "^a"}, NARROWER),
    ("a look-behind is itself", {"pattern": "(?<=a)b"}, {"pattern": "(?<=a)b"}, EQUAL),
    # arrays
    ("items", {**ARRAY, "items": {"const": 1}}, {**ARRAY, "items": {"type": "integer"}}, NARROWER),
    ("a tuple", {**ARRAY, "prefixItems": [{"type": "string"}], "items": False}, {**ARRAY, "maxItems": 1}, NARROWER),
    ("items that cannot be", {**ARRAY, "items": False}, {"const": []}, EQUAL),
    ("contains", {**ARRAY, "contains": {"const": 1}}, {**ARRAY, "minItems": 1}, NARROWER),
    ("contains all", {**ARRAY, "items": {"const": 1}, "minItems": 1}, {**ARRAY, "contains": {"const": 1}}, NARROWER),
    ("contains counted", {**ARRAY, "contains": {"const": 1}, "minContains": 3}, {**ARRAY, "minItems": 3}, NARROWER),
    ("contains nothing asked", {**ARRAY, "contains": {"const": 1}, "minContains": 0}, ARRAY, EQUAL),
    ("contains at most", {**ARRAY, "contains": True, "maxContains": 2}, {**ARRAY, "minItems": 1, "maxItems": 2}, EQUAL),
    ("contains two sorts", {**ARRAY, "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]},
     {**ARRAY, "minItems": 2}, NARROWER),
    ("contains one for both", {**ARRAY, "allOf": [{"contains": {"minimum": 1}}, {"contains": {"type": "integer"}}]},
     {**ARRAY, "minItems": 2}, APART),
    ("unique booleans are two", {**ARRAY, "items": {"type": "boolean"}, "uniqueItems": True}, {"maxItems": 2},
     NARROWER),
    ("too few values", {**ARRAY, "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, False, EQUAL),
    ("one and one point zero are twins", {"const": [1, 1.0]}, {"uniqueItems": True}, APART),
    ("not unique needs two", {**ARRAY, "not": {"uniqueItems": True}}, {**ARRAY, "minItems": 2}, NARROWER),
    # objects
    ("required", {**OBJECT, "required": ["a", "b"]}, {**OBJECT, "required": ["a"]}, NARROWER),
    ("required is a count", {**OBJECT, "required": ["a", "b"]}, {**OBJECT, "minProperties": 2}, NARROWER),
    ("properties", {**OBJECT, "properties": {"a": {"type": "integer"}}}, {**OBJECT, "properties": {"a": {}}}, NARROWER),
    ("closed", {**OBJECT, "properties": {"a": {}}, "additionalProperties": False}, {**OBJECT, "maxProperties": 1},
     NARROWER),
    ("closed to another", {"properties": {"a": {}}, "additionalProperties": False, **OBJECT},
     {"propertyNames": {"const": "a"}, **OBJECT}, EQUAL),
    ("patterned names", {**OBJECT, "patternProperties": {"^a": {"type": "string"}}},
     {**OBJECT, "properties": {"ab": {"type": "string"}}}, NARROWER),
    ("overlapping patterns",
     {**OBJECT, "patternProperties": {"^a": {"minimum": 1}, "b$": {"maximum": 0, "type": "number"}}},
     {**OBJECT, "properties": {"ab": {"not": {"type": "number"}}}}, NARROWER),
    ("names that cannot be many", {**OBJECT, "propertyNames": {"enum": ["a", "b"]}}, {"maxProperties": 2}, NARROWER),
    ("too few names", {**OBJECT, "propertyNames": {"pattern": "^[ab]", "maxLength": 1}, "minProperties": 3}, False,
     EQUAL),
    ("a member that cannot be", {**OBJECT, "properties": {"a": False}}, {**OBJECT, "not": {"required": ["a"]}}, EQUAL),
    ("a required member that cannot be", {**OBJECT, "properties": {"a": False}, "required": ["a"]}, False, EQUAL),
    ("dependent members", {**OBJECT, "dependentRequired": {"a": ["b"]}, "required": ["a"]},
     {**OBJECT, "required": ["a", "b"]}, EQUAL),
    ("dependent schemas", {**OBJECT, "dependentSchemas": {"a": {"maxProperties": 1}}, "required": ["a"]},
     {**OBJECT, "maxProperties": 1}, NARROWER),
    # applicators
    ("oneOf of disjoint parts", {"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}, EQUAL),
    ("oneOf of overlapping parts", {"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]},
     {"anyOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]}, NARROWER),
    ("if then else", {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": "null"}},
     {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}, EQUAL),
    ("nullable two ways", {"type": ["string", "null"], "minLength": 1},
     {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 1}]}, EQUAL),
    ("de Morgan", {"not": {"anyOf": [{"type": "string"}, {"minimum": 3}]}},
     {"allOf": [{"not": {"type": "string"}}, {"not": {"minimum": 3}}]}, EQUAL),
    ("a discriminated union",
     {"oneOf": [{**OBJECT, "properties": {"t": {"const": k}}, "required": ["t"]} for k in "abc"]},
     {**OBJECT, "properties": {"t": {"enum": ["a", "b", "c"]}}, "required": ["t"]}, EQUAL),
    # what is evaluated
    ("unevaluated beside properties", {**OBJECT, "properties": {"a": {}}, "unevaluatedProperties": False},
     {**OBJECT, "properties": {"a": {}}, "additionalProperties": False}, EQUAL),
    ("unevaluated across allOf", {**OBJECT, "allOf": [{"properties": {"a": {}}}], "properties": {"b": {}},
                                  "unevaluatedProperties": False},
     {**OBJECT, "properties": {"a": {}, "b": {}}, "additionalProperties": False}, EQUAL),
    ("unevaluated after a failed branch",
     {**OBJECT, "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {}],
                                           "unevaluatedProperties": False},
     {"enum": [{}, {"a": 1}]}, EQUAL),
    ("unevaluated items", {**ARRAY, "allOf": [{"prefixItems": [{"const": 1}]}], "unevaluatedItems": False},
     {"enum": [[], [1]]}, EQUAL),
    ("unevaluated items that contains saw", {**ARRAY, "contains": {"const": 1}, "unevaluatedItems": False},
     {**ARRAY, "items": {"const": 1}, "minItems": 1}, EQUAL),
    # recursion
    ("a tree of trees", {**TREE, "$ref": "#/$defs/t", "properties": {"kids": {"maxItems": 1}}},
     {**TREE, "$ref": "#/$defs/t"}, NARROWER),
    ("two trees of the same shape", {**TREE, "$ref": "#/$defs/t"},
     {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}, EQUAL),
    ("a tree without leaves is empty",
     {"$defs": {"t": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
     False, EQUAL),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "relation"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_relation(a: Any, b: Any, relation: Relation) -> None:
    """The relation of two schemas is what the specification says, in both directions."""
    turned = {NARROWER: WIDER, WIDER: NARROWER}

    assert (relation, turned.get(relation, relation)) == (compare(a, b), compare(b, a))


DRAFT7: list[tuple[str, Any, Any, Relation]] = [
    ("a list of items", {"items": [{"type": "string"}], "additionalItems": False}, {"maxItems": 1}, NARROWER),
    ("additionalItems alone says nothing", {"additionalItems": False}, {}, EQUAL),
    ("dependencies with names", {"dependencies": {"a": ["b"]}, "required": ["a"]}, {"required": ["b", "a"]}, EQUAL),
    ("dependencies with a schema", {"dependencies": {"a": False}}, {"properties": {"a": False}}, EQUAL),
    ("siblings of a reference say nothing",
     {"definitions": {"s": {"type": "string"}}, "properties": {"p": {"$ref": "#/definitions/s", "maxLength": 1}}},
     {"properties": {"p": {"type": "string"}}}, EQUAL),
    ("later keywords say nothing", {"prefixItems": [False], "dependentRequired": {"a": ["b"]}, "minContains": 3}, {},
     EQUAL),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "relation"), [pair[1:] for pair in DRAFT7], ids=[pair[0] for pair in DRAFT7])
def test_relation_in_draft_07(a: Any, b: Any, relation: Relation) -> None:
    """In draft-07 some keywords mean something else, or nothing."""
    uri = {"$schema": "http://json-schema.org/draft-07/schema#"}

    assert relation == compare({**uri, **a}, {**uri, **b})


def test_draft_04_bounds_are_booleans() -> None:
    """``exclusiveMinimum: true`` makes a schema without ``$schema`` a draft-04 schema."""
    strict, loose = {"minimum": 5, "exclusiveMinimum": True}, {"minimum": 5}

    assert Relation.NARROWER is compare(strict, loose)


def test_every_no_above_is_confirmed() -> None:
    """Each refutation in the table holds for the reference implementation."""
    for name, a, b, _ in PAIRS:
        for one, other in ((a, b), (b, a)):
            answer = contained(one, other, options=Options(dialect=Dialect.D2020))
            if isinstance(answer, No):
                first, second = (jsonschema.Draft202012Validator(schema) for schema in (one, other))

                assert first.is_valid(answer.witness), name
                assert not second.is_valid(answer.witness), name


def test_an_empty_contract_is_told() -> None:
    """A *yes* because nothing is valid under the first schema says so."""
    answer = contained({"type": "string", "minimum": 3, "not": {"type": "string"}}, {"type": "null"})

    assert Yes(vacuous=True) == answer
