from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.extract import segments
from sandbox.spec.model import DriverSpec
from tests.unit.spec.folders import (
    INPUTS,
    SECRET,
    TOOL,
    bound,
    checked,
    driver,
    errors,
    front,
    loaded,
    per_tool,
    tool,
    warnings,
    write,
)

MCP = "implements[0].metadata.mcp"


def binding(spec: DriverSpec) -> Any:
    """Return the only binding."""
    return spec.bindings[0]


def test_a_binding_carries_its_contract_and_names(tmp_path: Path) -> None:
    """Contract, tool name, mapping, path and place of a binding arrive; identities are left out of the mapping."""
    found = binding(
        loaded(tmp_path, per_tool(argument_mapping={"path": "file", "limit": "limit"}, result_extract="$.content[0]"))
    )

    assert ("fs-read", "read_file", "$.content[0]") == (found.contract.id, found.tool_name, found.result_extract)
    assert {"path": "file"} == dict(found.argument_mapping)
    assert (12, "^1.0.0") == (found.origin.line, found.version_range)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tool_name": None}, ("SPEC-043", f"{MCP}.tool_name")),
        ({"tool_name": ""}, ("SPEC-045", f"{MCP}.tool_name")),
        ({"tool_name": "a\nb"}, ("SPEC-046", f"{MCP}.tool_name")),
        ({"tool_nmae": "x"}, ("SPEC-042", f"{MCP}.tool_nmae")),
        ({"argument_maping": {}}, ("SPEC-042", f"{MCP}.argument_maping")),
        ({"argument_mapping": {"pth": "file"}}, ("SPEC-171", f"{MCP}.argument_mapping.pth")),
        ({"argument_mapping": {"path": ""}}, ("SPEC-045", f"{MCP}.argument_mapping.path")),
        ({"argument_mapping": {"path": "limit"}}, ("SPEC-178", f"{MCP}.argument_mapping.path")),
        ({"argument_mapping": {"path": "x", "limit": "x"}}, ("SPEC-178", f"{MCP}.argument_mapping.path")),
        ({"result_extract": "content"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$..content"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$[*]"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$[?@.a]"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$[1:2]"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$[-1]"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"result_extract": "$." + "a." * 40 + "a"}, ("SPEC-183", f"{MCP}.result_extract")),
        ({"context": {"tenant": "acme"}}, ("SPEC-180", f"{MCP}.context.tenant")),
        ({"context": {"tenant": "tenant."}}, ("SPEC-180", f"{MCP}.context.tenant")),
        ({"context": {"tenant": "env.HOME"}}, ("SPEC-180", f"{MCP}.context.tenant")),
        ({"context": {"limit": "tenant.id"}}, ("SPEC-181", f"{MCP}.context.limit")),
        ({"context": {"file": "tenant.id"}}, ("SPEC-181", f"{MCP}.context.file")),
        ({"context": "tenant.id"}, ("SPEC-043", f"{MCP}.context")),
    ],
)
def test_a_wrong_binding_is_refused(tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """Misspelt keys, unknown inputs, collisions, forged context and other paths are errors at their line."""
    assert [expected] == errors(checked(tmp_path, per_tool(**changes))[1])


@pytest.mark.claim("P-SPEC-09")
def test_injected_arguments_cannot_be_reached_by_a_caller(tmp_path: Path) -> None:
    """Context goes only to arguments that no input of a closed contract becomes."""
    values = per_tool(context={"tenant": "tenant.id", "who": "user.sub", "plan": "tenant.plan"})
    open_inputs = {key: value for key, value in INPUTS.items() if key != "additionalProperties"}

    found = binding(loaded(tmp_path, values))
    opened = checked(tmp_path, values, tool(inputs=open_inputs))[1]
    patterned = checked(tmp_path, values, tool(inputs={**INPUTS, "patternProperties": {"^t": {}}}))[1]

    assert {"tenant": "tenant.id", "who": "user.sub", "plan": "tenant.plan"} == dict(found.context)
    assert [("SPEC-182", f"{MCP}.context")] == errors(opened) == errors(patterned)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": "^2.0.0"}, ("SPEC-175", "implements[0].version")),
        ({"version": "latest"}, ("SPEC-048", "implements[0].version")),
        ({"version": ""}, ("SPEC-048", "implements[0].version")),
        ({"version": 1.0}, ("SPEC-043", "implements[0].version")),
        (
            {"schema_narrowing": {"drop_inputs": ["path"]}},
            ("SPEC-176", "implements[0].schema_narrowing.drop_inputs[0]"),
        ),
        ({"schema_narrowing": {"drop_inputs": ["x"]}}, ("SPEC-171", "implements[0].schema_narrowing.drop_inputs[0]")),
        (
            {"schema_narrowing": {"drop_outputs": ["text"]}},
            ("SPEC-176", "implements[0].schema_narrowing.drop_outputs[0]"),
        ),
        ({"schema_narrowing": {"add_inputs": ["x"]}}, ("SPEC-042", "implements[0].schema_narrowing.add_inputs")),
        ({"timeout_override_ms": 30_001}, ("SPEC-177", "implements[0].timeout_override_ms")),
        ({"timeout_override_ms": 99}, ("SPEC-045", "implements[0].timeout_override_ms")),
        ({"mapping": {"path": "file"}}, ("SPEC-179", "implements[0].mapping.path")),
        ({"mapping": {"aspect": {"from": "path", "transform": "x"}}}, ("SPEC-179", "implements[0].mapping.aspect")),
        ({"toolname": "x"}, ("SPEC-042", "implements[0].toolname")),
        ({"metadata": {}}, ("SPEC-041", f"{MCP}.tool_name")),
        ({"metadata": {"mcp": []}}, ("SPEC-043", MCP)),
        ({"tool": None}, ("SPEC-043", "implements[0].tool")),
        ({"tool": "${x}/TOOL.md"}, ("SPEC-072", "implements[0].tool")),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """Ranges, narrowing, overrides and the ambiguous `mapping` (T0-7) are checked against the contract."""
    assert [expected] == errors(checked(tmp_path, bound(**changes))[1])


def test_narrowing_and_overrides_that_only_lower_are_kept(tmp_path: Path) -> None:
    """Optional members may be dropped and time-outs lowered; an identity `mapping` changes nothing."""
    values = bound(
        schema_narrowing={"drop_inputs": ["limit"], "drop_outputs": ["size"]},
        timeout_override_ms=500,
        mapping={"path": "path"},
        cost_override={"cost_units_per_call": 2},
        retry_override={"max_attempts": 2},
    )

    found = binding(loaded(tmp_path, values))

    assert (("limit",), ("size",), 500) == (found.drop_inputs, found.drop_outputs, found.timeout_ms)
    assert ({"cost_units_per_call": 2}, {"max_attempts": 2}) == (dict(found.cost_override), dict(found.retry_override))


def test_a_driver_wide_override_applies_where_no_entry_has_its_own(tmp_path: Path) -> None:
    """`timeout_override_ms` of the driver lowers every contract; above one it is refused."""
    lowered = binding(loaded(tmp_path, driver(timeout_override_ms=700)))
    own = binding(loaded(tmp_path, bound(timeout_override_ms=500) | {"timeout_override_ms": 700}))

    assert (700, 500) == (lowered.timeout_ms, own.timeout_ms)
    assert [("SPEC-177", "timeout_override_ms")] == errors(checked(tmp_path, driver(timeout_override_ms=40_000))[1])


def test_a_contract_is_bound_once(tmp_path: Path) -> None:
    """Two entries for one contract are refused: nobody could say which one serves a call."""
    entry = driver()["implements"][0]

    assert [("SPEC-172", "implements[1].tool")] == errors(checked(tmp_path, driver(implements=[entry, entry]))[1])


# --- older and other spellings ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("metadata", [{}, {"mcp": {}}, {"mcp": {"tool_name": "read_file"}}])
def test_mcp_tools_names_the_tool_where_the_entry_does_not(tmp_path: Path, metadata: dict[str, Any]) -> None:
    """The older map of MCP tool to contract id is read (S0-4)."""
    values = bound(metadata=metadata) | {"mcp_tools": {"read_file": "fs-read"}}

    assert "read_file" == binding(loaded(tmp_path, values)).tool_name


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({"other": "fs-read"}, ("SPEC-174", f"{MCP}.tool_name")),
        ({"read_file": "fs-read", "write_file": "fs-write"}, ("SPEC-173", "mcp_tools.write_file")),
        ({"read_file": 1}, ("SPEC-043", "mcp_tools.read_file")),
    ],
)
def test_mcp_tools_may_not_contradict(tmp_path: Path, tools: dict[str, Any], expected: tuple[str, str]) -> None:
    """A map that says something else, or names a contract that nothing binds, is refused."""
    assert [expected] == errors(checked(tmp_path, driver(mcp_tools=tools))[1])


def test_camel_case_is_read(tmp_path: Path) -> None:
    """Spellings of `defineDriver` and of the reference implementation are read (S0-51, T0-8)."""
    values = bound(metadata={"mcp": {"toolName": "x", "argumentMapping": {"path": "p"}, "resultExtract": "$.a"}})
    values |= {"protocolVersion": "2025-03", "connectionOptions": {"timeout_ms": 1000}, "policyTags": ["a"]}
    values |= {"timeoutOverrideMs": 800, "healthCheck": {"method": "ping"}}

    spec = loaded(tmp_path, values)

    assert ("x", {"path": "p"}, "$.a", 800) == (
        binding(spec).tool_name,
        dict(binding(spec).argument_mapping),
        binding(spec).result_extract,
        binding(spec).timeout_ms,
    )
    assert ("2025-03-26", 1000, ("a",)) == (spec.protocol_version, spec.connection.timeout_ms, spec.policy_tags)


def test_two_spellings_of_one_key_are_refused(tmp_path: Path) -> None:
    """A key that stands in both spellings is an error, whichever comes first."""
    one = errors(checked(tmp_path, per_tool(toolName="x"))[1])
    other = errors(checked(tmp_path, {"protocolVersion": "2025-03", **driver(protocol_version="2025-06")})[1])

    assert [("SPEC-050", f"{MCP}.toolName")] == one
    assert [("SPEC-050", "protocolVersion")] == other


# --- result_extract ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", ()),
        ("$.content", ("content",)),
        ("$.rows[0].name", ("rows", 0, "name")),
        ("$['a-b']", ("a-b",)),
        ('$["a.b"][10]', ("a.b", 10)),
        ("$._x9", ("_x9",)),
    ],
)
def test_the_fragment_of_jsonpath_names_one_value(path: str, expected: tuple[str | int, ...]) -> None:
    """Member names and positions are read, and mean the same to a complete JSONPath."""
    import jsonpath

    value: Any = "found"
    for step in reversed(expected):
        value = {step: value} if isinstance(step, str) else [*([None] * step), value]

    assert expected == segments(path)
    assert ["found"] == [match.obj for match in jsonpath.finditer(path, value)]


@pytest.mark.parametrize(
    "path", ["", "x", "$.", "$x", "$.a.", "$.0", "$[a]", "$['a", "$[01]", "$['a\\'b']", "$.a b", "$.ä", "$$"]
)
def test_other_paths_are_refused(path: str) -> None:
    """Whatever is not of the fragment is refused."""
    with pytest.raises(ValueError, match=r"."):
        segments(path)


# --- secrets and other blocks -----------------------------------------------------------------------------------------
def test_preview_blocks_arrive(tmp_path: Path) -> None:
    """Prompts and resources become values (S0-25, S0-26)."""
    spec = loaded(
        tmp_path,
        driver(
            prompts=[{"name": "sum", "integrate_as": "skill_block", "skill_ref": "./s/SKILL.md"}],
            resources=[{"uri_template": "file:///{+path}", "integrate_as": "ref_kind", "ref_kind_id": "mcp_files"}],
            connection_options={"timeout_ms": 100, "max_retries": 10, "keepalive": True},
        ),
    )

    assert ("sum", "./s/SKILL.md") == (spec.prompts[0].name, spec.prompts[0].skill_ref)
    assert ("file:///{+path}", "mcp_files") == (spec.resources[0].uri_template, spec.resources[0].ref_kind_id)
    assert (100, 10, True) == (spec.connection.timeout_ms, spec.connection.max_retries, spec.connection.keepalive)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"prompts": [{"name": "a", "integrate_as": "tool"}]}, ("SPEC-044", "prompts[0].integrate_as")),
        ({"prompts": [{"name": "a", "integrate_as": "raw", "x": 1}]}, ("SPEC-042", "prompts[0].x")),
        ({"prompts": [{"name": "a", "integrate_as": "raw"}] * 2}, ("SPEC-065", "prompts[1]")),
        ({"resources": [{"uri_template": "{path}", "integrate_as": "raw"}]}, ("SPEC-064", "resources[0].uri_template")),
        (
            {"resources": [{"uri_template": "file:///{", "integrate_as": "raw"}]},
            ("SPEC-064", "resources[0].uri_template"),
        ),
        (
            {"resources": [{"uri_template": "f:/x", "integrate_as": "raw", "ref_kind_id": "A"}]},
            ("SPEC-045", "resources[0].ref_kind_id"),
        ),
        ({"connection_options": {"timeout_ms": 99}}, ("SPEC-045", "connection_options.timeout_ms")),
        ({"connection_options": {"max_retries": 11}}, ("SPEC-045", "connection_options.max_retries")),
        ({"connection_options": {"retries": 1}}, ("SPEC-042", "connection_options.retries")),
        ({"implements": []}, ("SPEC-045", "implements")),
        ({"implements": {}}, ("SPEC-043", "implements")),
        ({"kind": None}, ("SPEC-041", "kind")),
        ({"kind": "mpc"}, ("SPEC-044", "kind")),
        ({"kind": "http"}, ("SPEC-060", "kind")),
        ({"id": "Files"}, ("SPEC-045", "id")),
        ({"version": "1.0"}, ("SPEC-045", "version")),
        ({"version": "1.0.0-..x"}, ("SPEC-047", "version")),
        ({"version": 1.0}, ("SPEC-043", "version")),
        ({"name": ""}, ("SPEC-045", "name")),
        ({"name": "x" * 81}, ("SPEC-045", "name")),
        ({"description": "x" * 2001}, ("SPEC-045", "description")),
        ({"tags": ["a", "a"]}, ("SPEC-045", "tags")),
        ({"tags": ["A"]}, ("SPEC-045", "tags[0]")),
        ({"policy_tags": "pii"}, ("SPEC-043", "policy_tags")),
        ({"region": None, "requires": {"os": ["beos"]}}, ("SPEC-044", "requires.os[0]")),
        ({"health_check": {"method": "exec", "every": "5m"}}, ("SPEC-045", "health_check.every")),
        ({"cost_override": {"currency": "eur"}}, ("SPEC-045", "cost_override.currency")),
        ({"retry_override": {}}, ("SPEC-041", "retry_override.max_attempts")),
        ({"auth": {"ref": "./SECRETS.md"}}, ("SPEC-010", "auth.ref")),
        ({"auth": {"states": {}}}, ("SPEC-042", "auth.states")),
        ({"server": None}, ("SPEC-041", "server")),
        ({"server": ["npm"]}, ("SPEC-043", "server")),
        ({"transport": None}, ("SPEC-041", "transport")),
    ],
)
def test_fields_of_both_specifications_are_checked(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    """Universal and MCP fields are held against their shapes."""
    assert expected in errors(checked(tmp_path, driver(**changes))[1])


def test_all_problems_of_all_files_come_at_once(tmp_path: Path) -> None:
    """One check names the problems of both passes and of every file, with line, found, allowed and mend (S0-62)."""
    values = driver(name="", transport="tcp", limits={"pid": 5}, version="1")
    values["server"]["env"] = {"X": "${secrets.NO}"}
    _, problems = checked(
        tmp_path, values, tool(approval="auto", mutates=["workspace:/"]), [SECRET | {"value": "hidden"}]
    )

    expected = {
        ("SPEC-045", "name"),
        ("SPEC-045", "version"),
        ("SPEC-044", "transport"),
        ("SPEC-042", "limits.pid"),
        ("SPEC-081", "server.env.X"),
        ("SPEC-163", "approval"),
        ("SPEC-192", "secrets[0].value"),
    }
    assert expected == set(errors(problems))
    assert all(problem.line > 0 and problem.mend for problem in problems)
    assert {"DRIVER.md", "TOOL.md", "SECRETS.md"} == {Path(problem.file).name for problem in problems}
    assert "hidden" not in "".join(map(str, problems))


# --- contracts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"inputs": None}, ("SPEC-041", "inputs")),
        ({"inputs": {"properties": {"path": {}}}}, ("SPEC-165", "inputs.type")),
        ({"inputs": {"type": "objekt"}}, ("SPEC-168", "inputs.type")),
        ({"inputs": {**INPUTS, "required": "path"}}, ("SPEC-168", "inputs.required")),
        (
            {"inputs": {**INPUTS, "properties": {"path": {"minLength": -1}}}},
            ("SPEC-168", "inputs.properties.path.minLength"),
        ),
        ({"inputs": {**INPUTS, "properties": {"path": {"pattern": "("}}}}, ("SPEC-169", "inputs")),
        ({"inputs": {**INPUTS, "$ref": "#/$defs/none"}}, ("SPEC-169", "inputs")),
        (
            {"inputs": {**INPUTS, "properties": {"path": {"$ref": "https://evil.example/s"}}}},
            ("SPEC-167", "inputs.properties.path.$ref"),
        ),
        (
            {"inputs": {**INPUTS, "properties": {"path": {"$ref": "other.json#/a"}}}},
            ("SPEC-167", "inputs.properties.path.$ref"),
        ),
        (
            {"inputs": {**INPUTS, "properties": {"path": {"$dynamicRef": "x#a"}}}},
            ("SPEC-167", "inputs.properties.path.$dynamicRef"),
        ),
        (
            {"inputs": {**INPUTS, "properties": {"path": {"$id": "https://evil.example/"}}}},
            ("SPEC-167", "inputs.properties.path.$id"),
        ),
        ({"outputs": {"$schema": "http://json-schema.org/draft-07/schema#"}}, ("SPEC-166", "outputs.$schema")),
        ({"approval": "auto", "mutates": ["network:*"]}, ("SPEC-163", "approval")),
        ({"approval": "sometimes"}, ("SPEC-045", "approval")),
        ({"mutates": ["workspace"]}, ("SPEC-045", "mutates[0]")),
        ({"risk_level": 4}, ("SPEC-045", "risk_level")),
        ({"timeout_ms": 0}, ("SPEC-045", "timeout_ms")),
        ({"driver_constraints": {"forbid": ["mcp"]}}, ("SPEC-164", "driver_constraints")),
        ({"driver_constraints": {"require_kind": ["sdk"]}}, ("SPEC-164", "driver_constraints")),
        ({"network": {"egress": []}}, ("SPEC-160", "network")),
        ({"timeout": 5}, ("SPEC-042", "timeout")),
        ({"id": "x"}, ("SPEC-045", "id")),
        ({"examples": [{"name": "a"}]}, ("SPEC-041", "examples[0].input")),
    ],
)
def test_a_wrong_contract_is_refused(tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """Shape, schemas, references and approval of TOOL.md are checked (AIP-14, T0-1, T0-3)."""
    assert [expected] == errors(checked(tmp_path, None, tool(**changes))[1])


def test_references_inside_a_contract_are_read(tmp_path: Path) -> None:
    """Local references, recursive ones too, and properties called like keywords are no references to elsewhere."""
    inputs = {
        "type": "object",
        "properties": {"path": {"$ref": "#/$defs/p"}, "limit": {}, "$ref": {"type": "string"}, "tree": {"$ref": "#"}},
        "$defs": {"p": {"type": "string", "enum": ["a"], "default": {"$ref": "https://x.example"}}},
        "$id": "https://own.example/contract",
    }

    assert "fs-read" == binding(loaded(tmp_path, None, tool(inputs=inputs))).contract.id


def test_approval_is_never_auto_for_what_mutates(tmp_path: Path) -> None:
    """Where `approval` is missing, a tool that mutates something is `on-mutate` (T0-1), others are `auto`."""
    mutating, problems = checked(tmp_path, None, tool(mutates=["workspace:/x"]))
    reading = loaded(tmp_path)

    assert mutating is not None
    assert "SPEC-162" in [id_ for id_, _ in warnings(problems)]
    assert ("on-mutate", "auto") == (binding(mutating).contract.approval, binding(reading).contract.approval)


def test_an_action_is_tolerated_aloud(tmp_path: Path) -> None:
    """TOOL.md may name an action (T0-2); nothing is inherited, which is said."""
    for action in ("storage:commit", {"inline": {"id": "x"}}):
        assert ("SPEC-161", "implements") in warnings(checked(tmp_path, None, tool(implements=action))[1])


def test_examples_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """An example that the contract itself refuses is a warning."""
    examples = [
        {"name": "good", "input": {"path": "/x"}, "output": {"text": "t"}},
        {"name": "bad", "input": {"path": 1}, "output": {}},
    ]

    found = warnings(checked(tmp_path, None, tool(examples=examples))[1])

    assert [("SPEC-170", "examples[1].input"), ("SPEC-170", "examples[1].output")] == found


def test_two_contracts_may_share_a_tool(tmp_path: Path) -> None:
    """Two contracts may be served by one server tool."""
    folder = write(tmp_path)
    (folder / "tools/fs-peek").mkdir()
    (folder / "tools/fs-peek/TOOL.md").write_text(front(TOOL | {"id": "fs-peek"}))
    entry = driver()["implements"][0]
    values = driver(implements=[entry, entry | {"tool": "tools/fs-peek/TOOL.md"}])

    assert ["fs-read", "fs-peek"] == [found.contract.id for found in loaded(tmp_path, values).bindings]
