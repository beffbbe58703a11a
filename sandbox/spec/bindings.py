"""``implements[]``: which contract is served by which of the server's tools (AIP-30 §implements, AIP-32 §Per-tool).

Steps for each entry:

1. its shape, and that of ``metadata.mcp``; ``mcp_tools`` of older drivers names the tool where the entry does not;
2. the contract is loaded and its version lies in the range (S0-41);
3. only optional members are dropped; an override of the time-out only lowers it (AIP-30 §Design principles 3);
4. ``argument_mapping`` starts at contract members and never sends two of them to one argument;
5. ``context`` arguments cannot be reached by any contract member, so that no caller can set them (S0-71);
6. ``result_extract`` is of the fragment.

Then, over all entries: one contract is bound once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.spec.contracts import property_names, unknown_member
from sandbox.spec.extract import ALLOWED, segments
from sandbox.spec.fields.mcp import PerTool
from sandbox.spec.fields.universal import ImplementsEntry
from sandbox.spec.model import Binding, Origin, ToolContract
from sandbox.spec.report import Source, join
from sandbox.spec.shape import check, wrong_type
from sandbox.spec.versions import is_range, is_version, satisfies

MAX_ARGUMENT_CHARS: Final = 256
"""Name of a server's argument."""

_FACT: Final = re.compile(r"(?:tenant|user)\.[A-Za-z_][A-Za-z0-9_]{0,63}")

Load = Callable[[str, str], ToolContract | None]
"""Returns the contract that an entry names; arguments: place of the field, its text."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What entries take from the driver: ``mcp_tools`` (MCP tool → contract id) and ``timeout_override_ms``."""

    tools: Mapping[str, str]
    timeout_ms: int | None


def bindings(source: Source, entries: list[Any], load: Load, defaults: Defaults) -> tuple[Binding, ...]:
    """Return every binding; what is wrong is reported."""
    found: list[Binding] = []
    places: dict[str, str] = {}
    for index, entry in enumerate(entries):
        place = f"implements[{index}]"
        binding = _binding(source, place, entry, load, defaults)
        if binding is None:
            continue
        first = places.setdefault(binding.contract.id, place)
        if first != place:
            source.error(
                "SPEC-172",
                f"{place}.tool",
                f"the contract `{binding.contract.id}` is bound here and in line {source.line(first)}",
                mend="keep one binding for each contract",
            )
        found.append(binding)
    for name, contract_id in defaults.tools.items():
        if contract_id not in places and len(found) == len(entries):
            source.error(
                "SPEC-173",
                join("mcp_tools", name),
                "no entry of `implements` binds this contract, so the tool would not be offered",
                found=contract_id,
                allowed=", ".join(places),
                mend="add the entry, or remove this line",
            )
    return tuple(found)


def _binding(source: Source, place: str, entry: Any, load: Load, defaults: Defaults) -> Binding | None:
    # 1 shape
    block = check(ImplementsEntry, entry, source, place)
    if block is None:
        return None
    # 2 contract
    contract = load(f"{place}.tool", block.tool)
    per_tool = _per_tool(source, place, block, contract, defaults.tools)
    if contract is None or per_tool is None:
        return None
    _version(source, place, block, contract)
    # 3 narrowing
    _narrowing(source, place, block, contract)
    timeout = _timeout(source, place, block, contract, defaults.timeout_ms)
    # 4, 5 arguments
    metadata = f"{place}.metadata.mcp"
    mapping = _mapping(source, place, block, per_tool, contract)
    context = _context(source, f"{metadata}.context", per_tool, mapping, contract)
    # 6 result
    _extract(source, f"{metadata}.result_extract", per_tool.result_extract)
    return Binding(
        contract=contract,
        version_range=block.version,
        tool_name=per_tool.tool_name,
        argument_mapping=mapping,
        result_extract=per_tool.result_extract,
        context=context,
        drop_inputs=tuple(block.schema_narrowing.drop_inputs),
        drop_outputs=tuple(block.schema_narrowing.drop_outputs),
        timeout_ms=timeout,
        cost_override=block.cost_override.model_dump(exclude_none=True) if block.cost_override else {},
        retry_override=block.retry_override.model_dump(exclude_none=True) if block.retry_override else {},
        origin=Origin(file=source.file, line=source.line(place)),
    )


# --- 1, 2 -------------------------------------------------------------------------------------------------------------
def _per_tool(
    source: Source, place: str, block: ImplementsEntry, contract: ToolContract | None, tools: Mapping[str, str]
) -> PerTool | None:
    """Return ``metadata.mcp``, its ``tool_name`` taken from ``mcp_tools`` where the entry has none (S0-4)."""
    path = f"{place}.metadata.mcp"
    written = block.metadata.get("mcp", {})
    if not isinstance(written, dict):
        wrong_type(source, path, written, "a mapping")
        return None
    named = [name for name, contract_id in tools.items() if contract is not None and contract_id == contract.id]
    if "tool_name" not in written and len(named) == 1:
        written = {**written, "tool_name": named[0]}
    per_tool = check(PerTool, written, source, path)
    if per_tool is not None and named and per_tool.tool_name not in named:
        source.error(
            "SPEC-174",
            f"{path}.tool_name",
            f"`mcp_tools` names `{named[0]}` for this contract",
            found=per_tool.tool_name,
            mend="make them equal, or remove `mcp_tools`",
        )
    return per_tool


def _version(source: Source, place: str, block: ImplementsEntry, contract: ToolContract) -> None:
    good = is_version(contract.version) and is_range(block.version)
    if good and not satisfies(contract.version, block.version):
        source.error(
            "SPEC-175",
            f"{place}.version",
            f"the contract `{contract.id}` has version {contract.version}, which is not in the range",
            found=block.version,
            mend="review the contract's changes and move the range, or bind an older contract",
        )


# --- 3 ----------------------------------------------------------------------------------------------------------------
def _narrowing(source: Source, place: str, block: ImplementsEntry, contract: ToolContract) -> None:
    for key, schema in (("drop_inputs", contract.inputs), ("drop_outputs", contract.outputs)):
        known, required = property_names(schema)
        for index, name in enumerate(getattr(block.schema_narrowing, key)):
            path = f"{place}.schema_narrowing.{key}[{index}]"
            if name in required:
                source.error(
                    "SPEC-176",
                    path,
                    f"`{name}` is required by the contract `{contract.id}` and cannot be dropped",
                    mend="remove it, or bind another contract",
                )
            elif name not in known:
                unknown_member(source, path, name, known, key.removeprefix("drop_").removesuffix("s"))


def _timeout(source: Source, place: str, block: ImplementsEntry, contract: ToolContract, default: int | None) -> int:
    own = block.timeout_override_ms
    asked, path = (own, f"{place}.timeout_override_ms") if own is not None else (default, "timeout_override_ms")
    if asked is None:
        return contract.timeout_ms
    if asked > contract.timeout_ms:
        source.error(
            "SPEC-177",
            path,
            f"an override may only lower the {contract.timeout_ms} ms of the contract `{contract.id}`",
            found=asked,
            allowed=f"at most {contract.timeout_ms}",
            mend="lower it, or override the time-out of each tool in `implements`",
        )
    return min(asked, contract.timeout_ms)


# --- 4, 5 -------------------------------------------------------------------------------------------------------------
def _mapping(
    source: Source, place: str, block: ImplementsEntry, per_tool: PerTool, contract: ToolContract
) -> dict[str, str]:
    """Return contract member → argument, without identities."""
    known, _ = property_names(contract.inputs)
    path = f"{place}.metadata.mcp.argument_mapping"
    _generic_mapping(source, f"{place}.mapping", block.mapping)
    for name, argument in per_tool.argument_mapping.items():
        if name not in known:
            unknown_member(source, join(path, name), name, known, "input")
        if len(argument) > MAX_ARGUMENT_CHARS:
            source.error(
                "SPEC-045", join(path, name), "the name is too long", allowed=f"{MAX_ARGUMENT_CHARS} characters"
            )
    arguments: dict[str, str] = {}
    dropped = set(block.schema_narrowing.drop_inputs)
    for name in sorted(known - dropped):
        argument = per_tool.argument_mapping.get(name, name)
        first = arguments.setdefault(argument, name)
        if first != name:
            written = name if name in per_tool.argument_mapping else first
            source.error(
                "SPEC-178",
                join(path, written),
                f"the inputs `{first}` and `{name}` both become the argument `{argument}`",
                mend="give each an argument of its own",
            )
    return {name: argument for name, argument in per_tool.argument_mapping.items() if name != argument}


def _generic_mapping(source: Source, path: str, mapping: Mapping[str, Any]) -> None:
    """Refuse AIP-30 ``mapping`` unless it changes nothing: upstream reads its direction in two ways (T0-7)."""
    for name, value in mapping.items():
        if value != name:
            source.error(
                "SPEC-179",
                join(path, name),
                "`mapping` can be read in two directions, and its transformers are code that a driver does not have",
                found=value,
                allowed="the same name",
                mend=f"write `metadata.mcp.argument_mapping: {{<contract input>: <server argument>}}` for `{name}`",
            )


def _context(
    source: Source, path: str, per_tool: PerTool, mapping: Mapping[str, str], contract: ToolContract
) -> dict[str, str]:
    """Return server argument → fact about the caller."""
    known, _ = property_names(contract.inputs)
    reachable = {mapping.get(name, name): name for name in known}
    for argument, fact in per_tool.context.items():
        place = join(path, argument)
        if not _FACT.fullmatch(fact):
            source.error(
                "SPEC-180",
                place,
                "this is not a verified fact about the caller",
                found=fact,
                allowed="`tenant.id`, `user.sub`, or `tenant.<claim>`, `user.<claim>`",
                mend="name the fact",
            )
        if argument in reachable:
            source.error(
                "SPEC-181",
                place,
                f"a caller could set this argument through the input `{reachable[argument]}`",
                mend="map the input to another argument, or take it out of the contract",
            )
    closed = contract.inputs.get("additionalProperties") is False and "patternProperties" not in contract.inputs
    if per_tool.context and not closed:
        source.error(
            "SPEC-182",
            path,
            f"the contract `{contract.id}` admits further inputs, so a caller could set injected arguments",
            mend="write `additionalProperties: false`, and no `patternProperties`, into the contract's `inputs`",
        )
    return dict(per_tool.context)


# --- 6 ----------------------------------------------------------------------------------------------------------------
def _extract(source: Source, path: str, text: str) -> None:
    try:
        segments(text)
    except ValueError as error:
        source.error(
            "SPEC-183",
            path,
            f"the path cannot be used: {error}",
            found=text,
            allowed=ALLOWED,
            mend="name one value of the server's answer",
        )
