"""Descriptors as files: a virtual, read-only folder of what one caller may use (S1-13 … S1-15, S1-34, S1-42).

::

    tools/NAME.json                              one descriptor for each exposed tool
    resources/schemas/NAME@VERSION.input.json    its schemas, named by the version of its contract
    resources/schemas/NAME@VERSION.output.json
    resources/templates/NAME.json                declared prompts and templates of resources

There is no file system behind it: a path is looked up in a table, byte for byte, so that no path can mean anything but
an entry. The bytes are canonical JSON and follow from the exposure alone; the ETag is their SHA-256, so it changes
exactly when they do. What the driver does not bind is in no file, and what a change took out of service leaves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.model import Costs, Descriptor, milliseconds, to_json
from sandbox.dialect.refusals import DialectRefused
from sandbox.serve.client_lists import answer_list
from sandbox.spec.model import ToolContract
from sandbox.vet.model import ExposedTool, Exposure
from sandbox.wire.versions import V2025_11_25

FOLDERS: Final = ("tools/", "resources/", "resources/schemas/", "resources/templates/")

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_VERSION: Final = re.compile(r"[A-Za-z0-9.+-]{1,64}")


@dataclass(frozen=True, slots=True)
class File:
    """One file: its bytes and their SHA-256 in hexadecimal digits."""

    data: bytes
    sha256: str

    @property
    def etag(self) -> str:
        """Strong entity tag."""
        return f'"{self.sha256}"'


class FileView:
    """The folder of one exposure.

    Args:
        exposure: what the caller may use.
    """

    def __init__(self, exposure: Exposure) -> None:
        self.files: dict[str, File] = {}
        for path, value in _entries(exposure):
            self.files.setdefault(path, file_of(value))

    def read(self, path: str) -> File:
        """Return the file of a path, or the listing of a folder's.

        Args:
            path: below the view's root, without a leading slash.

        Raises:
            DialectRefused: ``DIA-022``, there is no such file.
        """
        if path in FOLDERS:
            return file_of(self.listing(path))
        found = self.files.get(path)
        if found is None:
            raise DialectRefused("DIA-022", "there is no such file", "use a name that the folder lists")
        return found

    def listing(self, folder: str) -> dict[str, Any]:
        """Return the files of a folder, with folders below it, in the order of their names."""
        below = sorted({path for path in self.files if path.startswith(folder)})
        inner = [name for name in FOLDERS if name != folder and name.startswith(folder)]
        files = [self._entry(path) for path in below if "/" not in path.removeprefix(folder)]
        return {"folder": folder, "folders": inner, "files": files}

    @property
    def digest(self) -> str:
        """``sha256:…`` of every path with its file's digest: one word for the whole view."""
        return jsontext.digest({path: one.sha256 for path, one in self.files.items()})

    def _entry(self, path: str) -> dict[str, Any]:
        one = self.files[path]
        return {"path": path, "sha256": one.sha256, "size": len(one.data)}


def file_of(value: Any) -> File:
    """Return a JSON value as a file."""
    data = jsontext.canonical(value) + b"\n"
    return File(data, hashlib.sha256(data).hexdigest())


def matches(field: str, etag: str) -> bool:
    """Return whether ``If-None-Match`` names an entity tag (RFC 9110 §13.1.2, weak comparison)."""
    named = [part.strip().removeprefix("W/") for part in field.split(",")]
    return "*" in named or etag in named


def descriptor(tool: ExposedTool) -> Descriptor:
    """Return the descriptor of one tool."""
    definition, contract = tool.definition, tool.binding.contract
    return Descriptor(
        tool_id=tool.name,
        name=str(definition.get("title") or contract.name or tool.name),
        description=str(definition.get("description", "")),
        input_schema=dict(definition.get("inputSchema") or {}),
        output_schema=dict(definition.get("outputSchema") or {}),
        metadata=Costs(
            cost_estimate=_cost(contract),
            latency=_latency(contract),
            version=contract.version,
            digest=contract.digest,
            input_schema=_schema_path(tool, "input"),
            output_schema=_schema_path(tool, "output"),
        ),
    )


def _entries(exposure: Exposure) -> Iterator[tuple[str, Any]]:
    for tool in exposure.tools.values():
        one = descriptor(tool)
        yield f"tools/{plain(tool.name)}.json", to_json(one)
        yield one.metadata.input_schema, one.input_schema
        yield one.metadata.output_schema, one.output_schema
    for template in answer_list("resources/templates/list", {}, exposure, V2025_11_25)["resourceTemplates"]:
        yield f"resources/templates/{plain(str(template['uriTemplate']))}.json", {"kind": "resource", **template}
    for prompt in answer_list("prompts/list", {}, exposure, V2025_11_25)["prompts"]:
        yield f"resources/templates/{plain(str(prompt['name']))}.json", {"kind": "prompt", **prompt}


def _schema_path(tool: ExposedTool, which: str) -> str:
    version = tool.binding.contract.version
    shown = version if _VERSION.fullmatch(version) else "0"
    return f"resources/schemas/{plain(tool.name)}@{shown}.{which}.json"


def plain(name: str) -> str:
    """Return a name as a file's: itself where that is harmless on every system, else with a digest in place of it."""
    if _PLAIN.fullmatch(name):
        return name
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48]
    return f"{kept or 'x'}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _cost(contract: ToolContract) -> float | None:
    value = _declared(contract, "cost_estimate")
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12  # noqa: PLR2004 - sanity
    return float(value) if good else None


def _latency(contract: ToolContract) -> str | None:
    value = _declared(contract, "latency")
    if not isinstance(value, str):
        return None
    try:
        milliseconds(value)
    except DialectRefused:
        return None
    return value


def _declared(contract: ToolContract, name: str) -> Any:
    metadata: Mapping[str, Any] = contract.metadata
    return metadata.get(name)
