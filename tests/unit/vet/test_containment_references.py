"""References: what they resolve to, what is never fetched, and dialects that have to be guessed."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from sandbox.vet.containment import Dialect, No, Options, Relation, Unknown, Yes, compare, contained, inhabited

STRING = {"type": "string"}

SAME_AS_STRING: dict[str, Any] = {
    "pointer": {"$defs": {"s": STRING}, "$ref": "#/$defs/s"},
    "pointer with escapes": {"$defs": {"a/b~c%d": STRING}, "$ref": "#/$defs/a~1b~0c%25d"},
    "pointer into a list": {"$defs": {"x": {"anyOf": [False, STRING]}}, "$ref": "#/$defs/x/anyOf/1"},
    "pointer below an unknown keyword": {"x-parts": {"s": STRING}, "$ref": "#/x-parts/s"},
    "anchor": {"$defs": {"s": {"$anchor": "here", **STRING}}, "$ref": "#here"},
    "identifier": {
        "$defs": {"s": {"$id": "other.json", **STRING}},
        "$id": "https://host.test/root.json",
        "$ref": "other.json",
    },
    "relative identifier in a folder": {
        "$id": "https://host.test/a/root.json",
        "$defs": {"s": {"$id": "sub/s.json", "$defs": {"t": {"$anchor": "t", **STRING}}}},
        "$ref": "sub/s.json#t",
    },
    "chain": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": STRING}, "$ref": "#/$defs/a"},
    "dynamic, without a second anchor": {"$defs": {"s": {"$dynamicAnchor": "n", **STRING}}, "$dynamicRef": "#n"},
    "dynamic, rebound by the outermost resource": {
        "$id": "https://host.test/root",
        "$ref": "generic",
        "$defs": {
            "mine": {"$dynamicAnchor": "n", **STRING},
            "generic": {"$id": "generic", "$defs": {"any": {"$dynamicAnchor": "n"}}, "$dynamicRef": "#n"},
        },
    },
}


@pytest.mark.parametrize("schema", SAME_AS_STRING.values(), ids=list(SAME_AS_STRING))
def test_references_resolve_inside_the_document(schema: Any) -> None:
    """Pointers, anchors, identifiers and dynamic references lead where the specification says."""
    assert Relation.EQUAL is compare(schema, STRING)


OUTSIDE = (
    "https://host.test/s.json",
    "s.json",
    "file:///etc/passwd",
    "//host.test/s",
    "urn:x:y",
    "http://[",
    "#/nowhere",
    "#nope",
)


@pytest.mark.parametrize("reference", OUTSIDE)
@pytest.mark.claim("P-VET-03")
def test_nothing_is_ever_fetched(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference out of the schema is unknown with a reason, even to itself, and no socket is opened."""
    opened: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _self, address: opened.append(address))
    answers = [contained({"$ref": reference}, {}), contained({"$ref": reference}, {"$ref": reference})]

    assert [Unknown, Unknown] == [type(answer) for answer in answers]
    assert [] == opened


def test_meta_schemas_are_known() -> None:
    """The specifications' own schemas come from memory."""
    answer = contained({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": ["object", "boolean"]})

    assert isinstance(answer, Yes)


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"anyOf": [{"$ref": "#"}]}}])
def test_a_reference_that_goes_nowhere_is_unknown(schema: Any) -> None:
    """A schema that refers to itself without stepping into a member has no meaning."""
    assert isinstance(contained(schema, schema), Unknown)


def test_recursion_through_negation_is_decided() -> None:
    """A schema may say that its members do not fit itself: values are finite, so that this has a meaning."""
    paradox = {"type": "object", "properties": {"a": {"not": {"$ref": "#"}}}, "required": ["a"]}

    assert isinstance(inhabited(paradox), Yes)
    assert isinstance(contained({"const": {"a": {"a": 1}}}, paradox), No)
    assert isinstance(contained({"const": {"a": {"a": {"a": 1}}}}, paradox), Yes)


def test_identifiers_in_data_are_data() -> None:
    """A ``$id`` or ``$anchor`` inside ``enum``, or below an unknown keyword, names nothing."""
    schema = {"enum": [{"$anchor": "x"}], "x-note": {"$anchor": "x"}, "anyOf": [{"$ref": "#x"}]}

    assert isinstance(contained(schema, True), Unknown)


# --- dialects ---------------------------------------------------------------------------------------------------------
SIBLINGS = {"definitions": {"s": STRING}, "properties": {"p": {"$ref": "#/definitions/s", "maxLength": 3}}}
BARE = {"properties": {"p": {**STRING, "maxLength": 3}}}


def test_an_ambiguous_schema_is_decided_in_every_dialect() -> None:
    """Without ``$schema``, keywords beside ``$ref`` count in 2020-12 only: a *yes* that needs them is not given."""
    draft7, latest = (Options(dialect=dialect) for dialect in (Dialect.DRAFT7, Dialect.D2020))

    assert isinstance(contained(SIBLINGS, BARE), Unknown)
    assert (No, Yes) == tuple(type(contained(SIBLINGS, BARE, options=one)) for one in (draft7, latest))


def test_both_readings_may_agree() -> None:
    """What holds in every plausible dialect is answered."""
    assert isinstance(contained(BARE, SIBLINGS), Yes)


@pytest.mark.parametrize("uri", ["http://json-schema.org/draft-03/schema#", "https://host.test/mine", 7, None])
def test_an_unknown_dialect_is_unknown(uri: Any) -> None:
    """A schema in a dialect nobody knows is not decided, not even against itself."""
    assert isinstance(contained({"$schema": uri}, {"$schema": uri}), Unknown)


def test_a_part_in_another_dialect_is_unknown() -> None:
    """Mixing dialects inside one document is not supported, and said so."""
    mixed = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "items": {"$schema": "http://json-schema.org/draft-07/schema#"},
    }

    assert "another dialect" in contained(mixed, True).reason


# --- formats ----------------------------------------------------------------------------------------------------------
def test_a_format_may_be_asserted_or_not() -> None:
    """A *yes* holds whether or not validators assert ``format``; what needs one of the two is unknown."""
    uri = {"type": "string", "format": "uri"}

    assert isinstance(contained(uri, {"type": "string"}), Yes)
    assert isinstance(contained(uri, uri), Yes)
    assert "`format: uri`" in contained({"type": "string"}, uri).reason
    assert isinstance(contained({"const": 7}, {"format": "uri"}), Yes)
    assert isinstance(contained({"type": "integer"}, {"type": "integer", "format": "int32"}), Unknown)


def test_formats_can_be_annotations() -> None:
    """A caller that knows that nobody asserts formats says so."""
    options = Options(formats="annotation")

    assert isinstance(contained({"type": "string"}, {"type": "string", "format": "uri"}, options=options), Yes)
