"""What a driver folder says, as frozen values (AIP-30 DRIVER, AIP-32 MCP, AIP-14 TOOL, AIP-19 SECRETS).

These are the values that later stages read. Where each one came from is kept beside them (:class:`Origin`), so that a
message of any later stage can name file and line.

Fields that AIP-30 does not have and that we read (B0-2): ``sandbox`` in the shape of AIP-29 §sandbox with two additions
(``fs`` entries may be ``{path, at}``; ``runtime``), and ``limits`` (AIP-36) beside ``runner.limits`` (AIP-17).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frozen value, made by keywords; the loader has checked what it is made from (:mod:`sandbox.spec.fields`).

    A ``msgspec.Struct``: its classes cost nothing to define, which every start pays, and a value that was written as
    JSON is checked against the declared types when it is read again (ADR 0016).
    """

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other members."""
        return msgspec.structs.replace(self, **update)


class Origin(Value, frozen=True, kw_only=True):
    """Where a value stands: file as the user gave it, 1-based line (0: the whole file)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}" if self.line else self.file


# --- references to secrets (AIP-19, AIP-32 §server)
_SECRET_REFERENCE: Final = re.compile(r"\$\{secrets\.([a-z][a-z0-9/-]*)\}")


def secret_slug(value: str) -> str | None:
    """Return the slug when an environment value or header of a loaded driver is ``${secrets.<slug>}``, else ``None``.

    The loader has resolved the name an author wrote to a slug of SECRETS.md, and refused every other use of ``${``, so
    a value is either one whole reference or plain text.
    """
    match = _SECRET_REFERENCE.fullmatch(value)
    return match.group(1) if match else None


# --- server (AIP-32 §server)
class BinaryServer(Value, frozen=True, kw_only=True, tag="binary"):
    """A program on the host, copied into an image layer; or, with ``install``, one that the install step provides.

    Attributes:
        path: absolute, ``~/…`` or ``./…`` below the driver folder; with ``install`` it may be a bare program name.
        env: literal values, or ``${secrets.<slug>}``: see :func:`secret_slug`.
        port: TCP port on loopback, only for the transports ``http`` and ``sse``; 0 for ``stdio``.
        endpoint: URL path on that port, such as ``/mcp``; empty for ``stdio``.
    """

    kind: Literal["binary"]
    path: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    port: int = 0
    endpoint: str = ""


class NpmServer(Value, frozen=True, kw_only=True, tag="npm"):
    """A package of the npm registry, optionally ``name@version``; its ``bin`` is run. Other fields as in ``binary``."""

    kind: Literal["npm"]
    package: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    port: int = 0
    endpoint: str = ""


class DockerServer(Value, frozen=True, kw_only=True, tag="docker"):
    """A container image; ``args`` replace its command. Other fields as in ``binary``."""

    kind: Literal["docker"]
    image: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    port: int = 0
    endpoint: str = ""


class RemoteServer(Value, frozen=True, kw_only=True, tag="remote"):
    """A server that somebody else runs, reached through the egress broker."""

    kind: Literal["remote"]
    url: str
    auth: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}


Server: TypeAlias = BinaryServer | NpmServer | DockerServer | RemoteServer


# --- sandbox and limits
class FsGrant(Value, frozen=True, kw_only=True):
    """One directory or file that the server may see.

    Attributes:
        path: host path, absolute, ``~/…`` or relative to the driver folder.
        at: absolute path inside the sandbox; defaults to ``path`` when that is absolute.
    """

    path: str
    at: str


class FsRules(Value, frozen=True, kw_only=True):
    """AIP-29 ``sandbox.fs``: ``read`` and ``write`` grant, ``deny`` takes away below a grant.

    ``deny`` holds host paths, absolute or ``~/…``, each meant with everything below it; without glob characters.
    """

    read: tuple[FsGrant, ...] = ()
    write: tuple[FsGrant, ...] = ()
    deny: tuple[str, ...] = ()


class ExecRules(Value, frozen=True, kw_only=True):
    """AIP-29 ``sandbox.exec``: whether the server may start further programs, and which."""

    allow: bool = True
    spawn: tuple[str, ...] = ()


class EnvRules(Value, frozen=True, kw_only=True):
    """AIP-29 ``sandbox.env``: names passed from the host, and fixed values."""

    passed: tuple[str, ...] = ()
    fixed: Mapping[str, str] = {}


class SandboxRules(Value, frozen=True, kw_only=True):
    """The ``sandbox`` block. ``runtime`` names an OCI runtime (``runc``, ``runsc``); empty is the engine's default."""

    fs: FsRules = FsRules()
    exec: ExecRules = ExecRules()
    env: EnvRules = EnvRules()
    runtime: str = ""
    trust_host_ca: bool = False


class Limits(Value, frozen=True, kw_only=True):
    """What the driver asks for; ``None`` takes the default. Sizes in bytes, times in seconds."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    nofile: int | None = None
    fsize_bytes: int | None = None
    tmp_bytes: int | None = None
    lifetime: float | None = None
    call_timeout: float | None = None


# --- contracts
class ToolContract(Value, frozen=True, kw_only=True):
    """A TOOL.md (AIP-14): what is exposed to callers.

    Attributes:
        id: exposed tool name.
        inputs: JSON Schema 2020-12 of the arguments.
        outputs: JSON Schema 2020-12 of the result.
        timeout_ms: hard ceiling of one call, milliseconds.
        digest: ``sha256:…`` of the file's bytes.
        lines: dotted field path below ``inputs`` and ``outputs`` → 1-based line, for messages of later stages.
    """

    id: str
    name: str
    description: str
    version: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    idempotent: bool = False
    mutates: tuple[str, ...] = ()
    requires: Mapping[str, tuple[str, ...]] = {}
    approval: str = "auto"
    risk_level: int = 0
    cost_class: str = "trivial"
    default_implementation: str = ""
    retry: Mapping[str, Any] = {}
    timeout_ms: int = 30_000
    tags: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = {}
    origin: Origin
    digest: str
    lines: Mapping[str, int] = {}

    def where(self, field: str) -> Origin:
        """Return the place of a field, such as ``inputs.properties.head``, or of its nearest written parent."""
        return _nearest(self.lines, field, self.origin)


class Binding(Value, frozen=True, kw_only=True):
    """One ``implements[]`` entry with its contract loaded.

    Attributes:
        tool_name: name in the server's ``tools/list``.
        argument_mapping: contract input key → server argument name; missing keys keep their name.
        result_extract: JSONPath over ``structuredContent``, else over the first text parsed as JSON; ``$`` is identity.
        context: server argument name → tenant or user fact (``tenant.id``, ``user.sub``), injected per call.
        timeout_ms: the lower of contract and driver, milliseconds.
    """

    contract: ToolContract
    version_range: str
    tool_name: str
    argument_mapping: Mapping[str, str] = {}
    result_extract: str = "$"
    context: Mapping[str, str] = {}
    drop_inputs: tuple[str, ...] = ()
    drop_outputs: tuple[str, ...] = ()
    timeout_ms: int = 30_000
    cost_override: Mapping[str, Any] = {}
    retry_override: Mapping[str, Any] = {}
    origin: Origin


class PromptDecl(Value, frozen=True, kw_only=True):
    """One declared prompt.

    Attributes:
        skill: ``name`` of the SKILL.md (AIP-3) that ``skill_ref`` leads to, empty when there is none.
    """

    name: str
    description: str = ""
    integrate_as: Literal["skill_block", "raw"]
    skill_ref: str = ""
    skill: str = ""


class ResourceDecl(Value, frozen=True, kw_only=True):
    """One declared resource template (RFC 6570)."""

    uri_template: str
    description: str = ""
    integrate_as: Literal["ref_kind", "raw"]
    ref_kind_id: str = ""


class InstallStep(Value, frozen=True, kw_only=True):
    """One ``install[]`` entry (AIP-29 §install): ``method`` and its parameters.

    AIP-29 lists alternatives in order of preference; only methods that this supervisor carries out are here.

    Attributes:
        method: ``npm``, ``pip``, ``apt``, ``download`` or ``vendored``.
        params: ``package`` (npm with ``global``, pip with ``user``, apt); ``url``, ``extract_bin``, ``verify_sha256``
            (download); ``path`` relative to the driver folder (vendored).
    """

    method: str
    params: Mapping[str, Any] = {}
    origin: Origin


class VersionCheck(Value, frozen=True, kw_only=True):
    """AIP-30 ``version_check``: run ``cmd`` in the sandbox, take group 1 of ``parse``, hold it against ``range``.

    ``sandbox.spec.versions.accepts`` holds an output against it.

    Attributes:
        cmd: as written, never given to a shell.
        argv: ``cmd`` in words.
        of_server: whether ``argv`` are arguments of the server's own program (``npx <package> …`` and
            ``docker run … <image> …`` are read so), rather than a program of their own.
    """

    cmd: str
    parse: str
    range: str
    timeout_ms: int = 5000
    argv: tuple[str, ...] = ()
    of_server: bool = False


class ConnectionOptions(Value, frozen=True, kw_only=True):
    """AIP-32 ``connection_options``; time in milliseconds."""

    timeout_ms: int = 60_000
    max_retries: int = 0
    keepalive: bool = False


class Secret(Value, frozen=True, kw_only=True):
    """One slug of SECRETS.md (AIP-19); never a value.

    Attributes:
        env_names: names under which ``${secrets.NAME}`` finds it: from ``exposures``, ``metadata.bindings.env`` and the
            convention ``STRIPE_API_KEY`` for ``stripe-api-key``.
    """

    slug: str
    name: str
    description: str
    kind: str = "opaque"
    backend: str = ""
    exposures: tuple[Mapping[str, Any], ...] = ()
    env_names: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    origin: Origin


class DriverSpec(Value, frozen=True, kw_only=True):
    """A driver folder, whole.

    Attributes:
        folder: absolute path of the folder that holds DRIVER.md.
        file: DRIVER.md as the user named it.
        digest: ``sha256:…`` over the folder's manifests (DRIVER.md, every bound TOOL.md, SECRETS.md).
        egress: AIP-30 ``network.egress`` as written, each ``[scheme://]host[:port]`` or ``*.suffix[:port]``; ``policy``
            makes the canonical form of it. Empty means no network.
        lines: dotted field path → 1-based line in DRIVER.md, for messages of later stages.
        warnings: problems that do not refuse.
    """

    folder: str
    file: str
    digest: str
    id: str
    name: str
    description: str
    version: str
    server: Server
    transport: Literal["stdio", "sse", "http"]
    protocol_version: str = ""
    install: tuple[InstallStep, ...] = ()
    version_check: VersionCheck | None = None
    egress: tuple[str, ...] = ()
    ingress: tuple[str, ...] = ()
    region: tuple[str, ...] = ("global",)
    policy_tags: tuple[str, ...] = ()
    sandbox: SandboxRules = SandboxRules()
    limits: Limits = Limits()
    bindings: tuple[Binding, ...]
    prompts: tuple[PromptDecl, ...] = ()
    resources: tuple[ResourceDecl, ...] = ()
    connection: ConnectionOptions = ConnectionOptions()
    secrets: tuple[Secret, ...] = ()
    auth: Mapping[str, Any] = {}
    cost_override: Mapping[str, Any] = {}
    retry_override: Mapping[str, Any] = {}
    health_check: Mapping[str, Any] = {}
    requires: Mapping[str, Any] = {}
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    lines: Mapping[str, int] = {}
    warnings: tuple[Any, ...] = ()

    def where(self, field: str) -> Origin:
        """Return the place of a field, such as ``sandbox.fs.read[0]``, or of its nearest written parent."""
        return _nearest(self.lines, field, Origin(file=self.file, line=1))


def _nearest(lines: Mapping[str, int], field: str, whole: Origin) -> Origin:
    """Return the place of a field or of its nearest parent that is written, else of the whole file."""
    path = field
    while path:
        if path in lines:
            return Origin(file=whole.file, line=lines[path])
        path = path[: path.rindex("[")] if path.endswith("]") and "[" in path else path.rpartition(".")[0]
    return whole
