"""TOOL.md (AIP-14) → :class:`~sandbox.spec.model.ToolContract`.

Beyond the shape: ``inputs`` and ``outputs`` are JSON Schema 2020-12 whose references stay inside the file, because a
contract that fetches its meaning can change after review; ``approval: auto`` does not go with ``mutates`` (AIP-14,
T0-1); the contract must admit MCP drivers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema_rs

from sandbox.spec.fields.tool import MOVED, Tool
from sandbox.spec.files import sha256
from sandbox.spec.model import Origin, ToolContract
from sandbox.spec.report import Source, join
from sandbox.spec.shape import check, closest

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The only dialect (AIP-14 §Design principles 3; MCP's default since SEP-1613)."""

MAX_BACKTRACKS: Final = 100_000
"""Steps of one pattern with look-around, as at call time."""

_REFERENCES: Final = ("$ref", "$dynamicRef")
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose value is data and not a schema: a ``$ref`` in it refers to nothing."""


def contract(source: Source, values: dict[str, Any], data: bytes) -> ToolContract | None:
    """Return the contract of one TOOL.md; what is wrong is reported.

    Args:
        source: the file.
        values: its front matter.
        data: its bytes, for the digest.
    """
    for key in MOVED:
        if key in values:
            source.error(
                "SPEC-160",
                key,
                f"`{key}` belongs to the driver since AIP-30, not to the contract",
                mend="move it to DRIVER.md",
            )
    block = check(Tool, {key: value for key, value in values.items() if key not in MOVED}, source, "")
    schemas = [_schema(source, key, values[key]) for key in ("inputs", "outputs") if isinstance(values.get(key), dict)]
    if block is None or not all(schemas):
        return None
    _object_inputs(source, block)
    _constraints(source, block)
    _examples(source, block)
    return ToolContract(
        id=block.id,
        name=block.name,
        description=block.description,
        version=block.version,
        inputs=block.inputs,
        outputs=block.outputs,
        idempotent=block.idempotent,
        mutates=tuple(block.mutates),
        requires={key: tuple(names) for key, names in block.requires.model_dump().items()},
        approval=_approval(source, block),
        risk_level=block.risk_level,
        cost_class=block.cost_class,
        timeout_ms=block.timeout_ms,
        default_implementation=block.default_implementation or "",
        retry=block.retry.model_dump(exclude_none=True) if block.retry else {},
        tags=tuple(block.tags),
        examples=tuple(example.model_dump(exclude_unset=True) for example in block.examples),
        metadata=block.metadata,
        origin=Origin(file=source.file, line=0),
        digest=sha256(data),
        lines={path: line for path, line in source.lines.items() if path.startswith(("inputs", "outputs"))},
    )


def _approval(source: Source, block: Tool) -> str:
    """Return the approval class; absent with something mutated it is ``on-mutate``, never ``auto`` (ADR 0012)."""
    if block.implements is not None:
        source.warn(
            "SPEC-161",
            "implements",
            "the action (AIP-39) is not looked up, so nothing is inherited from it",
            mend="write its `mutates`, `risk_level` and `approval` here",
        )
    if block.approval is None:
        if block.mutates:
            source.warn(
                "SPEC-162",
                "mutates",
                "`approval` is missing and something is mutated: it is taken as `on-mutate`",
                mend="write `approval: on-mutate` or `approval: always`",
            )
        return "on-mutate" if block.mutates else "auto"
    if block.approval == "auto" and block.mutates:
        source.error(
            "SPEC-163",
            "approval",
            "`auto` does not go with a tool that mutates something (AIP-14)",
            allowed="on-mutate, always, policy:<name>",
            mend="write `on-mutate`, or empty `mutates` if the tool only reads",
        )
    return block.approval


def _constraints(source: Source, block: Tool) -> None:
    limits = block.driver_constraints
    if "mcp" in limits.forbid or (limits.require_kind and "mcp" not in limits.require_kind):
        source.error(
            "SPEC-164",
            "driver_constraints",
            "the contract does not admit MCP drivers",
            mend="bind another contract, or have its owner admit `mcp`",
        )


# --- schemas ----------------------------------------------------------------------------------------------------------
def _object_inputs(source: Source, block: Tool) -> None:
    if block.inputs.get("type") != "object":
        source.error(
            "SPEC-165",
            "inputs.type",
            "the arguments of an MCP tool are an object",
            allowed="object",
            mend="add `type: object`",
        )


def _schema(source: Source, path: str, schema: dict[str, Any]) -> bool:
    """Report what is wrong with one schema, and return whether it can be used."""
    dialect = schema.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
        source.error(
            "SPEC-166",
            join(path, "$schema"),
            "the contract is not in JSON Schema 2020-12",
            found=dialect,
            allowed=DIALECT,
            mend="remove `$schema`",
        )
        return False
    outside = [(place, reference) for place, reference in references(schema, path) if not reference.startswith("#")]
    for place, reference in outside:
        source.error(
            "SPEC-167",
            place,
            "a reference leads out of the file, and is never fetched",
            found=reference,
            allowed="`#/…`",
            mend="copy the schema into `$defs`",
        )
    return not outside and _valid(source, path, schema)


def references(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of every reference and identifier of a schema that could lead elsewhere."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from references(item, join(path, index))
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        place = join(path, key)
        if key in _REFERENCES and isinstance(value, str):
            yield place, value
        elif key == "$id" and isinstance(value, str) and "." in path:
            yield place, value  # below the root it would change what `#` means
        elif key == "properties" and isinstance(value, dict):
            for name, inner in value.items():
                yield from references(inner, join(place, name))
        elif key not in _DATA:
            yield from references(value, place)


def _valid(source: Source, path: str, schema: dict[str, Any]) -> bool:
    # 1 the metaschema: each difference at its own place
    wrong = list(_metaschema().iter_errors(schema))
    for error in wrong:
        place = path
        for part in error.instance_path:
            place = join(place, part)
        source.error(
            "SPEC-168", place, f"this is not JSON Schema: {_first_line(error.message)}", mend="correct the schema"
        )
    if wrong:
        return False
    # 2 compilation: references resolve and patterns are patterns
    try:
        compiled(schema)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        source.error(
            "SPEC-169", path, f"the schema cannot be used: {_first_line(str(error))}", mend="correct the schema"
        )
        return False
    return True


@functools.cache
def _metaschema() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": DIALECT}, offline=True)


def compiled(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Return a validator of a contract's schema that fetches nothing.

    Raises:
        ValueError: a pattern is none.
        jsonschema_rs.ReferencingError: a reference leads nowhere.
    """
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS)
    return jsonschema_rs.Draft202012Validator(
        dict(schema), validate_formats=False, pattern_options=options, offline=True
    )


def _examples(source: Source, block: Tool) -> None:
    """Warn about examples that the contract itself does not admit; every driver must satisfy them (AIP-14)."""
    for key, schema in (("input", block.inputs), ("output", block.outputs)):
        validator = compiled(schema) if block.examples else None
        for index, example in enumerate(block.examples):
            if key not in example.model_fields_set or validator is None:
                continue
            for error in validator.iter_errors(getattr(example, key)):
                source.warn(
                    "SPEC-170",
                    f"examples[{index}].{key}",
                    f"the example does not fit `{key}s`: {_first_line(error.message)}",
                    mend="correct the example or the schema",
                )
                break


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]


def property_names(schema: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the declared and the required top-level members of a contract's schema."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    return (
        set(properties) if isinstance(properties, dict) else set(),
        {name for name in required if isinstance(name, str)} if isinstance(required, list) else set(),
    )


def unknown_member(source: Source, path: str, name: str, known: set[str], what: str) -> None:
    """Report a name that no top-level member of a contract's schema has."""
    near = closest(name, known)
    source.error(
        "SPEC-171",
        path,
        f"the contract has no {what} `{name}`",
        allowed=", ".join(sorted(known)[:20]),
        mend=f"write `{near}`" if near else "correct the name",
    )
