"""A :class:`SandboxPlan`: everything that a launch needs to know, decided, immutable and digestible.

Nothing is decided while launching. The plan is engine-neutral (design §8): it says what the server may do, and a
backend's ``translate`` says how its engine is asked for that. Afterwards the running container is read back against it.

Plain frozen dataclasses rather than pydantic models: they are made only by ``derive`` from validated values, and a
start must not wait for imports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox import jsontext
from sandbox.limits import CALL_TIMEOUT
from sandbox.policy.destinations import EgressRule as EgressRule  # noqa: PLC0414 - a value of plans, exported


# --- facts about this host, gathered by launch, decided upon by plan
@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the container engine and kernel offer.

    Attributes:
        kind: ``docker`` or ``podman``.
        runtimes: OCI runtime names the engine knows; ``default_runtime`` is one of them.
        cgroup_version: ``1`` or ``2``.
        hard_nofile: host's hard RLIMIT_NOFILE, an upper bound without CAP_SYS_RESOURCE.
        missing: machine-readable names of controls this host cannot enforce (``memory``, ``pids``, ``cpu``,
        ``seccomp``).
    """

    kind: str
    version: str
    api_version: str
    runtimes: tuple[str, ...]
    default_runtime: str
    runc_version: str = ""
    cgroup_version: int = 2
    arch: str = "amd64"
    kernel: str = ""
    seccomp: bool = True
    cpus: int = 1
    memory_bytes: int = 0
    hard_nofile: int = 1024 * 1024
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """An image that is present in the engine.

    Attributes:
        id: ``sha256:…`` of its configuration: content-addressed, what is run.
        named: what the driver or the installer called it.
        argv: program and leading arguments that start the server; the driver's ``args`` follow.
        env: environment from the image, ``PATH`` above all.
        declared: what the image's own configuration asks for and does not get (``User``, ``Volumes``, ``Healthcheck``
        …).
    """

    id: str
    named: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    declared: Mapping[str, Any] = field(default_factory=dict)
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class PathFacts:
    """A host path that a driver wants mounted, after resolving links.

    Attributes:
        asked: as written, made absolute.
        real: after resolving every link; what is mounted.
        exists: whether it does.
        kind: ``dir``, ``file`` or ``other`` (socket, device, fifo).
    """

    asked: str
    real: str
    exists: bool
    kind: Literal["dir", "file", "other"]
    mounts_below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything ``derive`` needs to know about this host; it asks nothing itself.

    Attributes:
        paths: declared host path, as written → facts; :func:`sandbox.plan.needs.needs` says which.
        home: home directory of the person who runs this, for the ceiling's ``~``.
        engine_paths: sockets and data directories of container engines, never mountable.
        passed_env: values of host variables that the driver may pass, present ones only.
        secrets: slugs that a resolver knows; never their values.
        seccomp_profiles: name → ``sha256:…`` of the profiles that are installed.
        egress_available: an egress broker can enforce ``network.egress`` here.
        remote_available: remote servers can be reached through it.
        caller: ``uid:gid`` of whoever starts the server; empty for root.
        transports: how a local server's bytes can be carried here.
        own_paths: mcp-sandbox's own files (package, policies, audit trail), real; never writable from a sandbox.
        private_paths: those among them that hold keys and logins, never readable from a sandbox either.
        ca_bundle: real path of the host's CA bundle, empty when there is none.
        disk_free_bytes: free space for images and volumes; ``None`` when unknown.
    """

    engine: EngineFacts
    image: ImageFacts | None = None
    paths: Mapping[str, PathFacts] = field(default_factory=dict)
    home: str = "/root"
    engine_paths: tuple[str, ...] = ()
    passed_env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    seccomp_profiles: Mapping[str, str] = field(default_factory=dict)
    egress_available: bool = False
    remote_available: bool = False
    transports: tuple[str, ...] = ("stdio",)
    caller: str = ""
    own_paths: tuple[str, ...] = ()
    private_paths: tuple[str, ...] = ()
    ca_bundle: str = ""
    disk_free_bytes: int | None = None


# --- the plan
@dataclass(frozen=True, slots=True)
class Mount:
    """A bind of a resolved host path; never recursive, private propagation."""

    source: str
    target: str
    writable: bool


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """A memory file system; always nosuid and nodev."""

    target: str
    size_bytes: int
    inodes: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One variable: a value, or the slug of a secret that is resolved at launch and never stored.

    ``origin`` says whose it is. Values from the host's environment stand in the plan, and not in its JSON form.
    """

    name: str
    value: str = ""
    secret: str = ""
    origin: Literal["plan", "image", "driver", "host"] = "plan"


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """``none``: no interface but lo, nothing listens. ``broker``: what the egress broker serves, and nothing else.

    ``remote``: there is no namespace; the supervisor itself dials the server, under the same rules and address floor.
    """

    mode: Literal["none", "broker", "remote"] = "none"
    rules: tuple[EgressRule, ...] = ()
    allowed_private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """A header field of requests to a remote server: a value, and after it a secret by its slug (``Bearer …``)."""

    name: str
    value: str = ""
    secret: str = ""


@dataclass(frozen=True, slots=True)
class OAuthPlan:
    """How a token for a remote server is got (``server.auth``, MCP authorization).

    Attributes:
        grant: ``authorization_code``: somebody logs in; ``client_credentials``: a machine has an id and a secret.
        resource: what tokens are asked for (RFC 8707): the server's URL, or the wider one that the driver names.
        issuer: the only authorization server that is taken; empty: the one that the server names.
        scopes: all that is asked for; empty: what a person confirms when logging in.
        client_id: as written; empty with a slug in ``client_id_secret``, or to be registered.
        client_secret: slug, never a value.
    """

    grant: Literal["authorization_code", "client_credentials"]
    resource: str
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    client_id: str = ""
    client_id_secret: str = ""
    client_secret: str = ""


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret by its slug, and the path inside at which the server finds it: a read-only file on tmpfs."""

    secret: str
    target: str


@dataclass(frozen=True, slots=True)
class Substitute:
    """A secret of which the server sees a placeholder; the broker puts the value into requests to these hosts."""

    secret: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """Hard bounds. Sizes in bytes, times in seconds; swap is off."""

    memory_bytes: int
    cpus: float
    pids: int
    nofile: int
    fsize_bytes: int
    lifetime: float
    core_bytes: int = 0
    call_timeout: float = CALL_TIMEOUT


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a field of the plan has its value, and from which file and line (or ``baseline``) that comes."""

    field: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """What one server will be able to do.

    Attributes:
        driver_digest: digest of the reviewed files that this plan was made from.
        policy_digest: digest of the operator's policy file.
        seccomp: name of the profile under ``policies/seccomp`` and its digest.
        argv: complete argument vector; the image's ENTRYPOINT and CMD are not used.
        transport: how bytes reach the server; ``port`` is its TCP port on loopback for ``http`` and ``sse``.
        remote_url: only for ``kind: remote``; then there is no container, and what concerns one is empty.
        headers: sent to the origin of ``remote_url`` only.
        auth: how tokens for ``remote_url`` are got; they go to its origin only.
        authorities: PEM files of the operator's certificate authorities, trusted beside the host's.
        reasons: explanation of every field, not part of the digest.
    """

    driver_id: str
    driver_version: str
    driver_digest: str
    policy_digest: str
    server_kind: Literal["binary", "npm", "docker", "remote"]
    image_id: str
    image_named: str
    argv: tuple[str, ...]
    workdir: str
    user: str
    env: tuple[EnvEntry, ...]
    mounts: tuple[Mount, ...]
    tmpfs: tuple[Tmpfs, ...]
    network: NetworkPlan
    limits: LimitPlan
    runtime: str
    seccomp: str
    seccomp_digest: str
    masked_paths: tuple[str, ...]
    readonly_paths: tuple[str, ...]
    hostname: str = "sandbox"
    init: bool = True
    transport: Literal["stdio", "sse", "http"] = "stdio"
    port: int = 0
    remote_url: str = ""
    headers: tuple[HeaderEntry, ...] = ()
    auth: OAuthPlan | None = None
    authorities: tuple[str, ...] = ()
    secret_files: tuple[SecretFile, ...] = ()
    substitutes: tuple[Substitute, ...] = ()
    unsafe: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()

    def secrets(self) -> tuple[str, ...]:
        """Return the slugs of every secret that is handed over in any way."""
        named = [entry.secret for entry in (*self.env, *self.headers, *self.secret_files, *self.substitutes)]  # type: ignore[attr-defined]
        auth = (self.auth.client_id_secret, self.auth.client_secret) if self.auth is not None else ()
        return tuple(dict.fromkeys(slug for slug in (*named, *auth) if slug))

    def to_json(self) -> dict[str, Any]:
        """Return the stable JSON form (schema: ``docs/schemas/plan.schema.json``), reasons included.

        Values of host variables are left out: plans are pasted into reviews, a person's environment is not.
        """
        body = _plain(self)
        for entry in body["env"]:
            if entry["origin"] == "host":
                del entry["value"]
        return {"version": 1, "digest": self.digest(), **body}

    def digest(self) -> str:
        """Return ``sha256:…`` over everything but the reasons; independent of key order."""
        body = _plain(self)
        del body["reasons"]
        if self.auth is None:
            del body["auth"]  # plans without it keep the digest that they had before there was any
        return jsontext.digest(body)


def _plain(value: Any) -> Any:
    """Return a dataclass as JSON values, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
