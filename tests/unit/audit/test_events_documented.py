"""Every name that the code records is documented, and every record has the published form."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest

from sandbox.audit.recorder import open_recorder
from sandbox.audit.seal import seal_abandoned
from sandbox.events import Scope, Trace
from sandbox.resources import shipped
from tests import event_schema
from tests.ledgers import fact, ledger, signer, written
from tests.shared import ROOT

PHASES = {"fact", "intent", "outcome"}


@functools.cache
def recorded() -> dict[str, set[str]]:
    """Return name → phases of every fact that the code can record with a name it spells out."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "sandbox").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name, phase in _handed_on(node):
                found.setdefault(name, set()).add(phase)
            match node:
                case ast.Call(func=ast.Attribute(attr=phase), args=[ast.Constant(value=str(name)), *_]) if (
                    phase in PHASES
                ):
                    found.setdefault(name, set()).add(phase)
                case ast.Call(
                    func=ast.Name(id="Fact"), args=[ast.Constant(value=str(name)), ast.Constant(value=str(phase)), *_]
                ):
                    found.setdefault(name, set()).add(phase)
                case ast.Dict(
                    keys=[ast.Constant(value="name"), ast.Constant(value="phase"), *_],
                    values=[ast.Constant(value=str(name)), ast.Constant(value=str(phase)), *_],
                ):
                    found.setdefault(name, set()).add(phase)
    return found


def _handed_on(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield name and phase where a scope's method and its first argument are arguments of another call."""
    for first, second in pairwise(node.args) if isinstance(node, ast.Call) else ():
        match first, second:
            case ast.Attribute(attr=phase), ast.Constant(value=str(name)) if phase in PHASES and "." in name:
                yield name, phase


def keys() -> set[str]:
    """Return texts that are keys of dictionaries: names of facts that are collected before they are recorded."""
    found: set[str] = set()
    for path in sorted((ROOT / "sandbox").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Dict(keys=named):
                    found |= {str(key.value) for key in named if isinstance(key, ast.Constant)}
                case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                    found.add(name)
    return found


def documented() -> dict[str, set[str]]:
    """Return name → phases of the tables of docs/audit-events.md."""
    text = (ROOT / "docs" / "audit-events.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `([a-z._]+)` \| ((?:fact|intent|outcome)(?:, (?:fact|intent|outcome))*) \|", text, re.MULTILINE
    )
    return {name: set(phases.split(", ")) for name, phases in rows}


def test_every_recorded_name_is_documented_with_its_phases() -> None:
    """A fact that is recorded somewhere stands in docs/audit-events.md."""
    known = documented()
    missing = {
        name: phases - known.get(name, set()) for name, phases in recorded().items() if phases - known.get(name, set())
    }

    assert missing == {}


def test_every_documented_name_is_recorded() -> None:
    """The tables name nothing that no code records."""
    assert set(documented()) <= set(recorded()) | keys()


def test_every_spelt_out_attribute_is_documented() -> None:
    """Each keyword of a recorded fact stands in the row of its event."""
    known, missing = event_schema.documented(), set()
    for path in sorted((ROOT / "sandbox").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=phase), args=[ast.Constant(value=str(name)), *_]) if (
                    phase in PHASES and name in known
                ):
                    given = {keyword.arg for keyword in node.keywords if keyword.arg}
                    missing |= {f"{name}: {one}" for one in given - set(known[name][1])}

    assert set() == missing, event_schema.MEND


def test_published_schema_of_events_is_that_of_the_page() -> None:
    """docs/schemas/events.schema.json says what the tables say, and is a schema."""
    assert event_schema.text() == event_schema.PLACE.read_text("utf-8"), event_schema.MEND
    jsonschema.Draft202012Validator.check_schema(event_schema.schema())


def test_schema_of_events_tells_them_apart() -> None:
    """A documented event is valid; another name, phase or attribute is not."""
    strict = jsonschema.Draft202012Validator(event_schema.schema())
    good = {"name": "launch.expired", "phase": "fact", "attrs": {"container": "c", "lifetime": 1}}

    assert strict.is_valid(good)
    for change in ({"name": "launch.other"}, {"phase": "intent"}, {"attrs": {"password": "x"}}):
        assert not strict.is_valid({**good, **change})


def test_scan_finds_what_it_looks_for() -> None:
    """The scan sees scopes, facts and the records of the trail about itself."""
    found = recorded()

    assert {"call.forward", "launch.create", "audit.checkpoint", "audit.seal", "audit.close"} <= set(found)
    assert found["call.forward"] == {"intent", "outcome"}


@pytest.fixture
def validator() -> jsonschema.Draft202012Validator:
    """The published schema of a record."""
    return jsonschema.Draft202012Validator(json.loads(shipped("schemas", "event.schema.json").read_bytes()))


def test_every_record_of_a_trail_is_valid_under_the_published_schema(
    tmp_path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    """Facts of stages, opens, heads, segments, key changes, seals and ends have the published form."""
    recorder = open_recorder(tmp_path, "run")
    scope = Scope(recorder, Trace.new(), driver="d", tenant="\u2028", instance="i")
    scope.child().intent("call.forward", tool="\x1b", nested={"a": [1.5, None, True]})
    Scope(recorder, Trace.new()).fact("x.y")
    recorder.change_key()
    recorder.close()
    open_recorder(tmp_path, "second").close()
    written(tmp_path, 2)
    many = ledger(tmp_path, "20261121T000000Z-many-0001", segment_bytes=900)
    for number in range(4):
        many.append(fact(number))
    many._release()  # as when the process dies
    seal_abandoned(tmp_path, signer(tmp_path))
    names = set()
    for path in (tmp_path / "segments").iterdir():
        for line in path.read_text("ascii").splitlines():
            record = json.loads(line)
            names.add(record["name"])

            assert [] == [error.message for error in validator.iter_errors(record)]
    assert {
        "audit.open",
        "audit.key",
        "audit.segment",
        "audit.seal",
        "audit.checkpoint",
        "audit.close",
        "call.forward",
    } <= names


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"extra": 1},
        {"after": "x"},
        {"seq": -1},
        {"time": "now"},
        {"name": "A b"},
        {"phase": "maybe"},
        {"attrs": []},
        {"trace": "1" * 32},
    ],
)
def test_schema_refuses_what_is_no_record(
    change: dict[str, object], validator: jsonschema.Draft202012Validator
) -> None:
    """The schema is strict enough to tell records from something else."""
    good = {
        "after": "0" * 64,
        "attrs": {},
        "name": "x.y",
        "phase": "fact",
        "seq": 0,
        "time": "2026-11-21T08:15:00.000000Z",
        "v": 1,
    }

    assert validator.is_valid(good)
    assert not validator.is_valid({**good, **change})
