"""What a change of a driver means for its version (S0-50; AIP-30 and AIP-32 §Stable identity).

Caches, pins and audit records key on ``id@major``. So whatever makes another thing of the driver asks for the next
major version: the protocol revision, the server's source, the transport, a narrower contract, a tool that is gone. And
two different folders never carry one version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sandbox.errors import Problem
from sandbox.spec.model import BinaryServer, Binding, DockerServer, DriverSpec, NpmServer, RemoteServer
from sandbox.spec.report import shorten
from sandbox.spec.versions import compare, major

Level = Literal["major", "any"]
"""Which part of the version a change asks for: the first number, or any."""

_FIRST_NUMBER: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two states of a driver that its version must tell.

    Attributes:
        field: dotted path in the new DRIVER.md.
        what: one phrase.
        before: value in the old driver.
        after: value in the new one.
        level: what it asks for.
    """

    field: str
    what: str
    before: str
    after: str
    level: Level = "major"


def changes(old: DriverSpec, new: DriverSpec) -> tuple[Change, ...]:
    """Return the differences that a version must tell."""
    found = [*_identity(old, new), *_tools(old, new)]
    if not found and old.digest != new.digest:
        found.append(Change("", "the reviewed files", old.digest, new.digest, "any"))
    return tuple(found)


def identity_changes(old: DriverSpec, new: DriverSpec) -> tuple[Problem, ...]:
    """Return why the new driver's version does not tell what changed; empty when it does.

    Args:
        old: the driver as it was reviewed before.
        new: the driver as it is now.
    """
    if old.id != new.id:
        return ()  # another driver, whatever its version
    found = changes(old, new)
    order = compare(new.version, old.version)
    problems = [_problem(new, change, old.version) for change in found if not _told(change, old.version, new.version)]
    if order < 0:
        place = new.where("version")
        problems.append(
            Problem(
                id="SPEC-201",
                file=place.file,
                line=place.line,
                field="version",
                message=f"the version goes back from {old.version}",
                found=shorten(new.version),
                allowed=f"above {old.version}",
                mend="raise it",
            )
        )
    return tuple(problems)


def _told(change: Change, before: str, after: str) -> bool:
    if change.level == "major":
        return major(after) > major(before)
    return compare(after, before) > 0


def _problem(new: DriverSpec, change: Change, version: str) -> Problem:
    place = new.where(change.field) if change.field else new.where("version")
    wanted = f"{major(version) + 1}.0.0" if change.level == "major" else f"above {version}"
    return Problem(
        id="SPEC-200",
        file=place.file,
        line=place.line,
        field=change.field or "version",
        message=(
            f"{change.what} changed from {shorten(change.before)} to {shorten(change.after)}, "
            "and the version does not say so"
        ),
        found=shorten(new.version),
        allowed=f"at least {wanted}" if change.level == "major" else wanted,
        mend=f"write `version: {wanted}`" if change.level == "major" else "raise `version`",
    )


# --- what asks for a major version ------------------------------------------------------------------------------------
def _identity(old: DriverSpec, new: DriverSpec) -> Iterator[Change]:
    if old.protocol_version != new.protocol_version:
        yield Change("protocol_version", "the MCP revision", old.protocol_version, new.protocol_version)
    if old.transport != new.transport:
        yield Change("transport", "the transport", old.transport, new.transport)
    before, after = source(old), source(new)
    if before != after:
        yield Change("server", "the server's source", before, after)


def source(spec: DriverSpec) -> str:
    """Return where the server comes from, as far as it is part of the driver's identity.

    For npm the package and the first number of its version (AIP-32), for an image its name and the same of its tag.
    """
    match spec.server:
        case NpmServer(package=package):
            name, at, version = package[1:].partition("@")
            return f"npm {package[0]}{name}{at}{_first(version)}"
        case DockerServer(image=image):
            name, _, _ = image.partition("@")
            last = name.rpartition("/")[2]
            tag = last.partition(":")[2]
            return f"docker {name.removesuffix(f':{tag}') if tag else name}:{_first(tag)}"
        case RemoteServer(url=url):
            return f"remote {url}"
        case BinaryServer(path=path):
            return f"binary {path}"


def _first(version: str) -> str:
    match = _FIRST_NUMBER.search(version)
    return match.group() if match else version


def _tools(old: DriverSpec, new: DriverSpec) -> Iterator[Change]:
    after = {binding.contract.id: (index, binding) for index, binding in enumerate(new.bindings)}
    for binding in old.bindings:
        index, now = after.get(binding.contract.id, (0, None))
        if now is None:
            yield Change("implements", f"the tool `{binding.contract.id}`", "bound", "gone")
        else:
            yield from _tool(f"implements[{index}]", binding, now)


def _tool(place: str, before: Binding, after: Binding) -> Iterator[Change]:
    contract = before.contract.id
    for key in ("drop_inputs", "drop_outputs"):
        one, other = sorted(getattr(before, key)), sorted(getattr(after, key))
        if one != other:
            path = f"{place}.schema_narrowing.{key}"
            yield Change(path, f"`{key}` of `{contract}`", ", ".join(one), ", ".join(other))
    if major(before.contract.version) != major(after.contract.version):
        versions = before.contract.version, after.contract.version
        yield Change(f"{place}.version", f"the contract `{contract}`", *versions)
