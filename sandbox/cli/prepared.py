"""A start that does not wait for the review of what was reviewed before (ADR 0016).

Reading, checking and planning a driver takes longer than the engine needs to begin its container, most of it imports. A
review is a pure function of files and of facts about this host, so what it made is kept with a digest of every file and
with the facts; when both are the same again, so is the plan. The facts are asked anew at every start: a folder that
became a link, another engine or an image that is gone make the start an ordinary one.

Kept reviews hold nothing that files do not say: no secret and no variable of the host. They lie in a private folder
(0700, of this user), which no sandbox may be granted for writing; who can write there can rewrite the policy as well.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sandbox import __version__
from sandbox.cli import options
from sandbox.cli.hostfacts import CACHE, PACKAGE, local_facts, overrides_of, own_paths, seen
from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.limits import MAX_DRIVER_FILES, MAX_MANIFEST_BYTES
from sandbox.mcpkg.intact import check_intact
from sandbox.plan import baseline
from sandbox.plan.model import EngineFacts, HostFacts, ImageFacts, SandboxPlan
from sandbox.spec.model import DriverSpec

if TYPE_CHECKING:
    from sandbox.cli.wiring import Review

MANIFESTS: Final = (".md", ".json", ".lock", ".toml")
"""Endings of the files in a driver folder that a plan can depend on."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a review made, and what it was made from.

    Attributes:
        inputs: path → digest of every file.
        outside: those of them that are no manifests of the driver folder.
        digest: of the plan.
        host: facts about this host, the engine's in them.
    """

    inputs: Mapping[str, str]
    outside: tuple[str, ...]
    digest: str
    plan: SandboxPlan
    spec: DriverSpec
    host: HostFacts
    egress_image: str
    roots: Mapping[str, str]

    def record(self, scope: Scope) -> None:
        """Record that an earlier review stands, and what it was of."""
        scope.fact("plan.reuse", digest=self.digest, image=self.plan.image_id)
        seen(scope, self.spec, self.plan, self.roots)

    def stands(
        self, arguments: argparse.Namespace, socket_path: str, engine: EngineFacts, image: ImageFacts | None
    ) -> bool:
        """Return whether this host is still as it was.

        Args:
            arguments: of the command.
            socket_path: of the engine.
            engine: its facts now.
            image: what the plan's image name means now.
        """
        if image is None or image.id != self.plan.image_id:
            return False
        now = local_facts(self.spec, overrides_of(arguments), socket_path, own_paths(arguments))
        was = self.host
        as_then = replace(
            now,
            engine=engine,
            image=was.image,
            egress_available=was.egress_available,
            remote_available=was.remote_available,
        )
        return as_then == was


def load(arguments: argparse.Namespace) -> Kept | None:
    """Return the kept review of these arguments when every file it was made from is unchanged, else ``None``."""
    try:
        place = _place(arguments)
        check_private(place)
        kept = msgspec.json.decode(place.read_bytes(), type=Kept)
        if kept.inputs != inputs(arguments, kept.outside):
            return None
        check_intact(_folder(arguments))
        if kept.plan.digest() != kept.digest or not keepable(kept.spec, kept.plan):
            return None
        baseline.check(kept.plan)
    except (OSError, SandboxError, msgspec.MsgspecError, RecursionError, ValueError):
        return None  # a kept review is a convenience: without one the start is the ordinary one
    return kept


def keep(arguments: argparse.Namespace, review: Review) -> None:
    """Keep a review, when it may be; failing to is no error.

    Args:
        arguments: of the command.
        review: with its plan.
    """
    spec, plan = review.spec.model_copy(update={"warnings": ()}), review.plan
    if review.spec.warnings or not keepable(spec, plan):
        return
    outside = tuple(sorted(set(review.files)))
    # ValueError: more or larger files than are worth comparing; TypeError: a value of YAML that JSON does not have
    with contextlib.suppress(OSError, ValueError, TypeError, msgspec.MsgspecError):
        kept = Kept(
            inputs=inputs(arguments, outside),
            outside=outside,
            digest=plan.digest(),
            plan=plan,
            spec=spec,
            host=review.host,
            egress_image=review.egress_image,
            roots=dict(review.overrides.roots),
        )
        data = msgspec.json.encode(kept)
        if msgspec.json.decode(data, type=Kept) != kept:
            return
        place = _place(arguments)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(data)
        fresh.chmod(0o600)
        fresh.replace(place)


def keepable(spec: DriverSpec, plan: SandboxPlan) -> bool:
    """Return whether a plan holds nothing but what digested files say, and its image comes from nothing else."""
    own = all(entry.origin != "host" for entry in plan.env)
    vendored = any(step.method == "vendored" for step in spec.install)
    return own and not vendored and plan.server_kind != "remote" and spec.version_check is None


def inputs(arguments: argparse.Namespace, outside: Iterable[str]) -> dict[str, str]:
    """Return path → digest of every file that a plan depends on."""
    folder = _folder(arguments)
    named = [options.CONFIG / "policy.toml", *([arguments.policy] if arguments.policy else [])]
    shipped = [PACKAGE.parent / "policies", PACKAGE / "_shipped" / "policies"]
    locks = [*PACKAGE.parent.glob("images/*/lock.json"), *PACKAGE.glob("_shipped/images/*/lock.json")]
    files = [*_manifests(folder), *map(Path, outside), *named, *locks]
    files += [path for place in shipped if place.is_dir() for path in sorted(place.rglob("*")) if path.is_file()]
    found = {str(path): _digest(path) for path in files}
    found["code"] = code(("cli", "spec", "plan", "policy", "launch"))
    return found


def check_private(place: Path) -> None:
    """Check a kept file and its folder.

    Raises:
        OSError: it is not there, or somebody else could have written it.
    """
    for path in (place.parent, place):
        found = path.lstat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022 or stat.S_ISLNK(found.st_mode):
            raise PermissionError(f"{path} is not private")


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


def code(parts: tuple[str, ...]) -> str:
    """Return what changes whenever these packages of this program do."""
    stats = [
        (path.stat().st_mtime_ns, path.stat().st_size)
        for part in parts
        for path in sorted((PACKAGE / part).rglob("*.py"))
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
