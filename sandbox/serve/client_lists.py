"""What a client is told exists: capabilities and lists, all from the exposure and none from the server.

Lists come in one page, in a fixed order, in the members that the client's version has.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from sandbox.serve.client_replies import invalid_params
from sandbox.serve.templates import Template, TemplateError
from sandbox.serve.uris import MAX_URI_BYTES
from sandbox.spec.model import ResourceDecl
from sandbox.vet.model import Exposure
from sandbox.wire.results import listed
from sandbox.wire.versions import V2025_03_26

REF_META: Final = "mcp-sandbox/ref"
"""Member of a listed resource's ``_meta``: the reference of its declared kind."""

SKILL_META: Final = "mcp-sandbox/skill"
"""Member of a listed prompt's ``_meta``: name of the skill that it is a block of."""


def capabilities(exposure: Exposure, server: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the MCP ``ServerCapabilities`` that a client of ``version`` is offered.

    Tools always; prompts and resources when the driver declares some; log messages and completions when the server has
    them too. What a server says beyond that (tasks, experimental, extensions) is not passed on.
    """
    offered: dict[str, Any] = {"tools": {"listChanged": True}}
    if exposure.prompts:
        offered["prompts"] = {"listChanged": True}
    if exposure.resources:
        own = server.get("resources")
        subscribe = isinstance(own, Mapping) and bool(own.get("subscribe"))
        offered["resources"] = {"listChanged": True, **({"subscribe": True} if subscribe else {})}
    if "logging" in server:
        offered["logging"] = {}
    if "completions" in server and (exposure.prompts or exposure.resources) and version >= V2025_03_26:
        offered["completions"] = {}
    return offered


def answer_list(method: str, params: Mapping[str, Any], exposure: Exposure, version: str) -> dict[str, Any]:
    """Return the neutral result of a ``*/list`` request.

    Raises:
        ProtocolMisuse: ``SESS-010``, a cursor: we never gave one.
    """
    if params.get("cursor") is not None:
        raise invalid_params("SESS-010", "the cursor was not given here", "list without a cursor: there is one page")
    return LISTS[method](exposure, version)


def _tools(exposure: Exposure, version: str) -> dict[str, Any]:
    return {"tools": [listed(tool.definition, version) for tool in exposure.tools.values()]}


def _prompts(exposure: Exposure, version: str) -> dict[str, Any]:
    known = exposure.surface.prompts if exposure.surface is not None else {}
    prompts = []
    for name, declared in exposure.prompts.items():
        definition = {**known.get(name, {}), "name": name}
        if declared.description:
            definition["description"] = declared.description
        if declared.skill:
            definition["_meta"] = {**_meta(definition), SKILL_META: declared.skill}
        prompts.append(listed(definition, version))
    return {"prompts": prompts}


def _resources(exposure: Exposure, version: str) -> dict[str, Any]:
    known = exposure.surface.resources if exposure.surface is not None else ()
    shown = []
    for one in known:
        uri = str(one.get("uri", ""))
        declared = declared_for(exposure, uri)
        if declared is not None:
            shown.append(_referable(one, declared, uri))
    return {"resources": [listed(one, version) for one in shown]}


def _templates(exposure: Exposure, version: str) -> dict[str, Any]:
    known = {str(one.get("uriTemplate")): one for one in _server_templates(exposure)}
    templates = []
    for declared in exposure.resources:
        if "{" not in declared.uri_template:
            continue
        definition = {"name": declared.uri_template, **known.get(declared.uri_template, {})}
        definition["uriTemplate"] = declared.uri_template
        if declared.description:
            definition["description"] = declared.description
        templates.append(listed(_referable(definition, declared, declared.uri_template), version))
    return {"resourceTemplates": templates}


def _server_templates(exposure: Exposure) -> tuple[Mapping[str, Any], ...]:
    return exposure.surface.resource_templates if exposure.surface is not None else ()


LISTS: Final = {
    "tools/list": _tools,
    "prompts/list": _prompts,
    "resources/list": _resources,
    "resources/templates/list": _templates,
}
"""Listing method → what answers it."""


def declared_for(exposure: Exposure, uri: str) -> ResourceDecl | None:
    """Return the declaration whose template a URI is an expansion of, or ``None``.

    This decides what is *listed* and what is unknown. What may be *read* is decided by the handler, on the parsed and
    confined URI.
    """
    if len(uri) > MAX_URI_BYTES:
        return None
    return next((one for one in exposure.resources if _expands(one.uri_template, uri)), None)


def resolved(exposure: Exposure, text: str) -> str:
    """Return the URI that a reference ``mcp_<kind>:<uri>`` stands for (S0-49), or the text itself.

    The URI must be an expansion of a template that its own kind declares: a reference opens nothing that was not
    declared for it. What may be read is decided afterwards, on that URI.
    """
    kind, colon, uri = text.partition(":")
    kinds = [one for one in exposure.resources if one.integrate_as == "ref_kind" and one.ref_kind_id == kind]
    if not colon or not kinds or len(uri) > MAX_URI_BYTES:
        return text
    return uri if any(_expands(one.uri_template, uri) for one in kinds) else text


def _referable(definition: Mapping[str, Any], declared: ResourceDecl, uri: str) -> Mapping[str, Any]:
    """Return a listed resource with its reference, when the driver makes it a kind of its own."""
    if declared.integrate_as != "ref_kind":
        return definition
    return {**definition, "_meta": {**_meta(definition), REF_META: f"{declared.ref_kind_id}:{uri}"}}


def _meta(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    own = definition.get("_meta")
    return own if isinstance(own, Mapping) else {}


def _expands(template: str, uri: str) -> bool:
    compiled = _compiled(template)
    return uri == template if compiled is None else compiled.matches(uri)


@functools.lru_cache(maxsize=1024)
def _compiled(template: str) -> Template | None:
    """Return a template compiled, ``None`` when it can only be compared."""
    try:
        return Template(template)
    except TemplateError:
        return None
