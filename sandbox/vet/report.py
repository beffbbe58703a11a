"""What ``mcp-sandbox vet`` says: one judgement as text for people and as JSON for programs.

The JSON form is described by ``docs/schemas/vet.schema.json``; SARIF is made by :mod:`sandbox.vet.sarif`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sandbox.spec.model import DriverSpec
from sandbox.vet.findings import Finding
from sandbox.vet.judgement import Judgement, ToolJudgement
from sandbox.vet.model import ServerSurface

VERSION: Final = 1

PinState = Literal["match", "absent", "narrowed", "differ"]
"""How what the server offers relates to what was approved in ``driver.lock``; ``narrowed``: nothing of it waits."""

Outcome = Literal["fits", "misfit", "undecided", "hazard"]

_PINS: Final = {
    "match": "what the server offers is what was approved",
    "absent": "nothing was approved yet; review it and run `mcp-sandbox pins approve`",
    "narrowed": "the server differs from what was approved, and nothing of it waits for approval",
    "differ": "what has changed since it was approved is out of service; see `mcp-sandbox pins diff`",
}


@dataclass(frozen=True, slots=True)
class VetReport:
    """Everything that vetting one driver found.

    Attributes:
        surface: what the server offered, ``None`` when vetting did not come so far.
        refused: why the driver could not be bound to the server at all.
        held: what is out of service because it has changed since it was approved.
        source: ``server``: it was run, without a network; ``pins``: what was approved of it was read.
    """

    spec: DriverSpec
    surface: ServerSurface
    judgement: Judgement
    pins: PinState
    refused: tuple[Finding, ...] = ()
    held: tuple[Finding, ...] = ()
    source: Literal["server", "pins"] = "server"

    @property
    def ok(self) -> bool:
        """Whether the driver would be admitted with every tool that it binds."""
        return not self.refused and not self.held and not self.judgement.blocking

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return everything that was noticed."""
        return (*self.refused, *self.held, *self.judgement.findings)

    @property
    def hidden(self) -> list[str]:
        """Names of tools that no contract binds."""
        return sorted(set(self.surface.tools) - {binding.tool_name for binding in self.spec.bindings})

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON (docs/schemas/vet.schema.json)."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "driver": {"id": self.spec.id, "version": self.spec.version, "file": self.spec.file},
            "source": self.source,
            "server": {
                "info": dict(self.surface.server_info),
                "era": self.surface.era,
                "protocol_version": self.surface.protocol_version,
                "offered": len(self.surface.tools),
                "hidden": self.hidden,
            },
            "pins": self.pins,
            "tools": [_tool(one) for one in self.judgement.tools],
            "findings": [_finding(one) for one in self.findings],
        }

    def to_text(self) -> Iterator[str]:
        """Yield the lines that a person reads; the caller makes them printable."""
        info: Mapping[str, Any] = self.surface.server_info
        how = "run without a network" if self.source == "server" else "as approved in driver.lock; nothing was run"
        yield f"{self.spec.id} {self.spec.version} ({self.spec.file})"
        yield f"server: {info.get('name', '?')} {info.get('version', '?')}, {self.surface.protocol_version}; {how}"
        width = max((len(_title(one)) for one in self.judgement.tools), default=0)
        for tool in self.judgement.tools:
            yield f"  {_title(tool):<{width}}  {_said(tool)}"
            yield from (f"      {finding}" for finding in tool.findings if finding.id != "VET-107")
        yield from (f"  {finding}" for finding in (*self.refused, *self.held, *self.judgement.others))
        if self.hidden:
            yield f"not bound, so invisible and not callable: {', '.join(self.hidden)}"
        yield f"pins: {self.pins} — {_PINS[self.pins]}"
        counts: Counter[str] = Counter(outcome(one) for one in self.judgement.tools)
        named = {"fits": "fit", "misfit": "do not fit", "undecided": "undecided", "hazard": "with hazards that block"}
        yield ", ".join([f"{counts[one]} {word}" for one, word in named.items() if counts[one]]) or "no tool was judged"


def outcome(tool: ToolJudgement) -> Outcome:
    """Return the one word for a tool: the first of what keeps it from being served."""
    sides = (tool.inputs, tool.outputs)
    if any(side.status == "refuted" for side in sides):
        return "misfit"
    if any(side.status == "undecided" for side in sides):
        return "undecided"
    return "hazard" if any(one.severity == "block" for one in tool.hazards) else "fits"


def _title(tool: ToolJudgement) -> str:
    return tool.name if tool.name == tool.server_name else f"{tool.name} ← {tool.server_name}"


def _said(tool: ToolJudgement) -> str:
    word = {"fits": "fits", "misfit": "does not fit", "undecided": "undecided", "hazard": "fits, and hides something"}
    late = "; results are checked when they arrive" if tool.outputs.status == "at call time" else ""
    return word[outcome(tool)] + late


def _tool(tool: ToolJudgement) -> dict[str, Any]:
    return {
        "name": tool.name,
        "server_name": tool.server_name,
        "outcome": outcome(tool),
        "inputs": {"status": tool.inputs.status, "witness": tool.inputs.witness},
        "outputs": {"status": tool.outputs.status, "witness": tool.outputs.witness},
        "hazards": sorted({one.id for one in tool.hazards}),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in Finding.__slots__}
