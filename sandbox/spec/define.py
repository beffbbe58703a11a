"""``define_driver(...)``: a driver said in Python instead of front matter (AIP-32 §defineDriver, S0-51 … S0-54).

The definition is data. It becomes the text of DRIVER.md and is read by the same loader, under the same rules, as what
a person wrote; DRIVER.md is what is reviewed, digested and run. Names may be written in snake_case or, as in the
specification's TypeScript, in camelCase.

``build_arguments`` and ``parse_tool_result`` are part of the signature and are refused: they are code of an untrusted
folder, and nothing of such a folder is executed by the supervisor (ADR 0045). What they are for is said declaratively:
``argument_mapping``, ``schema_narrowing``, ``context`` and ``result_extract``.

Example::

    from sandbox.spec.define import Npm, define_driver

    driver = define_driver(
        name="Notes", id="notes-mcp", description="Searches notes.", version="1.0.0",
        server=Npm("@example/server-notes@2.1.0", args=("--root", "/notes")), transport="stdio",
        implements=[{"tool": "./tools/note-search/TOOL.md", "version": "^1.0.0",
                     "metadata": {"mcp": {"tool_name": "search"}}}],
    )
    driver.write("notes-mcp")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

from sandbox.errors import UsageError
from sandbox.spec.load import load_driver
from sandbox.spec.model import DriverSpec
from sandbox.spec.written import manifest

FILE: Final = "DRIVER.md"

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_BLOCKS: Final = frozenset({"prompts", "resources", "connection_options", "server"})
"""Blocks whose members have names of the signature too; elsewhere names are the author's."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A program of this host, or one that ``install`` provides."""

    path: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kind: ClassVar[str] = "binary"


@dataclass(frozen=True, slots=True)
class Npm:
    """A package of the npm registry."""

    package: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kind: ClassVar[str] = "npm"


@dataclass(frozen=True, slots=True)
class Docker:
    """A container image."""

    image: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kind: ClassVar[str] = "docker"


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that somebody else runs; ``auth`` stands in the signature only (T0-10)."""

    url: str
    auth: Mapping[str, Any] | None = None
    kind: ClassVar[str] = "remote"


McpServer: TypeAlias = Binary | Npm | Docker | Remote


@dataclass(frozen=True, slots=True)
class DriverDefinition:
    """A driver as data.

    Attributes:
        fields: front matter, in snake_case.
    """

    fields: Mapping[str, Any]

    def markdown(self, body: str = "") -> str:
        """Return the text of DRIVER.md."""
        return manifest(self.fields, body or f"# {self.fields.get('name', 'Driver')}")

    def write(self, folder: str | Path, body: str = "") -> Path:
        """Write DRIVER.md into a folder that has none, and return its path.

        Raises:
            UsageError: ``CLI-149``, there is one; a reviewed file is never replaced.
        """
        path = Path(folder) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self.markdown(body))
        except FileExistsError:
            raise UsageError("CLI-149", f"{path} exists already", "remove it, or write to another folder") from None
        return path

    def load(self, folder: str | Path) -> DriverSpec:
        """Return the driver of a folder whose DRIVER.md says exactly this.

        Raises:
            SpecError: the folder is not valid.
            UsageError: ``CLI-149``, its DRIVER.md says something else; the file wins (B0-10).
        """
        path = Path(folder) / FILE
        if not path.exists():
            self.write(folder)
        text = path.read_text(encoding="utf-8")
        if text.partition("\n---\n")[0] != self.markdown().partition("\n---\n")[0]:
            raise UsageError("CLI-149", f"{path} says something else than the definition", "make them equal")
        return load_driver(path)


def define_driver(
    *,
    kind: Literal["mcp"] = "mcp",
    server: McpServer | Mapping[str, Any],
    transport: Literal["stdio", "sse", "http"],
    build_arguments: Callable[..., Any] | None = None,
    parse_tool_result: Callable[..., Any] | None = None,
    **fields: Any,
) -> DriverDefinition:
    """Return a driver said in Python.

    Args:
        kind: of the driver; this supervisor runs ``mcp``.
        server: one of the four kinds, or its block.
        transport: how the server speaks.
        build_arguments: refused, see above.
        parse_tool_result: refused, see above.
        **fields: every other field of DRIVER.md, such as ``protocol_version``, ``prompts``, ``implements``.

    Raises:
        UsageError: ``CLI-148``, a hook is given; ``CLI-149``, a field is given in two spellings.
    """
    named = _snake(fields, "define_driver")
    hooks = {"build_arguments": build_arguments, "parse_tool_result": parse_tool_result}
    given = [name for name, hook in hooks.items() if hook is not None or named.pop(name, None) is not None]
    if given:
        mend = "say it with `argument_mapping`, `schema_narrowing`, `context` and `result_extract`"
        raise UsageError("CLI-148", f"`{given[0]}` is code of a driver folder, and none of it is executed", mend)
    named = {name: value for name, value in named.items() if name not in hooks}
    block = {"kind": server.kind, **asdict(server)} if isinstance(server, McpServer) else dict(server)
    whole = {**named, "kind": kind, "server": block, "transport": transport}
    return DriverDefinition({name: _plain(_inner(name, value)) for name, value in whole.items() if value is not None})


def _inner(name: str, value: Any) -> Any:
    """Return a block with its own members in snake_case."""
    if name not in _BLOCKS:
        return value
    if isinstance(value, Mapping):
        return {key: one for key, one in _snake(value, name).items() if one not in (None, {}, ())}
    return [_snake(one, name) if isinstance(one, Mapping) else one for one in value]


def _snake(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for key, value in fields.items():
        name = _CAMEL.sub(lambda found: f"_{found[1].lower()}", key)
        if name in named:
            raise UsageError("CLI-149", f"{where}: `{name}` is given in two spellings", "keep one of them")
        named[name] = value
    return named


def _plain(value: Any) -> Any:
    """Return JSON values: tuples as lists, mappings as dicts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
