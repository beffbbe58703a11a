"""Which implementation of a tool is used here, and why (MCPKG §10.3); pure.

Rules, in this order, each with its reason when it says no: 1 the platform is the container's, always Linux; 2 the
runtime is in an image of this installation, in the version that is asked for; 3 the command's program is in that image;
4 every requirement is known and met, by figures that were probed in the image. Of what is left the order of the
manifest decides, so a publisher says which variant is best; the others are the fallbacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.mcpkg.model import HttpEndpoint, Implementation, LocalEndpoint, Manifest

RUNTIMES: Final = {"node": "node", "nodejs": "node", "javascript": "node", "python": "python", "python3": "python"}
"""Words of ``runtime`` and ``command`` → the runtime they mean."""

_RUNTIME: Final = re.compile(r"([A-Za-z][A-Za-z+#-]*)[ -]?([0-9][0-9.]*)?")
_MINIMUM: Final = re.compile(r"min([A-Z][A-Za-z]*)Version")
_NAME: Final = re.compile(r"(@?[A-Za-z0-9][A-Za-z0-9._/-]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What one image offers, as probed in it.

    Attributes:
        name: ``node`` or ``python``.
        version: as it says itself.
        image: name of the image of images/.
        programs: names that its PATH finds.
        packages: distribution → version.
    """

    name: str
    version: str
    image: str
    programs: frozenset[str] = frozenset()
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found out about this host: ``linux-x64`` or ``linux-arm64``, and the runtimes by name."""

    platform: str
    runtimes: Mapping[str, Runtime]


@dataclass(frozen=True, slots=True)
class Considered:
    """One implementation, and what speaks against it; empty ``against`` means that it can be used."""

    implementation: Implementation
    runtime: str
    against: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.against


def consider(manifest: Manifest, here: Surroundings) -> tuple[Considered, ...]:
    """Return every implementation with what speaks against it, in the manifest's order."""
    return tuple(_considered(implementation, here) for implementation in manifest.implementations)


def explain(considered: tuple[Considered, ...], chosen: str = "") -> list[str]:
    """Return one line for each implementation, for ``--why``."""
    lines = []
    for entry in considered:
        name = entry.implementation.id
        if not entry.usable:
            lines.append(f"{name}: no, {'; '.join(entry.against)}")
        elif name == chosen:
            lines.append(f"{name}: chosen, runs on {entry.runtime or 'this host'}")
        else:
            lines.append(f"{name}: could be used, and is a fallback")
    return lines


def _considered(implementation: Implementation, here: Surroundings) -> Considered:
    endpoint = implementation.endpoint
    platforms = implementation.platforms
    against = []
    if platforms and here.platform not in platforms:  # 1
        against.append(f"its platforms are {', '.join(platforms)}, and the sandbox is {here.platform}")
    if isinstance(endpoint, HttpEndpoint):
        return Considered(implementation, "python", (*against, *_unmet(implementation.requirements, None)))
    name, version = _wanted(implementation, endpoint)
    runtime = here.runtimes.get(name)
    if runtime is None:  # 2
        shown = implementation.runtime or endpoint.argv[0]
        have = ", ".join(f"{one.name} {one.version}" for one in here.runtimes.values()) or "none"
        against.append(f"there is no runtime `{shown}` in the images of this installation; there is {have}")
        return Considered(implementation, name, tuple(against))
    if version and not _within(runtime.version, version):  # 2
        against.append(f"it asks for {name} {version}, and the image has {runtime.version}")
    against += _no_program(endpoint, runtime)  # 3
    against += _unmet(implementation.requirements, runtime)  # 4
    return Considered(implementation, name, tuple(against))


def _wanted(implementation: Implementation, endpoint: LocalEndpoint) -> tuple[str, str]:
    """Return name and version of the runtime that an implementation asks for."""
    text = implementation.runtime or ("python" if endpoint.argv[0].startswith("./") else endpoint.argv[0])
    found = _RUNTIME.fullmatch(text)
    if found is None:
        return text, ""
    word = found[1].lower()
    return RUNTIMES.get(word, word), found[2] or ""


def runtime_of(implementation: Implementation) -> str:
    """Return the name of the runtime that an implementation runs on; empty for an endpoint elsewhere."""
    endpoint = implementation.endpoint
    return _wanted(implementation, endpoint)[0] if isinstance(endpoint, LocalEndpoint) else ""


def program_of(endpoint: LocalEndpoint, runtime: Runtime) -> tuple[str, ...]:
    """Return a command's words with the program as the image knows it: Debian has ``python3`` and no ``python``."""
    first, *rest = endpoint.argv
    if first not in runtime.programs and RUNTIMES.get(first) == runtime.name:
        first = {"python": "python3", "node": "node"}[runtime.name]
    return (first, *rest)


def _no_program(endpoint: LocalEndpoint, runtime: Runtime) -> list[str]:
    first = program_of(endpoint, runtime)[0]
    if first.startswith("./") or first in runtime.programs:
        return []
    return [f"its program `{first}` is not in the image `{runtime.image}`"]


def _within(have: str, wanted: str) -> bool:
    """Return whether a version is of a wanted line: ``3.11.2`` is of ``3.11`` and of ``3``, not of ``3.1``."""
    parts = wanted.rstrip(".").split(".")
    return have.split(".")[: len(parts)] == parts


def _unmet(requirements: Mapping[str, Any], runtime: Runtime | None) -> list[str]:
    return [text for name, value in requirements.items() for text in _requirement(name, value, runtime)]


def _requirement(name: str, value: Any, runtime: Runtime | None) -> Iterator[str]:
    minimum = _MINIMUM.fullmatch(name)
    if minimum is not None and isinstance(value, str) and runtime is not None:
        word = minimum[1].lower()
        if RUNTIMES.get(word, word) != runtime.name:
            yield f"`{name}` is about another runtime than {runtime.name}"
        elif _numbers(runtime.version) < _numbers(value):
            yield f"it asks for {runtime.name} {value} or later, and the image has {runtime.version}"
    elif name == "packages" and isinstance(value, list) and runtime is not None:
        for package in value:
            yield from _package(package, runtime)
    else:
        yield f"the requirement `{name}` cannot be probed here"


def _package(wanted: Any, runtime: Runtime) -> Iterator[str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - few packages ask
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    found = _NAME.fullmatch(wanted.strip()) if isinstance(wanted, str) else None
    if found is None:
        yield f"{wanted!r} names no package"
        return
    key = canonicalize_name(found[1]) if runtime.name == "python" else found[1]
    have = runtime.packages.get(key)
    try:
        good = have is not None and SpecifierSet(found[2].strip()).contains(have, prereleases=True)
    except InvalidSpecifier:
        yield f"{wanted!r} names no range of versions"
        return
    if not good:
        yield f"it needs {wanted}, and the image has {f'{found[1]} {have}' if have else 'none of it'}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version.split("-", maxsplit=1)[0])[:4])
