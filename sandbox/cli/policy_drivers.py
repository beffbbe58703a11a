"""What rules can know of drivers whose servers do not run: for `mcp-sandbox policy`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.cli import options
from sandbox.errors import PolicyError, Problem, UsageError
from sandbox.policy.cases import Case, read_cases
from sandbox.policy.hosts import parse_rules
from sandbox.policy.request import DriverFacts, ToolFacts
from sandbox.serve.decide import binding_facts, driver_facts
from sandbox.serve.guard import ToolGuard, UriGuard, facts_of
from sandbox.serve.paths import Checked, Roots
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules, egress_of
from sandbox.spec.frontmatter import FrontMatterError, parse
from sandbox.spec.load import load_driver
from sandbox.spec.model import DriverSpec

RULER = b"---\n"
"""Makes a front matter of a cases file, which is read by the same strict subset of YAML as manifests (ADR 0010)."""


@dataclass(slots=True)
class Drivers:
    """Reviewed drivers by id, and their tools by (driver, contract id)."""

    specs: dict[str, DriverSpec] = field(default_factory=dict)
    facts: dict[str, DriverFacts] = field(default_factory=dict)
    tools: dict[tuple[str, str], ToolFacts] = field(default_factory=dict)
    guards: dict[tuple[str, str], ToolGuard] = field(default_factory=dict)
    uris: dict[str, UriRules] = field(default_factory=dict)

    def add(self, spec: DriverSpec) -> None:
        """Add one driver."""
        self.specs[spec.id] = spec
        self.facts[spec.id] = driver_facts(spec)
        self.uris[spec.id] = declared_rules(spec)
        for binding in spec.bindings:
            key = (spec.id, binding.contract.id)
            self.tools[key] = binding_facts(binding, self.facts[spec.id])
            self.guards[key] = ToolGuard(binding, self.uris[spec.id])

    def now(self) -> float:
        """Return the time of a request that is explained: the present."""
        return time.time()

    def call_facts(self, tool: ToolFacts, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments as steps 6 and 7 pass them on, and the facts that they find in them.

        Raises:
            CallRefused: those steps refuse the call.
        """
        checked = self.guards[tool.driver.id, tool.name].check(arguments)
        return {"arguments": dict(checked), **facts_of(checked)}

    def resource(self, driver: str, uri: str) -> Checked:
        """Return a judged URI.

        Raises:
            CallRefused: step 7 refuses it.
        """
        return UriGuard(self.uris[driver]).inspect(uri)

    def need_tool(self, driver: str, name: str) -> ToolFacts:
        """Return a bound tool.

        Raises:
            UsageError: ``CLI-150``.
        """
        found = self.tools.get((driver, name))
        if found is None:
            known = ", ".join(sorted(tool for owner, tool in self.tools if owner == driver))
            raise UsageError("CLI-150", f"`{driver}` binds no tool `{name}`", f"use one of {known}")
        return found

    def need_prompt(self, driver: str, name: str) -> None:
        """Raise ``CLI-150`` unless a prompt is declared."""
        declared = [prompt.name for prompt in self.specs[driver].prompts]
        if name not in declared:
            known = ", ".join(declared) or "none: it declares no prompts"
            raise UsageError("CLI-150", f"`{driver}` declares no prompt `{name}`", f"use one of {known}")


def declared_rules(spec: DriverSpec) -> UriRules:
    """Return what paths and URIs are held to by the driver's own declarations, before an operator narrows them."""
    grants = (*spec.sandbox.fs.read, *spec.sandbox.fs.write)
    return UriRules(
        roots=Roots(grant.at for grant in grants),
        cwd="/",
        templates=tuple(Template(resource.uri_template) for resource in spec.resources),
        egress=egress_of(parse_rules(spec.egress)),
    )


def load_drivers(places: Iterable[Path]) -> Drivers:
    """Return reviewed drivers.

    Raises:
        SpecError: one is not valid.
    """
    drivers = Drivers()
    for place in places:
        drivers.add(load_driver(place))
    return drivers


def load_cases(file: Path, places: list[Path]) -> tuple[Drivers, tuple[Case, ...]]:
    """Return the cases of a file and the drivers they are about.

    Args:
        file: the cases.
        places: drivers of the command line; without any, those that the file lists under ``drivers``, relative to it.

    Raises:
        UsageError: ``CLI-011``, it cannot be read.
        PolicyError: ``POL-010``, it is no list of cases.
        SpecError: a driver is not valid.
    """
    document = _yaml(file)
    listed = document.pop("drivers", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _wrong(file, "`drivers` is no list of paths")
    drivers = load_drivers(places or [file.parent / one for one in listed])

    def tool(driver: str, name: str) -> ToolFacts | None:
        return drivers.tools.get((driver, name))

    return drivers, read_cases(document, str(file), drivers.facts.get, tool, drivers.call_facts)


def _yaml(file: Path) -> dict[str, Any]:
    data = options.read_file(file)
    try:
        document = parse(RULER + data + (b"" if data.endswith(b"\n") else b"\n") + RULER)
    except FrontMatterError as error:
        raise _wrong(file, str(error), error.faults[0].line - 1) from None
    if document.faults:
        raise _wrong(file, document.faults[0].message, document.faults[0].line - 1)
    return document.values


def _wrong(file: Path, message: str, line: int = 0) -> PolicyError:
    return PolicyError((Problem("POL-010", str(file), line, "", message, mend="see docs/policies.md, Cases"),))
