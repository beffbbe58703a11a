"""What vetting found about one live server: for each bound tool how it fits its contract and which hazards it holds.

:func:`judge` decides nothing about admission; :mod:`sandbox.vet.contracts` refuses, ``mcp-sandbox vet`` reports.
Hazards are looked for in what the server says of bound tools and of declared prompts and resources. What is not bound
is invisible and cannot be called, so nobody reads it (AIP-32, S0-43).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandbox.vet.containment import Options
from sandbox.vet.directions import Fit, fits
from sandbox.vet.findings import Finding, blocking
from sandbox.vet.hazards import Subject, collisions, inspect
from sandbox.vet.hazards.naming import MistakableName
from sandbox.vet.model import ExposedTool, Exposure, Fitting, ServerSurface


@dataclass(frozen=True, slots=True)
class ToolJudgement:
    """One bound tool.

    Attributes:
        name: under which callers see it.
        server_name: in the server's own list.
        inputs: how the arguments fit.
        outputs: how the results fit.
        hazards: what its definition may do to a reader.
    """

    name: str
    server_name: str
    inputs: Fit
    outputs: Fit
    hazards: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return everything that was noticed, contracts first."""
        return (*self.inputs.findings, *self.outputs.findings, *self.hazards)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One server.

    Attributes:
        tools: of each bound tool, in the order of the driver.
        others: findings about declared prompts, and about listed resources, which are left out of lists.
    """

    tools: tuple[ToolJudgement, ...]
    others: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return everything that was noticed."""
        return (*(finding for tool in self.tools for finding in tool.findings), *self.others)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """Return what keeps the server from being admitted."""
        return blocking(self.findings)


def judge(exposure: Exposure, policy: Fitting | None = None) -> Judgement:
    """Return what vetting finds about a bound server.

    Args:
        exposure: made by :func:`sandbox.vet.bind.bind`.
        policy: what cannot be decided, and which other servers are loaded.
    """
    chosen = policy or Fitting()
    tools = tuple(_tool(tool, exposure, chosen) for tool in exposure.tools.values())
    return Judgement(tools, tuple(_others(exposure)))


def _tool(tool: ExposedTool, exposure: Exposure, policy: Fitting) -> ToolJudgement:
    inputs, outputs = fits(
        tool.binding,
        tool.server_definition,
        options=Options(clock=time.monotonic),
        unsafe_accept_undecided=policy.unsafe_admit_undecided,
    )
    return ToolJudgement(tool.name, tool.server_name, inputs, outputs, tuple(_hazards(tool, exposure, policy)))


def _hazards(tool: ExposedTool, exposure: Exposure, policy: Fitting) -> Iterator[Finding]:
    """Yield hazards of the server's definition, and of the exposed name beside what other servers expose.

    Callers of several servers see exposed names only, so the server's own name is held against its own list alone.
    """
    own = tuple(exposure.surface.tools) if exposure.surface is not None else ()
    definition = {**tool.server_definition, "name": tool.server_name}
    subject = Subject(definition, {"": own, **policy.neighbours}, tool.binding.contract.mutates)
    if tool.name == tool.server_name or not policy.neighbours:
        yield from inspect(subject)
        return
    yield from (finding for finding in inspect(subject) if finding.id != MistakableName.id)
    yield from collisions(Subject({"name": tool.server_name}, {"": own}))
    yield from collisions(Subject({"name": tool.name}, policy.neighbours))


def _others(exposure: Exposure) -> Iterator[Finding]:
    surface = exposure.surface
    if surface is None:
        return
    for name in exposure.prompts:
        yield from inspect(Subject({**surface.prompts.get(name, {}), "name": name}, kind="prompts"))
    if exposure.resources:
        for kind, item in _listed(surface):
            yield from (replace(finding, severity="inform") for finding in inspect(Subject(item, kind=kind)))


def _listed(surface: ServerSurface) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from (("resources", item) for item in surface.resources)
    yield from (("templates", item) for item in surface.resource_templates)


def readable(exposure: Exposure) -> Exposure:
    """Return an exposure whose lists leave out resources with hidden or over-long text.

    A resource's name is often data, such as a file's name, so one bad one is left out rather than the server refused.
    """
    surface = exposure.surface
    if surface is None or not exposure.resources:
        return exposure
    resources = tuple(item for item in surface.resources if not _hides(item, "resources"))
    templates = tuple(item for item in surface.resource_templates if not _hides(item, "templates"))
    return replace(exposure, surface=replace(surface, resources=resources, resource_templates=templates))


def _hides(item: Mapping[str, Any], kind: str) -> bool:
    return bool(blocking(inspect(Subject(item, kind=kind))))
