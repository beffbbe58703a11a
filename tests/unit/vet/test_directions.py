"""A contract and a server's tool fit in both directions, or the refusal says with which value they do not."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from sandbox.spec.model import Binding, Origin
from sandbox.vet.containment import Options
from sandbox.vet.directions import check_inputs, check_outputs, fits
from tests.unit.serve.builders import contract_of

INPUTS: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def bound(inputs: Any = INPUTS, outputs: Any = True, **parts: Any) -> Binding:
    """Return a binding of ``fs-read`` to ``read_file``."""
    given = {"type": "object"} if outputs is True else outputs
    contract = contract_of(id="fs-read", inputs=inputs, outputs=given, origin=Origin(file="fs-read/TOOL.md", line=5))
    origin = Origin(file="DRIVER.md", line=12)
    return Binding(contract=contract, version_range="*", tool_name="read_file", origin=origin, **parts)


def offers(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """Return a server's tool that takes these arguments and no others."""
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": "read_file", "inputSchema": {**schema, **more}}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


# --- inputs -----------------------------------------------------------------------------------------------------------
def test_a_tool_that_takes_more_fits() -> None:
    """A server may accept more than the contract asks for."""
    fit = check_inputs(bound(), offers({"path": STRING, "head": {"type": ["integer", "null"]}, "tail": INTEGER}))

    assert ("proved", ()) == (fit.status, fit.findings)


def test_a_refusal_reads_as_one_sentence_with_place_and_mends() -> None:
    """The counterexample, the server's reason, the contract's place and both ways to mend it are in the message."""
    (finding,) = check_inputs(bound(), offers({"path": STRING, "head": STRING}, ("path",))).findings

    assert ("VET-101", "block", "read_file", "fs-read/TOOL.md:5") == (
        finding.id,
        finding.severity,
        finding.tool,
        finding.place,
    )
    assert (
        '`fs-read` accepts `{"path": "a", "head": 0}`; `read_file` refuses it: `head` must be string' == finding.message
    )
    assert "narrow `head`" in finding.mend
    assert "drop_inputs: [head]" in finding.mend


MISFITS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("unknown argument", {"path": STRING, "limit": INTEGER}, {}, "argument_mapping: {head: "),
    ("missing argument", {"path": STRING, "head": INTEGER, "mode": STRING}, {"required": ["mode"]}, "inject it with"),
    ("type", {"path": INTEGER, "head": INTEGER}, {}, "narrow `path`"),
    ("at most one", {"path": STRING, "head": INTEGER}, {"maxProperties": 1}, "drop_inputs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "more", "mend"), [case[1:] for case in MISFITS], ids=[case[0] for case in MISFITS]
)
def test_the_mend_suits_the_misfit(properties: dict[str, Any], more: dict[str, Any], mend: str) -> None:
    """What is proposed depends on what does not fit."""
    (finding,) = check_inputs(bound(), offers(properties, **more)).findings

    assert mend in finding.mend


def test_an_open_contract_is_told_to_close() -> None:
    """A contract that accepts members it does not name does not fit a server that takes only its own."""
    inputs = {key: value for key, value in INPUTS.items() if key != "additionalProperties"}
    (finding,) = check_inputs(bound(inputs), offers({"path": STRING, "head": INTEGER})).findings

    assert "add `additionalProperties: false`" in finding.mend


def test_renamed_keys_are_followed() -> None:
    """The same tool fits with the mapping and does not without it; the counterexample has the contract's names."""
    tool = offers({"file": STRING, "lines": INTEGER}, ("file",))
    mapping = {"path": "file", "head": "lines"}

    assert "refuted" == check_inputs(bound(), tool).status
    assert "proved" == check_inputs(bound(argument_mapping=mapping), tool).status

    strict = check_inputs(bound(argument_mapping=mapping), offers({"file": STRING, "lines": STRING}, ("file",)))

    assert {"path": "a", "head": 0} == strict.witness
    assert "`lines` must be string (`head` of the contract)" in strict.findings[0].message


def test_keys_may_be_swapped() -> None:
    """Two keys may take each other's name."""
    binding = bound(argument_mapping={"path": "head", "head": "path"})

    assert "proved" == check_inputs(binding, offers({"path": INTEGER, "head": STRING}, ("head",))).status
    assert "refuted" == check_inputs(binding, offers({"path": STRING, "head": INTEGER}, ("path",))).status


RENAMED = {
    "branches": {"type": "object", "oneOf": [{"required": ["path"], "properties": {"path": STRING, "head": False}},
                                             {"required": ["head"], "properties": {"head": STRING, "path": False}}],
                 "unevaluatedProperties": False},
    "dependence": {**INPUTS, "properties": {"path": STRING, "head": STRING}, "dependentRequired": {"head": ["path"]}},
    "reference": {"$defs": {"all": {**INPUTS, "properties": {"path": STRING, "head": STRING}}}, "$ref": "#/$defs/all"},
    "condition": {**INPUTS, "properties": {"path": STRING, "head": STRING}, "if": {"required": ["head"]},
                  "then": {"minProperties": 2}},
    "listed": {"enum": [{"path": "x"}, {"head": "y"}]},
}  # fmt: skip


@pytest.mark.parametrize("inputs", RENAMED.values(), ids=list(RENAMED))
def test_renaming_reaches_every_keyword_about_members(inputs: Any) -> None:
    """Wherever a contract speaks of a member, the renamed contract speaks of the argument."""
    binding = bound({"type": "object", **inputs}, argument_mapping={"path": "file", "head": "lines"})

    assert "proved" == check_inputs(binding, offers({"file": STRING, "lines": STRING})).status
    assert "refuted" == check_inputs(binding, offers({"file": STRING, "lines": {"type": "null"}, "path": {}})).status


@pytest.mark.parametrize("keyword", [{"patternProperties": {"^p": {}}}, {"propertyNames": {"maxLength": 9}}])
def test_what_renaming_cannot_say_is_not_approximated(keyword: dict[str, Any]) -> None:
    """Patterns over names are not followed through a mapping: undecided, and refused."""
    fit = check_inputs(bound({**INPUTS, **keyword}, argument_mapping={"path": "file"}), offers({"file": STRING}))

    assert ("undecided", "block", "VET-106") == (fit.status, fit.findings[0].severity, fit.findings[0].id)


@pytest.mark.claim("P-VET-04")
def test_smuggling_through_a_rename_is_refused() -> None:
    """When callers may send the renamed key's target as well, the server would get one of two values: refused."""
    inputs = {**INPUTS, "additionalProperties": {}}
    tool = {"name": "read_file", "inputSchema": {"type": "object"}}

    assert "VET-104" == check_inputs(bound(inputs, argument_mapping={"path": "file"}), tool).findings[0].id
    assert "proved" == check_inputs(bound(argument_mapping={"path": "file"}), tool).status


def test_two_keys_with_one_name_are_refused() -> None:
    """Two contract keys cannot be sent as the same argument."""
    binding = bound(argument_mapping={"path": "x", "head": "x"})

    assert "VET-104" == check_inputs(binding, offers({"x": {}})).findings[0].id


def test_injected_facts_count_as_given() -> None:
    """What the driver injects need not come from callers; it must fit the server too."""
    binding = bound(context={"tenant": "tenant.id"})
    tool = offers({"path": STRING, "head": INTEGER, "tenant": STRING}, ("path", "tenant"))

    assert "proved" == check_inputs(binding, tool).status
    assert "refuted" == check_inputs(bound(), tool).status

    odd = check_inputs(binding, offers({"path": STRING, "head": INTEGER, "tenant": INTEGER}, ("tenant",)))

    assert "`tenant` must be integer" in odd.findings[0].message
    assert "tenant" not in odd.witness


def test_dropped_inputs_are_not_asked_for() -> None:
    """A member that the driver drops may be unknown to the server."""
    assert "proved" == check_inputs(bound(drop_inputs=("head",)), offers({"path": STRING}, ("path",))).status


def test_a_contract_that_accepts_nothing_is_refused() -> None:
    """A contract that contradicts itself fits every server, which is not what its author meant."""
    inputs = {**INPUTS, "minProperties": 3}

    assert "VET-105" == check_inputs(bound(inputs), offers({})).findings[0].id


def test_a_format_that_only_the_server_asks_for_is_not_decided() -> None:
    """A server may assert a format that the contract does not promise; the operator may accept that."""
    tool = offers({"path": {**STRING, "format": "uri"}, "head": INTEGER})
    strict, lax = fits(bound(), tool)[0], fits(bound(), tool, unsafe_accept_undecided=True)[0]

    assert ["block", "inform"] == [fit.findings[0].severity for fit in (strict, lax)]
    assert "`format: uri`" in strict.findings[0].message


def test_without_time_nothing_is_proved() -> None:
    """Running out of steps is undecided, and refused."""
    fit = check_inputs(bound(), offers({"path": STRING, "head": INTEGER}), options=Options(steps=3))

    assert ("undecided", "block") == (fit.status, fit.findings[0].severity)


# --- outputs ----------------------------------------------------------------------------------------------------------
CONTENT = {
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "more": {"type": "array", "items": {"type": "object", "properties": {"id": {}}}},
    },
    "required": ["content"],
}


def answers(schema: Any) -> dict[str, Any]:
    """Return a server's tool that promises these results."""
    return {"name": "read_file", "inputSchema": {"type": "object"}, "outputSchema": schema}


def test_a_promise_that_fits_is_proved() -> None:
    """What the server promises under the path is what the contract says."""
    assert "proved" == check_outputs(bound(outputs=STRING, result_extract="$.content"), answers(CONTENT)).status


@pytest.mark.claim("P-VET-05")
def test_a_wrong_extract_is_caught_with_the_paths_that_exist() -> None:
    """A path that no result has is refused at registration; the message lists those that exist and proposes one."""
    (finding,) = check_outputs(
        bound(outputs=STRING, result_extract="$.contents"), answers({**CONTENT, "additionalProperties": False})
    ).findings

    assert ("VET-103", "DRIVER.md:12") == (finding.id, finding.place)
    assert "`$.content`, `$.more`, `$.more[0]`, `$.more[0].id`" in finding.message
    assert "set `result_extract` to `$.content`" in finding.mend


def test_a_path_that_may_be_missing_is_refuted() -> None:
    """A result without the path has no value for the contract."""
    fit = check_outputs(bound(outputs={}, result_extract="$.more[0]"), answers(CONTENT))

    assert "refuted" == fit.status
    assert {"content": "a"} == fit.witness


def test_a_promise_of_something_else_is_refuted() -> None:
    """The counterexample is a result that the server's own schema allows."""
    fit = check_outputs(bound(outputs=INTEGER, result_extract="$.content"), answers(CONTENT))

    assert (
        '`read_file` may answer `{"content": "a"}`; `fs-read` promises otherwise: `content` must be integer'
        == fit.findings[0].message
    )


def test_the_whole_result_may_be_meant() -> None:
    """Without a path the whole document counts, and a string contract is pointed to the paths below."""
    fit = check_outputs(bound(outputs=STRING), answers(CONTENT))

    assert "`$.content`" in fit.findings[0].mend


def test_references_of_a_contract_stay_its_own() -> None:
    """A contract with references is embedded whole, also below an index."""
    outputs = {"$defs": {"row": {"type": "object", "required": ["id"]}}, "$ref": "#/$defs/row"}
    promised = {
        "type": "object",
        "required": ["rows"],
        "properties": {"rows": {"type": "array", "minItems": 1, "items": {"required": ["id"], "type": "object"}}},
    }

    assert "proved" == check_outputs(bound(outputs=outputs, result_extract="$.rows[0]"), answers(promised)).status
    assert "refuted" == check_outputs(bound(outputs=outputs, result_extract="$.rows[1]"), answers(promised)).status


def test_no_promise_is_checked_at_call_time_and_said_so() -> None:
    """A tool without outputSchema is not refused; the verdict says that its results are checked as they arrive."""
    fit = check_outputs(bound(), {"name": "read_file", "inputSchema": {}})

    assert ("at call time", "inform", "VET-107") == (fit.status, fit.findings[0].severity, fit.findings[0].id)


def test_dropped_outputs_are_not_promised() -> None:
    """A member that the driver drops may be missing."""
    outputs = {"type": "object", "required": ["content", "size"]}

    assert "refuted" == check_outputs(bound(outputs=outputs), answers(CONTENT)).status
    assert "proved" == check_outputs(bound(outputs=outputs, drop_outputs=("size",)), answers(CONTENT)).status


def test_counterexamples_are_confirmed_by_the_servers_own_schema() -> None:
    """What the message shows is refused by the server's schema and accepted by the contract's."""
    tool = offers({"path": {"type": "string", "maxLength": 5}, "head": INTEGER})
    witness = check_inputs(bound(), tool).witness

    assert jsonschema.Draft202012Validator(INPUTS).is_valid(witness)
    assert not jsonschema.Draft202012Validator(tool["inputSchema"]).is_valid(witness)
