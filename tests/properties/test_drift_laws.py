"""What passes as a narrowing neither accepts nor says anything that was not approved; every change of meaning waits."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sandbox import jsontext
from sandbox.vet.containment import Options
from sandbox.vet.drift import HINTS, WAITS, drift
from sandbox.vet.drift_schema import compare
from sandbox.vet.drift_words import LISTS, MAPS, SINGLES
from sandbox.vet.model import ServerSurface
from sandbox.vet.pins import decode, digest_of, encode, pins_of
from tests.properties.containment_schemas import refutes, related, schemas, universe

pytestmark = pytest.mark.claim("P-VET-22")

many = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
PASSES = {"same", "narrowing"}
SILENT = {"type", "pattern", "format", "$schema"}
"""Keywords whose texts only say which values are accepted."""


def texts(schema: Any) -> Iterator[str]:
    """Yield every text of a schema that a reader could take as meant for them."""
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            todo.extend(value for key, value in one.items() if key not in SILENT)
        elif isinstance(one, list):
            todo.extend(one)


def places(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every subschema that is an object."""
    todo = [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, dict):
            continue
        yield one
        for keyword, value in one.items():
            if keyword in MAPS and isinstance(value, dict):
                todo.extend(value.values())
            elif keyword in LISTS and isinstance(value, list):
                todo.extend(value)
            elif keyword in SINGLES:
                todo.append(value)


@many
@given(schemas())
def test_nothing_has_changed_in_what_is_equal(schema: Any) -> None:
    """A surface differs from itself in nothing."""
    surface = offering({"name": "t", "inputSchema": schema, "outputSchema": schema})

    assert () == drift(surface, offering(copy.deepcopy(dict(surface.tools["t"]))))


@many
@given(related())
def test_what_passes_accepts_nothing_new(pair: tuple[Any, Any]) -> None:
    """No small value that two independent validators accept now was refused by what was approved."""
    after, before = pair
    assume(compare(before, after, Options()).kind in PASSES)

    assert [] == refutes(after, before)


KEYWORDS = frozenset({*MAPS, *LISTS, *SINGLES})


@many
@given(related())
def test_what_passes_says_nothing_new(pair: tuple[Any, Any]) -> None:
    """Every name, wording and choice of a schema that passes stood in the approved one."""
    after, before = pair
    assume(compare(before, after, Options()).kind in PASSES)
    keywords = {key for place in places(after) for key in place}

    assert set() == set(texts(after)) - set(texts(before)) - keywords


@many
@given(related())
def test_a_member_that_is_no_longer_named_is_refused(pair: tuple[Any, Any]) -> None:
    """In what passes, no approved property of the whole is silently ignored from now on."""
    after, before = pair
    assume(isinstance(before, dict) and isinstance(after, dict))
    assume(compare(before, after, Options()).kind in PASSES)
    gone = set(before.get("properties", {})) - set(after.get("properties", {}))

    assert [] == [value for value in taken(after) if isinstance(value, dict) and gone.intersection(value)]


def taken(schema: Any) -> list[Any]:
    """Return the small values that a schema accepts."""
    return [value for value in universe() if not refutes_one(schema, value)]


def refutes_one(schema: Any, value: Any) -> bool:
    """Return whether a schema refuses a value."""
    import jsonschema_rs

    return not jsonschema_rs.validator_for(schema).is_valid(value)


MEANING = st.sampled_from(
    [
        ("description", "new words"),
        ("title", "New"),
        ("default", 7),
        ("examples", ["x"]),
        ("x-vendor", True),
        ("$comment", "read the keys first"),
        ("deprecated", True),
    ]
)


@many
@given(schemas(), MEANING, st.randoms(use_true_random=False))
def test_other_words_at_any_place_wait(schema: Any, said: tuple[str, Any], random: Any) -> None:
    """A description, default, example or unknown keyword that is new anywhere in a schema waits for a person."""
    after = copy.deepcopy(schema)
    found = list(places(after))
    assume(found)
    random.choice(found)[said[0]] = said[1]

    assert compare(schema, after, Options()).kind in WAITS


@many
@given(schemas(), st.randoms(use_true_random=False))
def test_a_new_argument_at_any_place_waits(schema: Any, random: Any) -> None:
    """In an open object a new property makes the set of values smaller; it is new all the same."""
    after = copy.deepcopy(schema)
    found = [one for one in places(after) if isinstance(one.get("properties", {}), dict)]
    assume(found)
    place = random.choice(found)
    place["properties"] = {**place.get("properties", {}), "brand_new": {"type": "string"}}

    assert compare(schema, after, Options()).kind in WAITS


def offering(*tools: dict[str, Any]) -> ServerSurface:
    """Return a surface of some tools."""
    return ServerSurface("handshake", "2025-11-25", {"name": "s"}, {}, tools={tool["name"]: tool for tool in tools})


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from((0.0, 1.0, "", "a", "b"))),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("a", "b", "size")), inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(
    st.sampled_from(("name", "title", "annotations", "execution", "inputSchema", "_meta", "uri", "x")),
    values,
    max_size=3,
)
named = st.dictionaries(st.sampled_from(("t", "u")), objects, max_size=2)
listed = st.lists(objects, max_size=2).map(tuple)
surfaces = st.builds(
    ServerSurface,
    era=st.sampled_from(("handshake", "stateless")),
    protocol_version=st.sampled_from(("1", "2")),
    server_info=objects,
    capabilities=objects,
    instructions=st.sampled_from(("", "a")),
    tools=named,
    prompts=named,
    resources=listed,
    resource_templates=listed,
)


@many
@given(surfaces, surfaces)
def test_every_difference_is_told(one: ServerSurface, other: ServerSurface) -> None:
    """Surfaces have no differences exactly when their digests are equal: nothing that is pinned is overlooked."""
    assert (digest_of(one) != digest_of(other)) == bool(drift(one, other))


@many
@given(surfaces, st.sampled_from(ServerSurface.__slots__), st.data())
def test_a_difference_in_one_part_is_told(one: ServerSurface, part: str, data: st.DataObject) -> None:
    """The same where only one member differs, so that no other difference speaks for it."""
    assume(part != "client_capabilities")
    other = dataclasses.replace(one, **{part: getattr(data.draw(surfaces), part)})

    assert (digest_of(one) != digest_of(other)) == bool(drift(one, other))


@many
@given(surfaces)
def test_pins_survive_their_text(one: ServerSurface) -> None:
    """Whatever a server says is read back from the lock as it was."""
    found = decode(jsontext.parse(jsontext.canonical(encode(pins_of(one))))).under({})

    assert found is not None
    assert digest_of(one) == digest_of(found)
    assert () == drift(one, found)


hints = st.dictionaries(st.sampled_from(sorted(HINTS)), st.booleans())


def meant(found: dict[str, bool]) -> dict[str, bool]:
    """Return hints as the protocol defines them: defaults, and nothing about changes for what only reads."""
    whole = {**HINTS, **found}
    return {
        name: value for name, value in whole.items() if not whole["readOnlyHint"] or "World" in name or "Only" in name
    }


@many
@given(hints, hints)
def test_hints_pass_only_when_they_mean_the_same(before: dict[str, bool], after: dict[str, bool]) -> None:
    """Every flip of a hint that means something waits, in either direction; spelling out a default does not."""
    changes = drift(offering({"name": "t", "annotations": before}), offering({"name": "t", "annotations": after}))
    assume(changes)

    assert (changes[0].kind == "same") == (meant(before) == meant(after))


FIELDS = st.sampled_from(["title", "description", "icons", "_meta", "anything"])


@many
@given(FIELDS, st.one_of(st.text(), st.none(), st.integers()), st.one_of(st.text(), st.none(), st.booleans()))
def test_every_other_field_waits(field: str, before: Any, after: Any) -> None:
    """Whatever else is said of a tool, a difference waits: `1` is not `true`, absent is not null."""
    assume(repr(before) != repr(after))
    changes = drift(offering({"name": "t", field: before}), offering({"name": "t", field: after}))
    appeared = drift(offering({"name": "t"}), offering({"name": "t", field: after}))

    assert ["text"] == [change.kind for change in changes]
    assert ["text"] == [change.kind for change in appeared]
