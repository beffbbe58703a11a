"""Marked arguments are found wherever a schema can apply, and replaced by their checked form."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import CallRefused, VetRefused
from sandbox.serve.guard import MAX_MARKED, CheckedArguments, ToolGuard, UriGuard, facts_of
from sandbox.serve.marks import compile_marks, find_marked
from sandbox.serve.paths import Roots
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules
from sandbox.spec.model import Binding, Origin, ToolContract
from sandbox.vet.validators import SchemaValidator

P = {"type": "string", "x-mcp-sandbox": "path"}
RULES = UriRules(
    Roots(["/w"]), "/w", (Template("demo://{x}"),), lambda host, port: None if host == "ok.example" else "no"
)


def binding(inputs: dict[str, Any], **more: Any) -> Binding:
    """Return a binding of a contract with these inputs."""
    contract = ToolContract(
        id="t",
        name="T",
        description="d",
        version="1.0.0",
        inputs=inputs,
        outputs={},
        origin=Origin(file="f"),
        digest="sha256:0",
    )
    return Binding(contract=contract, version_range="^1", tool_name="t", origin=Origin(file="f"), **more)


def obj(**properties: Any) -> dict[str, Any]:
    """Return an object schema."""
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        (obj(a=P, b={"type": "string"}), ["/a: path"]),
        (obj(a={"format": "url"}, c={"format": "iri-reference"}), ["/a: uri", "/c: uri-reference"]),
        (obj(a={"type": "array", "items": P}), ["/a/*: path"]),
        (obj(a={"prefixItems": [{}, P], "items": {"format": "uri"}}), ["/a/1: path", "/a/*: uri"]),
        (obj(a={"items": [P, {}]}), ["/a/0: path"]),
        (obj(a=obj(b=obj(c=P))), ["/a/b/c: path"]),
        (obj(a={"anyOf": [{"type": "null"}, P]}), ["/a: path"]),
        (obj(a={"oneOf": [obj(x=P), obj(y=P)]}), ["/a/x: path", "/a/y: path"]),
        ({"allOf": [obj(a=P)]}, ["/a: path"]),
        ({"if": obj(a={}), "then": obj(a=P), "else": obj(b=P)}, ["/a: path", "/b: path"]),
        ({**obj(a={"$ref": "#/$defs/p"}), "$defs": {"p": P}}, ["/a: path"]),
        ({**obj(a={"$ref": "#p"}), "$defs": {"p": {**P, "$anchor": "p"}}}, ["/a: path"]),
        ({**obj(a=P), "additionalProperties": {"format": "uri"}}, ["/a: path", "/*: uri"]),
        ({"patternProperties": {"^f_": P}}, ["/*: path"]),
        ({"dependentSchemas": {"a": obj(b=P)}}, ["/b: path"]),
        (obj(name=P, kids={"items": {"$ref": "#"}}), ["/name: path", "/kids/*/name: path"]),
        (obj(a={**P, "format": "uri"}), ["/a: path"]),
        (obj(a={"$ref": "http://elsewhere/"}, b={"format": "email"}), []),
        ({}, []),
    ],
)  # fmt: skip
def test_marks_are_found(schema: dict[str, Any], places: list[str]) -> None:
    """Members, items, references, branches and the rest are looked through."""
    assert places == list(find_marked(schema))


@pytest.mark.claim("P-URI-05")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (obj(a=P), {"a": "/etc/passwd"}),
        (obj(a={"type": "array", "items": P}), {"a": ["x", "/etc/passwd"]}),
        (obj(a={"type": "array", "x-mcp-sandbox": "path"}), {"a": [["x"], {"y": "/etc/passwd"}]}),
        (obj(a={"type": "object", "x-mcp-sandbox": "path", "properties": {"b": {}}}), {"a": {"b": "/etc/passwd"}}),
        (obj(a={"x-mcp-sandbox": "path", "properties": {"b": {"items": {}}}}), {"a": {"b": ["/etc/passwd"]}}),
        (obj(a={"prefixItems": [P]}), {"a": ["/etc/passwd"]}),
        (obj(a={"contains": P}), {"a": ["x", "/etc/passwd"]}),
        ({**obj(n=P, c={"type": "array", "items": {"$ref": "#"}})}, {"n": "x", "c": [{"c": [{"n": "/etc/passwd"}]}]}),
        ({"patternProperties": {"^f_": P}}, {"f_x": "/etc/passwd"}),
        ({**obj(a={}), "additionalProperties": P}, {"b": "/etc/passwd"}),
        (obj(a={"anyOf": [{"type": "integer"}, {"type": "array", "items": obj(b=P)}]}), {"a": [{"b": "/etc/passwd"}]}),
        (obj(a={"format": "uri"}), {"a": "file:///etc/passwd"}),
        (obj(a={"format": "uri"}), {"a": "http://evil.example/"}),
        (obj(a={"format": "uri-reference"}), {"a": "../etc/passwd"}),
        (obj(a={"x-mcp-sandbox": "relative-path"}), {"a": "../../etc/passwd"}),
    ],
)  # fmt: skip
def test_a_marked_argument_cannot_lead_out(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Wherever the mark stands, the value is checked; the message names the place."""
    with pytest.raises(CallRefused) as caught:
        ToolGuard(binding(schema), RULES).check(arguments)

    assert caught.value.message.startswith("at /")


def test_checked_forms_replace_what_was_sent() -> None:
    """Marked values come out canonical, everything else is untouched, and the client's own object is not changed."""
    schema = obj(path=P, uris={"type": "array", "items": {"format": "uri"}}, text={"type": "string"})
    given = {"path": "./a//b", "uris": ["HTTP:x", "https://ok.example"][1:], "text": "/etc/passwd", "n": 1}
    checked = ToolGuard(binding(schema), RULES).check(given)

    assert {"path": "/w/a/b", "uris": ["https://ok.example/"], "text": "/etc/passwd", "n": 1} == checked
    assert given["path"] == "./a//b"
    assert {"hosts": ["ok.example"], "schemes": ["https"], "paths": ["/w/a/b"]} == facts_of(checked)


def test_checked_arguments_are_a_dictionary_to_everybody() -> None:
    """The validator of step 5 and the serialiser take them as they are."""
    checked = ToolGuard(binding(obj(path=P)), RULES).check({"path": "a"})

    assert isinstance(checked, CheckedArguments)
    assert SchemaValidator({**obj(path=P), "required": ["path"]}, "x").fits(checked)
    assert SchemaValidator({"type": "array"}, "x").mismatch(checked) is not None


def test_a_contract_without_marks_costs_nothing() -> None:
    """Nothing is compiled and the same object comes back."""
    given = {"a": "/etc/passwd"}

    assert compile_marks(obj(a={"type": "string"}), "t") is None
    assert given is ToolGuard(binding(obj(a={"type": "string"})), RULES).check(given)


@pytest.mark.parametrize("word", ["pth", "", 1, ["path"], "none"])
def test_an_unknown_mark_is_refused(word: Any) -> None:
    """A mark that asks for nothing known cannot be enforced."""
    with pytest.raises(VetRefused):
        ToolGuard(binding(obj(a={"x-mcp-sandbox": word})), RULES)


def test_the_number_of_checks_is_bounded() -> None:
    """One more than the bound is refused, the bound is not."""
    guard = ToolGuard(binding(obj(a={"type": "array", "items": P})), RULES)

    assert len(guard.check({"a": ["x"] * MAX_MARKED})["a"]) == MAX_MARKED
    with pytest.raises(CallRefused) as caught:
        guard.check({"a": ["x"] * (MAX_MARKED + 1)})

    assert caught.value.id == "CALL-048"


def test_values_of_other_types_are_left_to_the_contract() -> None:
    """A number where a path is meant is for step 5 to refuse."""
    assert ToolGuard(binding(obj(a=P)), RULES).check({"a": 5, "b": None}) == {"a": 5, "b": None}


def test_resources_are_judged_by_template_and_scheme() -> None:
    """The guard of resources forwards declared URIs and refuses others."""
    guard = UriGuard(RULES)

    assert guard.check("demo://x") == "demo://x"
    assert guard.inspect("demo://x").facts() == {"text": "demo://x", "scheme": "demo", "host": "x", "path": ""}
    for text in ("file:///w/a", "demo://x/y", "https://ok.example/"):
        with pytest.raises(CallRefused):
            guard.check(text)
