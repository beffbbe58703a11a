"""Fields of TOOL.md (AIP-14), held against its schema in the tests with traps T0-1 … T0-3 mended."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from sandbox.spec.fields.text import Description, Name, Version, Word, unique
from sandbox.spec.fields.universal import DriverId
from sandbox.spec.shape import Closed

MOVED: Final = ("code", "run", "runner", "secrets", "network", "entry")
"""Fields that TOOL.md had before AIP-30 and that now belong to the driver."""

DriverKind = Literal["cli", "http", "mcp", "sdk", "builtin"]
ToolTag = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)]


class ToolRequires(Closed):
    """What the caller must be allowed; a driver may not take away from it."""

    network: list[Word] = Field(default_factory=list)
    secrets: list[Word] = Field(default_factory=list)
    tools: list[Word] = Field(default_factory=list)


class ToolRetry(Closed):
    """The contract's retry policy."""

    max_attempts: Annotated[int, Field(ge=1, le=20)]
    backoff: Literal["fixed", "exponential"]
    initial_ms: Annotated[int, Field(ge=0, le=2**31)] | None = None


class DriverConstraints(Closed):
    """Which kinds of driver the contract admits."""

    forbid: list[DriverKind] = Field(default_factory=list)
    require_kind: list[DriverKind] = Field(default_factory=list)


class ToolExample(Closed):
    """An example that every driver must satisfy."""

    name: str
    input: Any
    output: Any = None
    note: str | None = None


class Tool(Closed):
    """The front matter of TOOL.md."""

    nullable: ClassVar[frozenset[str]] = frozenset({"default_implementation", "implements"})

    name: Name
    id: Annotated[str, Field(min_length=2, max_length=80, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")]
    description: Description
    version: Version
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    idempotent: bool = False
    mutates: list[Annotated[str, Field(max_length=512, pattern=r"^[a-z]+:[^\s]+$")]] = Field(default_factory=list)
    requires: ToolRequires = Field(default={}, validate_default=True)
    approval: (
        Annotated[str, Field(max_length=256, pattern=r"^(auto|always|on-mutate|policy:[A-Za-z0-9_./-]+)$")] | None
    ) = None
    risk_level: Annotated[int, Field(ge=0, le=3)] = 0
    cost_class: Literal["trivial", "metered", "expensive"] = "trivial"
    timeout_ms: Annotated[int, Field(ge=1, le=7 * 24 * 3600 * 1000)] = 30_000
    retry: ToolRetry | None = None
    default_implementation: DriverId | None = None
    implements: str | dict[str, Any] | None = None
    driver_constraints: DriverConstraints = Field(default={}, validate_default=True)
    tags: Annotated[list[ToolTag], AfterValidator(unique)] = Field(default_factory=list)
    examples: list[ToolExample] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
