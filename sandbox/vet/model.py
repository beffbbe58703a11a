"""What a server offers and what of it is exposed, as values shared by vet and serve."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandbox.spec.model import Binding, PromptDecl, ResourceDecl

Names = Literal["contract", "server"]
"""Under which names tools are exposed: their contract's id, or the server's own."""

Era = Literal["handshake", "stateless"]
"""``handshake``: 2024-11-05 … 2025-11-25, opened by ``initialize``. ``stateless``: 2026-07-28 and later."""


@dataclass(frozen=True, slots=True)
class ServerSurface:
    """Everything one server said it offers, every page of every list, as it said it.

    Attributes:
        client_capabilities: what was declared to it; a server may offer more to a more capable client.
        tools: tool definitions by name, members untouched.
        prompts: prompt definitions by name.
        resources: listed resources.
        resource_templates: listed resource templates.
    """

    era: Era
    protocol_version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str = ""
    client_capabilities: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resources: tuple[Mapping[str, Any], ...] = ()
    resource_templates: tuple[Mapping[str, Any], ...] = ()


class Verdicts(Protocol):
    """What judging gave before; keys are digests of everything that it depends on."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return what was recorded of an admission of the same, ``None`` when there was none."""

    def keep(self, key: str, recorded: Mapping[str, Any]) -> None:
        """Remember an admission; failing to is no error."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """How strictly a server is judged, and beside which others.

    Attributes:
        verdicts: earlier admissions, of which the same need not be proved again.
        unsafe_admit_undecided: admit tools whose fit to their contract cannot be decided; the default refuses them.
        neighbours: exposed tool names of every other loaded server, by driver id.
    """

    unsafe_admit_undecided: bool = False
    neighbours: Mapping[str, Collection[str]] = field(default_factory=dict)
    verdicts: Verdicts | None = None


@dataclass(frozen=True, slots=True)
class ExposedTool:
    """A tool that callers see.

    Attributes:
        name: what callers call: the contract's id, or the server's name with ``--names server``.
        definition: the MCP ``Tool`` object shown to callers; schemas are the contract's.
        server_name: name in the server's own ``tools/list``.
        server_definition: what the server said about it.
        binding: the driver's entry, with the contract.
    """

    name: str
    definition: Mapping[str, Any]
    server_name: str
    server_definition: Mapping[str, Any]
    binding: Binding


@dataclass(frozen=True, slots=True)
class Exposure:
    """What callers may see and use of one server; everything else is invisible and cannot be called.

    Attributes:
        held: exposed names of tools that the driver binds and that are out of service, with the reason in our words:
            invisible like all that is not exposed, and a call of one is told why.
        capabilities: of the server, as far as they were approved; ``None``: what it says.
    """

    tools: Mapping[str, ExposedTool]
    prompts: Mapping[str, PromptDecl] = field(default_factory=dict)
    resources: tuple[ResourceDecl, ...] = ()
    instructions: str = ""
    surface: ServerSurface | None = None
    held: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, Any] | None = None
