"""What `init` is asked for: a package, an image or a program, with its arguments, grants and variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sandbox.errors import UsageError

Kind = Literal["npm", "pip", "docker", "binary"]

FORMS: Final = "npm:@scope/server, pip:name, docker:image, or the path of a program"

_VERSION: Final = re.compile(r"(?P<name>@?[^@]+)(?:@(?P<version>.*))?")
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<rest>.*)")
_NOISE: Final = re.compile(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-server|-mcp)$")


@dataclass(frozen=True, slots=True)
class Source:
    """One server to make a driver for.

    Attributes:
        kind: how it is installed.
        name: package, requirement, image or absolute path, as DRIVER.md will name it.
        program: console script of a Python package.
        args: arguments of the program.
        secrets: names of environment variables; their values are never kept, only asked for by SECRETS.md.
        read: granted folders for reading, path in the sandbox → path on the host.
        write: the same for writing.
        label: what the driver is named after.
        files: what lies in the folder beside the manifests, path → contents; such as a program of ours.
        notes: what a person has to see to, one sentence each.
    """

    kind: Kind
    name: str
    program: str = ""
    args: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    read: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return the driver's id: ``filesystem-mcp`` for ``@modelcontextprotocol/server-filesystem``."""
        base = self.label or self.base.rpartition("/")[2].partition(":")[0]
        plain = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")
        short = _NOISE.sub("", _NOISE.sub("", plain)) or plain or "server"
        return f"{short[:70].strip('-')}-mcp"

    @property
    def base(self) -> str:
        """Return the name without a version."""
        if self.kind == "npm":
            return str(_matched(_VERSION, self.name)["name"])
        return str(_matched(_REQUIREMENT, self.name)["name"]) if self.kind == "pip" else self.name

    def at_version(self, version: str) -> str:
        """Return the name with exactly this version."""
        if self.kind == "npm":
            return f"{self.base}@{version}"
        extras = re.match(r"\[[^]]*\]", self.name[len(self.base) :])
        return f"{self.base}{extras.group() if extras else ''}=={version}"

    def server(self, name: str) -> dict[str, Any]:
        """Return the ``server`` block."""
        block: dict[str, Any] = {
            "npm": {"kind": "npm", "package": name},
            "pip": {"kind": "binary", "path": self.program or self.base},
            "docker": {"kind": "docker", "image": name},
            "binary": {"kind": "binary", "path": name},
        }[self.kind]
        if self.args:
            block["args"] = list(self.args)
        if self.secrets:
            block["env"] = {variable: f"${{secrets.{variable}}}" for variable in self.secrets}
        return block

    def install(self, name: str) -> list[dict[str, Any]]:
        """Return the ``install`` block."""
        if self.kind == "npm":
            return [{"method": "npm", "package": name, "global": False}]
        return [{"method": "pip", "package": name}] if self.kind == "pip" else []


def parse(text: str) -> Source:
    """Return the source that a person named.

    Raises:
        UsageError: ``CLI-142``, it is of no known form, or the program does not exist.
    """
    kind, colon, name = text.partition(":")
    if colon and kind in {"npm", "pip", "docker"} and name:
        return Source(kind, untagged(name) if kind == "npm" else name)  # type: ignore[arg-type]
    if colon and kind in {"http", "https"}:
        why = "a remote server is reached through its network only, and init runs without one"
        raise UsageError("CLI-142", f"{text}: {why}", "write its DRIVER.md by hand: docs/driver-md.md")
    path = Path(text).expanduser()
    if "/" in text or path.exists():
        if not path.is_file() or not os.access(path, os.X_OK):
            raise UsageError("CLI-142", f"{text} is no program that can be started", "name an executable file")
        return Source("binary", os.path.realpath(path), label=path.stem)
    raise UsageError("CLI-142", f"{text!r} names no server", f"write {FORMS}")


def untagged(name: str) -> str:
    """Return an npm name without a tag such as ``latest``, which says nothing about what is installed."""
    found = _matched(_VERSION, name)
    version = found["version"] or ""
    return name if version[:1] in set("0123456789^~<>=") and version else found["name"]


def grants(pairs: list[str], option: str) -> dict[str, str]:
    """Return path in the sandbox → path on the host of ``--read`` and ``--write``.

    Raises:
        UsageError: ``CLI-143``, not of the form ``AT=PATH``.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        at, equals, path = pair.partition("=")
        if not equals or not at.startswith("/") or not path:
            mend = f"write {option} /workspace=./workspace; a relative path lies below the new folder"
            raise UsageError("CLI-143", f"{option} {pair!r} is not AT=PATH", mend)
        found[at] = path
    return found


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise UsageError("CLI-142", f"{text!r} names no server", f"write {FORMS}")
    return found
