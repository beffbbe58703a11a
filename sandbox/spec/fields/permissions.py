"""The ``sandbox``, ``network`` and ``limits`` blocks: AIP-29 §sandbox, AIP-36 and AIP-17, with our additions marked.

AIP-30 has neither ``sandbox`` nor ``limits`` (B0-2); both are read here because AIP-32 applies the "CLI-style sandbox"
to MCP servers and nothing else says what a server may do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sandbox.spec.fields.text import PlainWord, Word
from sandbox.spec.shape import Closed

Amount = Annotated[int, Field(ge=1, le=2**31)]
Entries = Annotated[list[Any], Field(max_length=1000)]


class Network(Closed):
    """``network``, at the top level and under ``sandbox``."""

    egress: Annotated[list[Word], Field(max_length=1000)] = Field(default_factory=list)
    ingress: list[Word] = Field(default_factory=list)


class GrantBlock(Closed):
    """A ``sandbox.fs`` entry in its explicit form; ours."""

    path: PlainWord
    at: PlainWord


class Fs(Closed):
    """``sandbox.fs``; entries are text or :class:`GrantBlock`."""

    read: Entries = Field(default_factory=list)
    write: Entries = Field(default_factory=list)
    deny: Annotated[list[PlainWord], Field(max_length=1000)] = Field(default_factory=list)


class Exec(Closed):
    """``sandbox.exec``."""

    allow: bool
    spawn: list[PlainWord] = Field(default_factory=list)


class SecretState(Closed):
    """AIP-36 ``env.auth.state``."""

    env: list[Word] = Field(default_factory=list)


class SecretEnv(Closed):
    """AIP-36 ``env.auth``."""

    ref: PlainWord | None = None
    state: SecretState = Field(default={}, validate_default=True)


class Env(Closed):
    """``sandbox.env``: ``pass`` and ``set`` of AIP-29, ``passthrough`` and ``auth`` of AIP-36."""

    passed: Annotated[list[Word], Field(alias="pass")] = Field(default_factory=list)
    set: dict[str, str] = Field(default_factory=dict)
    passthrough: list[Word] = Field(default_factory=list)
    auth: SecretEnv = Field(default={}, validate_default=True)


class Tty(Closed):
    """``sandbox.tty``."""

    required: bool = False


class MountFile(Closed):
    """AIP-36 mount source that is a path."""

    file: PlainWord


class MountBlock(Closed):
    """AIP-36 ``mounts[]``; ``source`` is looked at in :mod:`sandbox.spec.permissions`."""

    source: Any
    at: PlainWord
    mode: Literal["read-write", "read-only"] | None = None


class Sandbox(Closed):
    """The ``sandbox`` block: AIP-29, what AIP-36 says beyond it, and ours (``runtime``, ``trust_host_ca``)."""

    network: Network | None = None
    fs: Fs = Field(default={}, validate_default=True)
    exec: Exec | None = None
    env: Env = Field(default={}, validate_default=True)
    tty: Tty = Field(default={}, validate_default=True)
    runtime: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")] | None = None
    trust_host_ca: bool = False
    provider: Word | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    mounts: Annotated[list[MountBlock], Field(max_length=1000)] = Field(default_factory=list)
    identity: Any = None
    policy: Any = None
    lifecycle: dict[str, Any] = Field(default_factory=dict)
    read_only: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)


class SharedLimits(Closed):
    """Limits of AIP-17 ``runner.limits`` and AIP-36 ``sandbox.limits``."""

    memory_mb: Amount | None = None
    timeout_ms: Amount | None = None
    cpu_ms: Amount | None = None


class OurLimits(SharedLimits):
    """The ``limits`` block: the same and ours."""

    cpus: Annotated[float, Field(gt=0, le=4096)] | None = None
    pids: Amount | None = None
    nofile: Amount | None = None
    fsize_mb: Amount | None = None
    tmp_mb: Amount | None = None
    lifetime_s: Annotated[float, Field(gt=0, le=366 * 24 * 3600)] | None = None
