"""A driver, a host and the shipped ceiling for tests of plans, with single parts replaced."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from sandbox.limits import GIB
from sandbox.plan.derive import derive
from sandbox.plan.model import EngineFacts, HostFacts, ImageFacts, PathFacts, SandboxPlan
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_values import Ceiling
from sandbox.resources import shipped
from sandbox.spec.model import (
    Binding,
    DriverSpec,
    FsGrant,
    FsRules,
    Limits,
    NpmServer,
    Origin,
    SandboxRules,
    Secret,
    ToolContract,
)

HOME = "/home/ada"
FOLDER = "/home/ada/drivers/files-mcp"
ENGINE = EngineFacts(
    "docker", "20.10.24", "1.41", ("runc", "runsc"), "runc", cpus=4, memory_bytes=16 * GIB, hard_nofile=65536
)
IMAGE = ImageFacts(
    "sha256:" + "1" * 64, "files@1.0.0", ("/usr/bin/node", "/opt/server/index.js"), {"PATH": "/usr/local/bin:/usr/bin"}
)
PROFILES = {name: f"sha256:{name}" for name in ("nonet", "net", "nonet-nospawn", "net-nospawn")}


@functools.cache
def default() -> Ceiling:
    """Return the shipped ceiling."""
    return load_ceiling(shipped("policies", "default.toml").read_bytes(), "policies/default.toml")


@functools.cache
def strict() -> Ceiling:
    """Return the strict ceiling over the shipped one."""
    return load_ceiling(shipped("policies", "strict.toml").read_bytes(), "policies/strict.toml", default())


def contract(name: str = "read", timeout_ms: int = 30_000) -> Binding:
    """Return one bound tool."""
    origin = Origin(file=f"files-mcp/tools/{name}/TOOL.md", line=1)
    tool = ToolContract(
        id=name, name=name, description="", version="1.0.0", inputs={}, outputs={}, origin=origin, digest="sha256:0"
    )
    return Binding(contract=tool, version_range="^1", tool_name=name, timeout_ms=timeout_ms, origin=origin)


def driver(
    *, read: dict[str, str] | None = None, write: dict[str, str] | None = None, deny: tuple[str, ...] = (), **parts: Any
) -> DriverSpec:
    """Return a driver; ``read`` and ``write`` are host path → place inside, ``parts`` replace fields.

    ``limits`` may be a dict, and ``sandbox`` one of its further members.
    """
    files = FsRules(
        read=tuple(FsGrant(path=path, at=at) for path, at in (read or {}).items()),
        write=tuple(FsGrant(path=path, at=at) for path, at in (write or {}).items()),
        deny=deny,
    )
    fields: dict[str, Any] = {
        "folder": FOLDER,
        "file": "files-mcp/DRIVER.md",
        "digest": "sha256:" + "2" * 64,
        "id": "files-mcp",
        "name": "Files",
        "description": "Files.",
        "version": "1.0.0",
        "server": NpmServer(kind="npm", package="files@1.0.0"),
        "transport": "stdio",
        "bindings": (contract(),),
        "lines": {
            "server": 8,
            "network.egress": 20,
            "limits": 30,
            "limits.memory_mb": 31,
            "sandbox.fs.read[0]": 41,
            "sandbox.fs.write[0]": 42,
        },
        **parts,
    }
    fields["limits"] = Limits(**fields.get("limits", {}))
    fields["sandbox"] = SandboxRules(fs=files, **fields.get("sandbox", {}))
    return DriverSpec(**fields)


def secret(slug: str) -> Secret:
    """Return a declared secret."""
    return Secret(slug=slug, name=slug, description="", origin=Origin(file="files-mcp/SECRETS.md"))


def host(paths: dict[str, str | PathFacts] | None = None, **parts: Any) -> HostFacts:
    """Return facts of a host; ``paths`` are path as written → real path of a folder, or whole facts."""
    facts = {
        asked: real if isinstance(real, PathFacts) else PathFacts(absolute(asked), real, exists=True, kind="dir")
        for asked, real in (paths or {}).items()
    }
    fields = {"engine": ENGINE, "image": IMAGE, "paths": facts, "home": HOME, "seccomp_profiles": PROFILES, **parts}
    return HostFacts(**fields)


def engine(**parts: Any) -> EngineFacts:
    """Return the engine with parts replaced."""
    return dataclasses.replace(ENGINE, **parts)


def image(**parts: Any) -> ImageFacts:
    """Return the image with parts replaced."""
    return dataclasses.replace(IMAGE, **parts)


def absolute(path: str) -> str:
    """Return a path as written, made absolute."""
    if path.startswith("~"):
        return HOME + path[1:]
    return path if path.startswith("/") else f"{FOLDER}/{path.removeprefix('./')}"


def folders(*paths: str) -> dict[str, str | PathFacts]:
    """Return paths as written → themselves, made absolute: no links on the way."""
    return {path: absolute(path) for path in paths}


def plan(spec: DriverSpec | None = None, facts: HostFacts | None = None, **parts: Any) -> SandboxPlan:
    """Return the plan of a driver on a host under the shipped ceiling."""
    return derive(spec or driver(), parts.pop("ceiling", default()), facts or host(), **parts)
