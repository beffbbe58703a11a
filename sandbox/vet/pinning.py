"""Holds a live server against its pins: what goes on, what is out of service, and why. Pure.

A change of a tool takes that tool out, a change of what is said about the whole server takes every tool out, and the
rest goes on (S0-69, issue: contracts):

1. differences are classified (:mod:`sandbox.vet.drift`);
2. a bound tool is *held* when a difference waits for a person, when it is no longer offered, when it was never
   approved, or when a narrowing no longer takes what its contract sends;
3. declared prompts and resources whose definition has changed are left out;
4. of what remains, callers are shown the *approved* definitions: nothing that was not approved is in the result.

What is held stays held while the server lives, except a tool that was only gone and comes back as it was: a server that
changes to and fro is not one to be believed in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sandbox.spec.model import Binding, DriverSpec
from sandbox.vet.containment import Options
from sandbox.vet.drift import Change, common_capabilities, drift, uri_of
from sandbox.vet.findings import blocking
from sandbox.vet.model import Exposure, Names, ServerSurface

GONE: Final = "the server no longer offers it"
UNAPPROVED: Final = "it was not offered when the server was approved"
UNFIT: Final = "it takes less than was approved, and no longer all that its contract sends"

_WORDS: Final[Mapping[str, str]] = {
    "widening": "allows more than was approved",
    "text": "reads differently than was approved",
    "undecided": "has changed in a way that cannot be decided",
}

MAX_SECONDS: Final = 5.0
"""Time for the decisions about all schemas of one server; what is left then is undecided, and waits."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a driver's bindings stand against the pins.

    Attributes:
        spec: the driver with what may go on.
        changes: every difference from what was approved.
        held: name in the server's list → why it is out of service, in our words.
    """

    spec: DriverSpec
    changes: tuple[Change, ...]
    held: Mapping[str, str]


def stand(
    spec: DriverSpec, approved: ServerSurface, offered: ServerSurface, lost: Mapping[str, str] | None = None
) -> Standing:
    """Return how a driver stands when a server that was approved offers something now.

    Args:
        spec: the driver.
        approved: its pins, for the same client capabilities.
        offered: what the server says now.
        lost: tools that are out of service already, with the reason.
    """
    known = declared(approved, spec)
    options = _bounded()
    changes = drift(known, offered, {binding.tool_name for binding in spec.bindings}, options)
    held = {**_held(spec, known, offered, changes, options), **(lost or {})}
    kept = spec.model_copy(
        update={
            "bindings": tuple(one for one in spec.bindings if one.tool_name not in held),
            "prompts": tuple(one for one in spec.prompts if _stays(one.name, changes)),
            "resources": tuple(one for one in spec.resources if _unchanged(one.uri_template, changes)),
        }
    )
    return Standing(kept, changes, held)


def shown(exposure: Exposure, approved: ServerSurface, standing: Standing, names: Names, spec: DriverSpec) -> Exposure:
    """Return an exposure of what goes on, with approved definitions in place of what the server says of it.

    Args:
        exposure: made from ``standing.spec`` and the live surface.
        approved: the pins.
        standing: made by :func:`stand`.
        names: under which names tools are exposed.
        spec: the whole driver.
    """
    offered = exposure.surface
    if offered is None:
        return exposure
    waiting = {(one.sort, one.name) for one in standing.changes if one.waits}
    surface = replace(
        offered,
        server_info=approved.server_info,
        instructions=approved.instructions,
        prompts={name: one for name, one in approved.prompts.items() if name in offered.prompts},
        resources=_both(approved.resources, offered.resources, "uri", "resources", waiting),
        resource_templates=_both(
            approved.resource_templates, offered.resource_templates, "uriTemplate", "templates", waiting
        ),
    )
    held = {
        binding.contract.id if names == "contract" else binding.tool_name: standing.held[binding.tool_name]
        for binding in spec.bindings
        if binding.tool_name in standing.held
    }
    capabilities = common_capabilities(approved.capabilities, offered.capabilities)
    return replace(exposure, surface=surface, held=held, capabilities=capabilities)


def declared(surface: ServerSurface, spec: DriverSpec) -> ServerSurface:
    """Return a surface without the prompts and resources of a driver that declares none: those are never asked for."""
    return replace(
        surface,
        prompts=surface.prompts if spec.prompts else {},
        resources=surface.resources if spec.resources else (),
        resource_templates=surface.resource_templates if spec.resources else (),
    )


def _held(
    spec: DriverSpec,
    approved: ServerSurface,
    offered: ServerSurface,
    changes: Sequence[Change],
    options: Options,
) -> dict[str, str]:
    server = next((one for one in changes if one.sort == "server" and one.waits), None)
    by_tool: dict[str, list[Change]] = {}
    for change in changes:
        if change.sort == "tools":
            by_tool.setdefault(change.name, []).append(change)
    held: dict[str, str] = {}
    for binding in spec.bindings:
        name = binding.tool_name
        why = f"what the server says of itself (`{server.name}`) {_WORDS[server.kind]}" if server else None
        why = why or _why(binding, approved, offered, by_tool.get(name, ()), options)
        if why:
            held[name] = why
    return held


def _why(
    binding: Binding,
    approved: ServerSurface,
    offered: ServerSurface,
    changes: Iterable[Change],
    options: Options,
) -> str | None:
    """Return why one bound tool is out of service, ``None`` when it is not.

    A binding of a tool that was neither approved nor is offered is the author's mistake and none of the server's: it
    stays, and is refused where bindings are.
    """
    name = binding.tool_name
    if name not in approved.tools:
        return UNAPPROVED if name in offered.tools else None
    if name not in offered.tools:
        return GONE
    for change in changes:
        if change.waits:
            return f"its `{change.field[:64]}` {_WORDS[change.kind]}"
    if not any(change.kind == "narrowing" for change in changes):
        return None
    from sandbox.vet.directions import fits  # noqa: PLC0415 - heavy, and only for what has changed

    sides = fits(binding, offered.tools[name], options=options)
    return UNFIT if blocking(one for side in sides for one in side.findings) else None


def _stays(name: str, changes: Sequence[Change]) -> bool:
    """Return whether a declared prompt goes on: it is offered as it was approved, or was never heard of at all."""
    return not any(one.sort == "prompts" and one.name == name and (one.waits or not one.field) for one in changes)


def _unchanged(uri: str, changes: Sequence[Change]) -> bool:
    """Return whether nothing that was approved about a declared resource or template reads differently."""
    return not any(
        one.sort in ("resources", "templates") and one.name == uri and one.field and one.waits for one in changes
    )


def _both(
    approved: Sequence[Mapping[str, Any]],
    offered: Sequence[Mapping[str, Any]],
    key: str,
    sort: str,
    waiting: Iterable[tuple[str, str]],
) -> tuple[Mapping[str, Any], ...]:
    """Return the approved items that are still offered and do not wait."""
    still = {uri_of(one, key) for one in offered} - {name for kind, name in waiting if kind == sort}
    return tuple(one for one in approved if uri_of(one, key) in still)


def _bounded() -> Options:
    """Return options whose decisions together end after :data:`MAX_SECONDS`."""
    end = time.monotonic() + MAX_SECONDS
    return Options(clock=lambda: now if (now := time.monotonic()) < end else now + 3600 * (now - end))
