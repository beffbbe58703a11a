"""Shipped contracts against what real servers say, whole and broken in twenty ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from sandbox.spec.load import load_driver
from sandbox.spec.model import Binding
from sandbox.vet.bind import exposed_inputs
from sandbox.vet.directions import check_inputs, check_outputs, fits
from tests.shared import ROOT, shared_data

pytestmark = pytest.mark.data

RECORDED = {
    "everything-mcp": "everything.json",
    "filesystem-mcp": "filesystem.json",
    "git-mcp": "git.json",
    "memory-mcp": "memory.json",
    "sequential-thinking-mcp": "sequential-thinking.json",
    "time-mcp": "time.json",
}


def recorded(name: str) -> dict[str, Any]:
    """Return the recorded tools of a server by name."""

    def tools(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            if "inputSchema" in value:
                yield value
            for inner in value.values():
                yield from tools(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from tools(inner)

    return {tool["name"]: tool for tool in tools(json.loads(shared_data("tools", name).read_text()))}


def bindings() -> Iterator[tuple[Binding, dict[str, Any]]]:
    """Yield every binding of the shipped drivers whose server was recorded, with the recorded tool."""
    for driver, name in RECORDED.items():
        path = ROOT / "drivers" / driver / "DRIVER.md"
        if not path.exists():
            pytest.skip(f"no shipped driver {driver}")
        tools = recorded(name)
        for binding in load_driver(path).bindings:
            if binding.tool_name in tools:
                yield binding, tools[binding.tool_name]


def test_every_shipped_contract_fits_its_real_server() -> None:
    """Both directions are proved, or the tool promises no results and they are checked as they arrive."""
    pairs = list(bindings())
    odd = [
        str(finding) for one in pairs for fit in fits(*one) for finding in fit.findings if finding.severity == "block"
    ]

    assert [] == odd
    assert len(pairs) >= 40


def with_inputs(binding: Binding, inputs: dict[str, Any]) -> Binding:
    """Return a binding whose contract has other inputs."""
    return binding.model_copy(update={"contract": binding.contract.model_copy(update={"inputs": inputs})})


Change = Callable[[dict[str, Any], str], None]


def retyped(kind: Any) -> Change:
    """Give a property another type."""
    return lambda inputs, name: inputs["properties"].update({name: {"type": kind}})


def replaced(schema: Any) -> Change:
    """Give a property another schema."""
    return lambda inputs, name: inputs["properties"].update({name: schema})


def optional(inputs: dict[str, Any], name: str) -> None:
    """Ask callers for one member less."""
    inputs["required"] = [one for one in inputs.get("required", []) if one != name]


def renamed(inputs: dict[str, Any], name: str) -> None:
    """Call a member something else."""
    inputs["properties"]["quite_another"] = inputs["properties"].pop(name)
    inputs["required"] = ["quite_another" if one == name else one for one in inputs.get("required", [])]


def removed(inputs: dict[str, Any], name: str) -> None:
    """Forget a member."""
    del inputs["properties"][name]
    optional(inputs, name)


def opened(inputs: dict[str, Any], name: str) -> None:
    """Accept members that are not named, and nothing else about this one."""
    inputs["additionalProperties"] = True
    del inputs["properties"][name]


CHANGES: dict[str, Change] = {
    **{
        f"becomes {kind}": retyped(kind)
        for kind in ("string", "integer", "number", "boolean", "null", "array", "object")
    },
    "becomes string or null": retyped(["string", "null"]),
    "becomes anything": replaced(True),
    "becomes one of two": replaced({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "becomes a list of lists": replaced({"type": "array", "items": {"type": "array"}}),
    "becomes an open object": replaced({"type": "object", "additionalProperties": {"type": "integer"}}),
    "becomes a constant": replaced({"const": {"odd": [1]}}),
    "becomes another choice": replaced({"enum": ["quite another", 7]}),
    "becomes a large number": replaced({"type": "number", "exclusiveMinimum": 1e12}),
    "becomes a fraction": replaced({"type": "number", "not": {"multipleOf": 1}}),
    "becomes optional": optional,
    "is renamed": renamed,
    "is removed": removed,
    "is left open": opened,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.claim("P-VET-06")
def test_a_broken_contract_is_refused_with_a_value_that_the_server_refuses(change: Change) -> None:
    """Each change is decided; a refusal shows arguments that the contract accepts and the server refuses."""
    refuted = 0
    for binding, tool in bindings():
        for name in binding.contract.inputs.get("properties", {}):
            inputs = copy.deepcopy(dict(binding.contract.inputs))
            change(inputs, name)
            changed = with_inputs(binding, inputs)
            fit = check_inputs(changed, tool)
            accepts, takes = (
                jsonschema.Draft202012Validator(one) for one in (exposed_inputs(changed), tool["inputSchema"])
            )

            assert fit.status in {"proved", "refuted"}, fit.findings
            if fit.status == "refuted":
                refuted += 1

                assert accepts.is_valid(fit.witness)
                assert not takes.is_valid(fit.witness)

    assert refuted >= 5


def test_a_broken_promise_is_refused_with_a_result_that_the_contract_refuses() -> None:
    """Each shipped contract whose outputs ask for something else is refused with a result that the server allows."""
    refuted = 0
    for binding, tool in bindings():
        if "outputSchema" not in tool:
            continue
        for outputs in (
            {"type": "null"},
            {"type": "string", "maxLength": 0},
            {"type": "object", "required": ["quite another"]},
        ):
            changed = binding.model_copy(update={"contract": binding.contract.model_copy(update={"outputs": outputs})})
            fit = check_outputs(changed, tool)

            assert "refuted" == fit.status
            assert jsonschema.Draft202012Validator(tool["outputSchema"]).is_valid(fit.witness)
            refuted += 1

    assert refuted >= 50


def test_a_typing_error_in_an_extract_is_found() -> None:
    """Every shipped ``result_extract`` with one letter more names nothing, and the real one is proposed."""
    found = []
    for binding, tool in bindings():
        if binding.result_extract == "$" or "outputSchema" not in tool:
            continue
        fit = check_outputs(binding.model_copy(update={"result_extract": f"{binding.result_extract}s"}), tool)
        found.append((fit.findings[0].id, binding.result_extract in fit.findings[0].mend))

    assert {("VET-103", True)} >= set(found)
    assert found
