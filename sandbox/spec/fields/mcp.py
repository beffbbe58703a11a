"""Fields of an MCP driver (AIP-32), held against its schema in the tests; our additions are marked so."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sandbox.spec.fields.text import ImageReference, Line, NpmPackage, Plain, PlainWord, ServerUrl, Word
from sandbox.spec.fields.universal import Milliseconds
from sandbox.spec.shape import Closed

MAX_ARGUMENTS: Final = 256
"""Arguments of one server; real ones have at most ten."""

FIRST_PORT: Final = 1024
"""Ports below it need a capability that no sandbox has."""

MAX_SCOPES: Final = 64
"""Scopes of one login; a consent page shows them all to a person."""

OAuthScope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,256}$")]
"""RFC 6749 §3.3."""

Arguments = Annotated[list[Plain], Field(max_length=MAX_ARGUMENTS)]
Port = Annotated[int, Field(ge=FIRST_PORT, le=65535)]
Endpoint = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._~/-]{0,255}$")]


class BinaryBlock(Closed):
    """``kind: binary``; ``port`` and ``endpoint`` are ours."""

    kind: Literal["binary"]
    path: PlainWord
    args: Arguments = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    port: Port | None = None
    endpoint: Endpoint | None = None


class NpmBlock(Closed):
    """``kind: npm``; ``port`` and ``endpoint`` are ours."""

    kind: Literal["npm"]
    package: NpmPackage
    args: Arguments = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    port: Port | None = None
    endpoint: Endpoint | None = None


class DockerBlock(Closed):
    """``kind: docker``; ``port`` and ``endpoint`` are ours."""

    kind: Literal["docker"]
    image: ImageReference
    args: Arguments = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    port: Port | None = None
    endpoint: Endpoint | None = None


class OAuthBlock(Closed):
    """``server.auth`` with ``type: oauth2``: how a token is got; ours, since AIP-32 leaves the shape open (T0-10)."""

    type: Literal["oauth2"]
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    issuer: ServerUrl | None = None
    resource: ServerUrl | None = None
    scopes: Annotated[list[OAuthScope], Field(max_length=MAX_SCOPES)] = Field(default_factory=list)
    client_id: Line | None = None
    client_secret: Line | None = None


class RemoteBlock(Closed):
    """``kind: remote``; ``auth`` stands in AIP-32's signature only (T0-10), ``headers`` are ours."""

    kind: Literal["remote"]
    url: ServerUrl
    auth: dict[str, Any] | None = None
    headers: dict[str, str] = Field(default_factory=dict)


SERVERS: Final[dict[str, type[Closed]]] = {
    "binary": BinaryBlock,
    "npm": NpmBlock,
    "docker": DockerBlock,
    "remote": RemoteBlock,
}
"""Server shapes by ``kind``."""


class PromptBlock(Closed):
    """One ``prompts[]`` entry."""

    name: Word
    description: str = ""
    integrate_as: Literal["skill_block", "raw"]
    skill_ref: Line = ""


class ResourceBlock(Closed):
    """One ``resources[]`` entry."""

    uri_template: Word
    description: str = ""
    integrate_as: Literal["ref_kind", "raw"]
    ref_kind_id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = None


class ConnectionBlock(Closed):
    """``connection_options``."""

    timeout_ms: Milliseconds = 60_000
    max_retries: Annotated[int, Field(ge=0, le=10)] = 0
    keepalive: bool = False


class Mcp(Closed):
    """The fields of AIP-32 that are not read in a module of their own; pass two of S0-62."""

    transport: Literal["stdio", "sse", "http"]
    protocol_version: Line = ""
    prompts: Annotated[list[PromptBlock], Field(max_length=1000)] = Field(default_factory=list)
    resources: Annotated[list[ResourceBlock], Field(max_length=1000)] = Field(default_factory=list)
    connection_options: ConnectionBlock = Field(default={}, validate_default=True)
    mcp_tools: dict[str, str] = Field(default_factory=dict)


class PerTool(Closed):
    """``implements[].metadata.mcp``; ``context`` is ours."""

    tool_name: Annotated[Word, Field(max_length=256)]
    argument_mapping: dict[str, Word] = Field(default_factory=dict)
    result_extract: Word = "$"
    context: dict[str, Word] = Field(default_factory=dict)
