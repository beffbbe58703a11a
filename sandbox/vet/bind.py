"""Binds a driver's ``implements[]`` to a live server's tools and makes what callers will see (S0-28, S0-43, AIP-32).

Only bound tools are exposed, under the contract's id and with the contract's schemas; what the server says about them
is kept for comparison but never shown, so that text in a tool description cannot reach a model unless a person wrote
it into the reviewed contract.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from sandbox.errors import VetRefused
from sandbox.policy.hiding import hide
from sandbox.spec.model import Binding, DriverSpec, ToolContract
from sandbox.vet.model import ExposedTool, Exposure, Names, ServerSurface

IRREVERSIBLE: Final = 3
"""AIP-14 ``risk_level`` from which a tool is announced as destructive."""

REF_PREFIX: Final = "mcp_"
"""What the kind of a reference to an MCP resource begins with (AIP-32, resources integration)."""

RESULT_KEY: Final = "result"
"""Member under which a result that is not an object is wrapped: MCP asks for an object in ``structuredContent``."""


def bind(spec: DriverSpec, surface: ServerSurface, names: Names = "contract") -> Exposure:
    """Return what callers may see of a server.

    Args:
        spec: the driver.
        surface: what the server offers.
        names: ``contract`` exposes tools under their contract's id, ``server`` under the server's own names.

    Raises:
        VetRefused: ``VET-001``, a bound tool, prompt or resource is not offered; every missing one is named with its
            place and the closest match; ``VET-151``, ``VET-152``, a declared integration leads nowhere.
    """
    missing = [*_missing_tools(spec, surface), *_missing_prompts(spec, surface)]
    if missing:
        raise VetRefused(
            "VET-001",
            "; ".join(missing),
            "correct `metadata.mcp.tool_name`, or bind a version of the server that offers it",
        )
    _check_integrations(spec)
    tools: dict[str, ExposedTool] = {}
    for binding in spec.bindings:
        tool = _expose(binding, surface.tools[binding.tool_name], names)
        if tool.name in tools:
            raise VetRefused(
                "VET-003",
                f"{binding.origin}: two bindings are exposed as `{tool.name}`",
                "give one of the contracts another id, or bind each server tool once",
            )
        tools[tool.name] = tool
    return Exposure(
        tools=tools,
        prompts={prompt.name: prompt for prompt in spec.prompts},
        resources=spec.resources,
        surface=surface,
    )


def _missing_tools(spec: DriverSpec, surface: ServerSurface) -> list[str]:
    return [
        f"{binding.origin}: tool `{binding.tool_name}` is not in the server's tools/list"
        f"{_closest(binding.tool_name, surface.tools)}"
        for binding in spec.bindings
        if binding.tool_name not in surface.tools
    ]


def _missing_prompts(spec: DriverSpec, surface: ServerSurface) -> list[str]:
    return [
        f"{spec.where(f'prompts[{index}]')}: prompt `{prompt.name}` is not in the server's prompts/list"
        f"{_closest(prompt.name, surface.prompts)}"
        for index, prompt in enumerate(spec.prompts)
        if prompt.name not in surface.prompts
    ]


def _check_integrations(spec: DriverSpec) -> None:
    """Refuse prompts and resources whose declared integration leads nowhere (S0-46, S0-49).

    A kind begins with ``mcp_``, so that it is none of AIP-27's own and, with its underscore, no scheme of a URI.
    """
    for index, prompt in enumerate(spec.prompts):
        if prompt.integrate_as == "skill_block" and not prompt.skill:
            place = spec.where(f"prompts[{index}]")
            mend = "name a SKILL.md of the folder with `skill_ref`, or write `integrate_as: raw`"
            raise VetRefused("VET-151", f"{place}: prompt `{prompt.name}` is to become a block of no known skill", mend)
    for index, resource in enumerate(spec.resources):
        if resource.integrate_as == "ref_kind" and not resource.ref_kind_id.startswith(REF_PREFIX):
            place = spec.where(f"resources[{index}]")
            message = f"{place}: `{resource.uri_template}` is to become a reference kind without a name of its own"
            raise VetRefused("VET-152", message, f"write `ref_kind_id: {REF_PREFIX}<name>`, or `integrate_as: raw`")


def _closest(name: str, offered: Mapping[str, Any]) -> str:
    if not offered:
        return ", which is empty"
    matches = difflib.get_close_matches(name, offered, n=1, cutoff=0.4)
    return f"; the closest is `{matches[0]}`" if matches else f"; it offers {', '.join(sorted(offered)[:10])}"


def _expose(binding: Binding, offered: Mapping[str, Any], names: Names) -> ExposedTool:
    name = binding.contract.id if names == "contract" else binding.tool_name
    return ExposedTool(name, definition_of(binding, name), binding.tool_name, offered, binding)


def definition_of(binding: Binding, name: str) -> dict[str, Any]:
    """Return what clients see of a bound tool, under a name; its server need not run for it."""
    contract = binding.contract
    return {
        "name": name,
        "title": contract.name,
        "description": contract.description,
        "inputSchema": exposed_inputs(binding),
        "outputSchema": exposed_outputs(contract),
        "annotations": _annotations(contract),
    }


def exposed_inputs(binding: Binding) -> dict[str, Any]:
    """Return the contract's input schema as callers see it: without dropped and without injected members."""
    schema = hide(binding.contract.inputs, set(binding.drop_inputs) | _injected_contract_keys(binding))
    schema.setdefault("type", "object")
    return schema


def _injected_contract_keys(binding: Binding) -> set[str]:
    by_server_name = {
        binding.argument_mapping.get(key, key): key for key in dict(binding.contract.inputs.get("properties", {}))
    }
    return {by_server_name.get(argument, argument) for argument in binding.context}


def exposed_outputs(contract: ToolContract) -> dict[str, Any]:
    """Return the output schema as callers see it; a schema that is not of an object is wrapped under ``result``."""
    schema = dict(contract.outputs)
    if schema.get("type") == "object":
        return schema
    definitions: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "definitions", "$schema")}
    return {**definitions, "type": "object", "properties": {RESULT_KEY: inner}, "required": [RESULT_KEY]}


def is_wrapped(contract: ToolContract) -> bool:
    """Return whether results of this contract travel under ``result``."""
    return contract.outputs.get("type") != "object"


def _annotations(contract: ToolContract) -> dict[str, Any]:
    """Return MCP tool annotations from what the contract says; the server's own claims are not passed on."""
    return {
        "readOnlyHint": not contract.mutates,
        "destructiveHint": bool(contract.mutates) and contract.risk_level >= IRREVERSIBLE,
        "idempotentHint": contract.idempotent,
        "openWorldHint": bool(contract.requires.get("network")),
    }
