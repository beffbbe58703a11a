"""A start that does not wait for the review of what was reviewed before.

Reading, checking and planning a driver takes longer than the engine needs to begin its container. So the plan of a
start is kept, with a digest of every file that it was made from, and when nothing has changed the next start begins
with it, while the whole review runs beside it. The server's stream is handed to nobody before that review has made the
same plan again, digest for digest; another plan, or a refusal, removes the container (ADR 0016).

A kept plan is used only when it satisfies the baseline, holds no secret, no variable of the host and no network. The
folder is private (0700) and belongs to what no sandbox may be granted for writing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import __version__, jsontext
from sandbox.cli import options
from sandbox.errors import SandboxError
from sandbox.limits import MAX_DRIVER_FILES, MAX_MANIFEST_BYTES
from sandbox.plan import baseline
from sandbox.plan.model import EnvEntry, LimitPlan, Mount, NetworkPlan, SandboxPlan, Tmpfs

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mcp-sandbox" / "plans"
"""Where plans are kept (XDG Base Directory)."""

MANIFESTS: Final = (".md", ".json", ".lock", ".toml")
"""Endings of the files in a driver folder that a plan can depend on."""

_PACKAGE: Final = Path(__file__).resolve().parent.parent


def load(arguments: argparse.Namespace) -> SandboxPlan | None:
    """Return the kept plan of these arguments when every file it was made from is unchanged, else ``None``."""
    try:
        data = _place(arguments).read_bytes()
        entry = jsontext.parse(data)
        if entry["inputs"] != inputs(arguments, entry["outside"]):
            return None
        plan = plan_of(entry["plan"])
        if plan.digest() != entry["digest"] or not keepable(plan):
            return None
        baseline.check(plan)
    except (OSError, SandboxError, jsontext.JsonTextError, KeyError, TypeError, ValueError):
        return None  # a kept plan is a convenience: without one the start is the ordinary one
    return plan


def keep(arguments: argparse.Namespace, plan: SandboxPlan, manifests: Iterable[str]) -> None:
    """Keep a plan, when it may be; failing to is no error.

    Args:
        arguments: of the command.
        plan: what the review made.
        manifests: files outside the driver folder that it was made from.
    """
    if not keepable(plan):
        return
    folder = str(_folder(arguments))
    outside = sorted({path for path in manifests if not path.startswith(folder + "/")})
    with contextlib.suppress(OSError, ValueError):  # ValueError: more or larger files than are worth comparing
        body = {
            "inputs": inputs(arguments, outside),
            "outside": outside,
            "digest": plan.digest(),
            "plan": plan.to_json(),
        }
        place = _place(arguments)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(jsontext.canonical(body))
        fresh.chmod(0o600)
        fresh.replace(place)


def keepable(plan: SandboxPlan) -> bool:
    """Return whether a plan holds nothing but what reviewed files say."""
    own = all(not entry.secret and entry.origin != "host" for entry in plan.env)
    return own and plan.network.mode == "none" and plan.server_kind != "remote"


def inputs(arguments: argparse.Namespace, outside: Iterable[str]) -> dict[str, str]:
    """Return path → digest of everything that a plan depends on beside the engine, which is asked again anyway."""
    folder = _folder(arguments)
    named = [options.CONFIG / "policy.toml", *([arguments.policy] if arguments.policy else [])]
    shipped = [_PACKAGE.parent / "policies", _PACKAGE / "_shipped" / "policies"]
    files = [*_manifests(folder), *map(Path, outside), *named]
    files += [path for place in shipped if place.is_dir() for path in sorted(place.rglob("*")) if path.is_file()]
    found = {str(path): _digest(path) for path in files}
    found["code"] = _code()
    return found


def _manifests(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in MANIFESTS and path.is_file():
            found.append(path)
        if len(found) > MAX_DRIVER_FILES:
            raise ValueError("too many files to keep a plan for")
    return found


def _digest(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > 64 * MAX_MANIFEST_BYTES:
            raise ValueError("no manifest: not a regular file, or too large")
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"


def _code() -> str:
    """Return what changes whenever this program does."""
    stats = [
        (path.stat().st_mtime_ns, path.stat().st_size)
        for part in ("spec", "plan", "policy", "launch")
        for path in sorted((_PACKAGE / part).rglob("*.py"))
    ]
    return hashlib.sha256(repr((__version__, stats)).encode()).hexdigest()


def _folder(arguments: argparse.Namespace) -> Path:
    path = Path(os.path.realpath(arguments.driver))
    return path if path.is_dir() else path.parent


def _place(arguments: argparse.Namespace) -> Path:
    asked = (
        str(_folder(arguments)),
        sorted(arguments.root),
        arguments.memory,
        arguments.runtime,
        *(str(getattr(arguments, name, None)) for name in ("policy", "audit_dir", "rules")),
    )
    name = hashlib.sha256(repr((asked, os.getuid(), os.getgid(), str(Path.cwd()))).encode()).hexdigest()
    return CACHE / f"{name}.json"


def plan_of(body: Mapping[str, Any]) -> SandboxPlan:
    """Return the plan of its JSON form, without the reasons.

    Raises:
        KeyError, TypeError: it is no plan.
    """
    fields: dict[str, Any] = {name: body[name] for name in SandboxPlan.__slots__ if name != "reasons"}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    network = body["network"]
    fields["env"] = tuple(EnvEntry(**entry) for entry in body["env"])
    fields["mounts"] = tuple(Mount(**entry) for entry in body["mounts"])
    fields["tmpfs"] = tuple(Tmpfs(**entry) for entry in body["tmpfs"])
    fields["network"] = NetworkPlan(network["mode"], (), tuple(network["allowed_private"]))
    fields["limits"] = LimitPlan(**body["limits"])
    return SandboxPlan(**fields)
