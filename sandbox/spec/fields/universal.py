"""Fields of every driver (AIP-30 DRIVER, AIP-17 RUNNER, AIP-29 install), held against their schemas in the tests."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sandbox.spec.fields.text import (
    AptPackage,
    Description,
    Duration,
    HttpsUrl,
    Line,
    Name,
    NpmPackage,
    PipPackage,
    PlainWord,
    Range,
    Sha256,
    Tags,
    Url,
    Version,
    Word,
)
from sandbox.spec.shape import Closed

KINDS: Final = ("cli", "http", "mcp", "sdk", "builtin")
"""AIP-30 ``kind``; this supervisor runs ``mcp``."""

Milliseconds = Annotated[int, Field(ge=100, le=7 * 24 * 3600 * 1000)]
"""A time-out as AIP-30 bounds it from below; from above a week, so that no sum overflows a timer."""

Count = Annotated[int, Field(ge=0, le=2**31)]
DriverId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,79}$")]


# --- implements[] -----------------------------------------------------------------------------------------------------
class CostOverride(Closed):
    """What a call costs; the resolver ranks by it (B0-5)."""

    cost_class: Literal["trivial", "metered", "expensive"] | None = None
    cost_units_per_call: Annotated[float, Field(ge=0)] | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None


class RetryOverride(Closed):
    """How often a failed call is tried again."""

    max_attempts: Annotated[int, Field(ge=1, le=10)]
    backoff: Literal["fixed", "exponential"] | None = None
    initial_ms: Count | None = None


class SchemaNarrowing(Closed):
    """Optional contract members that this server does not offer."""

    drop_inputs: list[Word] = Field(default_factory=list)
    drop_outputs: list[Word] = Field(default_factory=list)


class ImplementsEntry(Closed):
    """One binding; ``mapping`` and ``metadata`` are read in :mod:`sandbox.spec.bindings`."""

    tool: PlainWord
    version: Range
    schema_narrowing: SchemaNarrowing = Field(default={}, validate_default=True)
    mapping: dict[str, Any] = Field(default_factory=dict)
    cost_override: CostOverride | None = None
    timeout_override_ms: Milliseconds | None = None
    retry_override: RetryOverride | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


# --- blocks -----------------------------------------------------------------------------------------------------------
class VersionCheckBlock(Closed):
    """How the installed version is found out."""

    cmd: Word
    parse: Word
    range: Range
    timeout_ms: Milliseconds = 5000


class AuthState(Closed):
    """Where a login is kept."""

    paths: list[Word] = Field(default_factory=list)
    env: list[Word] = Field(default_factory=list)


class HttpProbe(Closed):
    """A request whose answer says yes."""

    method: Literal["GET", "POST", "HEAD"]
    url: Url
    expect_status: Annotated[int, Field(ge=100, le=599)] | None = None


class CompletesWhen(Closed):
    """How a finished login is recognised."""

    cmd: Line | None = None
    exit_code: int | None = None
    http: HttpProbe | None = None


class Login(Closed):
    """An interactive login; kept, not carried out."""

    cmd: Line | None = None
    url: Url | None = None
    interactive: bool | None = None
    requires_callback_url: bool | None = None
    completes_when: CompletesWhen | None = None


class Refresh(Closed):
    """A periodic refresh; kept, not carried out."""

    cmd: Line | None = None
    url: Url | None = None
    every: Duration | None = None


class Expiry(Closed):
    """How an expired login is recognised."""

    detect: Line | None = None


class Auth(Closed):
    """AIP-30 ``auth``."""

    ref: PlainWord | None = None
    state: AuthState = Field(default={}, validate_default=True)
    login: Login | None = None
    refresh: Refresh | None = None
    expiry: Expiry | None = None


class HealthCheck(Closed):
    """AIP-30 ``health_check``; kept for the resolver."""

    method: Literal["ping", "exec", "http", "noop"]
    cmd: Line | None = None
    http: HttpProbe | None = None
    expect_exit: int | None = None
    every: Duration | None = None
    timeout_ms: Milliseconds = 5000


class Requires(Closed):
    """What the host must be."""

    os: list[Literal["darwin", "linux", "windows"]] = Field(default_factory=list)
    arch: list[Literal["x64", "arm64", "x86", "arm"]] = Field(default_factory=list)
    min_disk_mb: Count | None = None
    min_memory_mb: Count | None = None


class Universal(Closed):
    """The fields of AIP-30 that are not read in a module of their own; pass one of S0-62."""

    name: Name
    id: DriverId
    description: Description
    version: Version
    kind: Literal["cli", "http", "mcp", "sdk", "builtin"]
    implements: Annotated[list[Any], Field(min_length=1, max_length=1000)]
    install: Annotated[list[dict[str, Any]], Field(max_length=32)] = Field(default_factory=list)
    version_check: VersionCheckBlock | None = None
    auth: Auth = Field(default={}, validate_default=True)
    region: list[Word] = Field(default_factory=lambda: ["global"])
    policy_tags: Tags = Field(default_factory=list)
    cost_override: CostOverride | None = None
    timeout_override_ms: Milliseconds | None = None
    retry_override: RetryOverride | None = None
    health_check: HealthCheck | None = None
    requires: Requires = Field(default={}, validate_default=True)
    examples: list[dict[str, Any]] = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)


# --- install[] (AIP-29) -----------------------------------------------------------------------------------------------
class NpmStep(Closed):
    """A package of the npm registry."""

    method: Literal["npm"]
    package: NpmPackage
    global_: Annotated[bool, Field(alias="global")] = False
    experimental: bool = False


class PipStep(Closed):
    """A package of the Python registry."""

    method: Literal["pip"]
    package: PipPackage
    user: bool = False
    experimental: bool = False


class AptStep(Closed):
    """A Debian package."""

    method: Literal["apt"]
    package: AptPackage
    experimental: bool = False


class DownloadStep(Closed):
    """An archive, of which one program is used; the digest is what makes it trustworthy."""

    method: Literal["download"]
    url: HttpsUrl
    extract_bin: PlainWord
    verify_sha256: Sha256
    experimental: bool = False


class VendoredStep(Closed):
    """A program that lies in the driver folder."""

    method: Literal["vendored"]
    path: PlainWord
    experimental: bool = False


STEPS: Final[dict[str, type[Closed]]] = {
    "npm": NpmStep,
    "pip": PipStep,
    "apt": AptStep,
    "download": DownloadStep,
    "vendored": VendoredStep,
}
"""Methods that are carried out, confined."""

REFUSED_STEPS: Final[dict[str, str]] = {
    "brew": "Homebrew installs outside the build container; use `apt`, or `download` with `verify_sha256`",
    "dnf": "images are made from Debian packages; use `apt`",
    "pacman": "images are made from Debian packages; use `apt`",
    "choco": "servers run on Linux; use `apt`, or `download` with `verify_sha256`",
    "scoop": "servers run on Linux; use `apt`, or `download` with `verify_sha256`",
    "cargo": "it compiles unpinned sources; use `download` with `verify_sha256`, or `vendored`",
    "go": "it compiles unpinned sources; use `download` with `verify_sha256`, or `vendored`",
    "curl": "it runs a script from the network; use `download` with `verify_sha256`",
}
"""Methods of AIP-29 that are not, with the reason and what to write instead."""


# --- runner (AIP-17) --------------------------------------------------------------------------------------------------
class RunnerNeeds(Closed):
    """What the process needs beside the server."""

    language: Literal["node", "python", "multi"] | None = None
    native: list[Word] = Field(default_factory=list)
    npm: list[Word] = Field(default_factory=list)
    pip: list[Word] = Field(default_factory=list)


class Runner(Closed):
    """AIP-17 ``runner``; ``limits`` are read in :mod:`sandbox.spec.permissions`."""

    engine: Literal["subprocess", "sandbox", "in-process"] | None = None
    image: Word | None = None
    needs: RunnerNeeds = Field(default={}, validate_default=True)
    limits: dict[str, Any] = Field(default_factory=dict)
