"""Chains: a tool that the host makes of other installed tools (MCPKG §11).

Steps: 1 the input is filled with its schema's defaults and held against it; 2 for each step the arguments are taken
from the input and earlier outputs by JSONPath; 3 the step's tool is called, in a sandbox of its own, as any call is;
4 its output is kept under the step's key; 5 the final output is the last step's when that fits ``output_schema``, else
the outputs whose keys the schema names; 6 it is held against the schema.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sandbox.errors import CallRefused, ServerFault
from sandbox.mcpkg.cases import at
from sandbox.mcpkg.model import Manifest, Step
from sandbox.mcpkg.schemas import with_defaults
from sandbox.vet.validators import SchemaValidator

CallTool = Callable[[Step, dict[str, Any]], Awaitable[Any]]
"""Calls the tool of a step with arguments and returns its result; raises ``SandboxError`` when it fails."""


async def run_chain(manifest: Manifest, given: Mapping[str, Any], call: CallTool) -> Any:
    """Return what a chain makes of its input.

    Raises:
        CallRefused: ``PKG-050``, the input does not fit; ``PKG-051``, a step's argument is not there.
        ServerFault: ``PKG-052``, the output does not fit.
        SandboxError: a step failed.
    """
    filled = with_defaults(manifest.input_schema, given)  # 1
    wrong = SchemaValidator(manifest.input_schema, "input_schema").mismatch(filled)
    if wrong is not None:
        raise CallRefused("PKG-050", f"{manifest.tool_id}: the input does not fit: {wrong}", "correct the arguments")
    context: dict[str, Any] = {"input": filled}
    output: Any = None
    for step in manifest.chain:
        output = await call(step, _arguments(step, context))  # 2, 3
        context[step.output_key] = output  # 4
    return _final(manifest, context, output)


def _arguments(step: Step, context: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, path in step.mapping.items():
        try:
            found[name] = at(context, path)
        except LookupError:
            if path.startswith("$.input"):
                continue  # an optional input that was not given and has no default; the step's schema decides
            message = f"step `{step.step}`: nothing stands at {path} for its argument `{name}`"
            raise CallRefused("PKG-051", message, "correct the mapping, or the step before it") from None
    return found


def _final(manifest: Manifest, context: Mapping[str, Any], output: Any) -> Any:
    """Return the output that fits (steps 5 and 6)."""
    validator = SchemaValidator(manifest.output_schema, "output_schema", masked=True)
    if validator.fits(output):
        return output
    named = manifest.output_schema.get("properties", {})
    picked = {key: value for key, value in context.items() if key in named and key != "input"}
    wrong = validator.mismatch(picked)
    if wrong is None:
        return picked
    message = f"{manifest.tool_id}: what the last step made does not fit output_schema: {wrong}"
    raise ServerFault("PKG-052", message, "correct output_schema, or the last step")
