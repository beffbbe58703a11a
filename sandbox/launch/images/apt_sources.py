"""Reads where the host's apt takes packages from, so that no mirror is named in any file of the project."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.images.recipe import SUITE

_POCKETS: Final = ("", "-updates", "-security")
_ONE_LINE: Final = re.compile(
    r"deb(?:\s+\[(?P<options>[^\]]*)\])?\s+(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)"
)
_KEPT_OPTIONS: Final = frozenset({"signed-by", "check-valid-until"})
"""Of a source. ``trusted=yes`` is not among them: unsigned packages are never taken."""

_DOCKERFILE: Final = (
    "use a Debian or Ubuntu host, or build on an image of a registry: `mcp-sandbox images build --base`"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One place of packages from an apt configuration.

    Attributes:
        uri: as configured; never put where it could end up in a file.
        suite: release name with its pocket, ``bookworm-security``.
        components: sections.
        options: ``signed-by`` and the like, as in one-line style.
    """

    uri: str
    suite: str
    components: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Return the one-line form (sources.list(5))."""
        options = " ".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"deb {f'[{options}] ' if options else ''}{self.uri} {self.suite} {' '.join(self.components)}\n"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where packages come from on this host.

    Attributes:
        named: ``debian/bookworm``; what is recorded.
        sources: the host's places, turned to the release that images are made from.
    """

    named: str
    sources: tuple[Source, ...]

    @classmethod
    def of_host(cls, etc: Path = Path("/etc")) -> Distribution:
        """Return the distribution that the host's apt is configured for.

        On Debian the release is :data:`~sandbox.launch.images.recipe.SUITE` whatever the host runs: every Debian mirror
        has it, and the keyring knows its key. On Ubuntu it is the host's release.

        Raises:
            PlatformError: ``IMG-010``, neither of the two, no apt, or no source of the distribution.
        """
        release = etc / "os-release"
        system, _, codename = named_by(release.read_text("utf-8", "replace") if release.exists() else "").partition("/")
        if shutil.which("apt-get") is None:
            raise _unusable("this host has no apt")
        suite, allowed = (SUITE, {"main"}) if system == "debian" else (codename, {"main", "universe"})
        turned = {codename + pocket: suite + pocket for pocket in _POCKETS}
        found = [
            replace(
                source, suite=turned[source.suite], components=tuple(sorted(allowed.intersection(source.components)))
            )
            for source in host_sources(etc / "apt")
            if source.suite in turned and allowed.intersection(source.components)
        ]
        if not any(source.suite == suite for source in found):
            raise _unusable(f"its apt has no source of {codename}")
        return cls(f"{system}/{suite}", tuple(found))


def named_by(os_release: str) -> str:
    """Return ``debian/bookworm`` or the like for the text of an os-release file.

    Raises:
        PlatformError: ``IMG-010``, it is neither Debian nor Ubuntu.
    """
    release = _os_release(os_release)
    system, codename = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    if system not in {"debian", "ubuntu"} or not codename:
        raise _unusable(f"this is {system or 'unknown'} {codename}".rstrip())
    return f"{system}/{codename}"


def host_sources(folder: Path) -> Iterator[Source]:
    """Yield the binary package sources of an apt configuration folder, in both styles (sources.list(5))."""
    for file in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if not file.is_file():
            continue
        text = file.read_text("utf-8", "replace")
        if file.suffix == ".list":
            yield from _one_line(text)
        elif file.suffix == ".sources":
            yield from _deb822(text)


def _one_line(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if match is None:
            continue
        pairs = (option.partition("=") for option in (match["options"] or "").split())
        options = {name.lower(): value for name, _, value in pairs}
        yield Source(match["uri"], match["suite"], tuple(match["components"].split()), _kept(options))


def _deb822(text: str) -> Iterator[Source]:
    for paragraph in re.split(r"\n\s*\n", text):
        fields = _fields(paragraph)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(uri, suite, components, _kept(fields))


def _fields(paragraph: str) -> dict[str, str]:
    """Return the fields of a deb822 paragraph by lower-case name; continuation lines are joined."""
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace() and name:
            fields[name] += "\n" + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _kept(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are passed on; a key that stands in the source itself cannot be, in one-line style."""
    return {name: value for name, value in options.items() if name in _KEPT_OPTIONS and "\n" not in value}


def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value.strip("\"'") for name, _, value in pairs}


def _unusable(why: str) -> PlatformError:
    return PlatformError("IMG-010", f"images are made from packages of Debian or Ubuntu, and {why}", _DOCKERFILE)
