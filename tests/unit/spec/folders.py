"""Writes driver folders for tests; JSON is written into the front matter, being a part of the YAML that is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from sandbox.errors import Problem
from sandbox.spec.load import check_folder
from sandbox.spec.model import DriverSpec

INPUTS: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}

TOOL: dict[str, Any] = {
    "name": "Read a file",
    "id": "fs-read",
    "description": "Read one file.",
    "version": "1.2.0",
    "inputs": INPUTS,
    "outputs": {"type": "object", "properties": {"text": {"type": "string"}, "size": {}}, "required": ["text"]},
}

DRIVER: dict[str, Any] = {
    "name": "Files",
    "id": "files-mcp",
    "description": "Reads files.",
    "version": "1.0.0",
    "kind": "mcp",
    "server": {"kind": "npm", "package": "@scope/server-files", "args": ["--quiet"], "env": {"LEVEL": "3"}},
    "transport": "stdio",
    "network": {"egress": []},
    "sandbox": {
        "fs": {"read": [{"path": "./data", "at": "/data"}], "write": [], "deny": []},
        "exec": {"allow": False},
        "env": {"pass": ["LANG"], "set": {"MODE": "fast"}},
    },
    "limits": {"memory_mb": 128, "cpus": 0.5, "pids": 32, "timeout_ms": 9000},
    "implements": [
        {
            "tool": "./tools/fs-read/TOOL.md",
            "version": "^1.0.0",
            "metadata": {"mcp": {"tool_name": "read_file", "argument_mapping": {"path": "file"}}},
        }
    ],
}

SECRET: dict[str, Any] = {"slug": "api-key", "name": "Key", "description": "Opens the service."}


def front(values: dict[str, Any], body: str = "") -> str:
    """Return a manifest with one top-level key a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", body])


def driver(**changes: Any) -> dict[str, Any]:
    """Return the usual front matter with other top-level values; ``None`` leaves a key out."""
    values = copy.deepcopy(DRIVER) | changes
    return {key: value for key, value in values.items() if value is not None}


def per_tool(**changes: Any) -> dict[str, Any]:
    """Return the usual front matter whose binding has another ``metadata.mcp``."""
    values = copy.deepcopy(DRIVER)
    values["implements"][0]["metadata"]["mcp"] |= changes
    return values


def bound(**changes: Any) -> dict[str, Any]:
    """Return the usual front matter whose binding has other members."""
    values = copy.deepcopy(DRIVER)
    values["implements"][0] |= changes
    return values


def tool(**changes: Any) -> dict[str, Any]:
    """Return the usual contract with other members; ``None`` leaves one out."""
    values = copy.deepcopy(TOOL) | changes
    return {key: value for key, value in values.items() if value is not None}


def write(
    root: Path,
    values: dict[str, Any] | str | None = None,
    contract: dict[str, Any] | str | None = None,
    secrets: list[dict[str, Any]] | None = None,
) -> Path:
    """Write a driver folder called ``files-mcp`` below ``root`` and return it."""
    folder = root / "files-mcp"
    (folder / "tools/fs-read").mkdir(parents=True, exist_ok=True)
    values = driver() if values is None else values
    contract = tool() if contract is None else contract
    (folder / "DRIVER.md").write_text(values if isinstance(values, str) else front(values))
    (folder / "tools/fs-read/TOOL.md").write_text(contract if isinstance(contract, str) else front(contract))
    if secrets is not None:
        (folder / "SECRETS.md").write_text(front({"secrets": secrets}))
    return folder


def checked(
    root: Path,
    values: dict[str, Any] | str | None = None,
    contract: dict[str, Any] | str | None = None,
    secrets: list[dict[str, Any]] | None = None,
) -> tuple[DriverSpec | None, tuple[Problem, ...]]:
    """Write a folder and check it."""
    return check_folder(write(root, values, contract, secrets))


def loaded(
    root: Path,
    values: dict[str, Any] | str | None = None,
    contract: dict[str, Any] | str | None = None,
    secrets: list[dict[str, Any]] | None = None,
) -> DriverSpec:
    """Write a folder that is good and return the driver."""
    spec, problems = checked(root, values, contract, secrets)
    assert spec is not None, "\n".join(map(str, problems))
    return spec


def errors(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    """Return id and field of every error."""
    return [(problem.id, problem.field) for problem in problems if problem.severity == "error"]


def warnings(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    """Return id and field of every warning."""
    return [(problem.id, problem.field) for problem in problems if problem.severity == "warning"]
