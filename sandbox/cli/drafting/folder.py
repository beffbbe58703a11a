"""The files of a drafted driver folder, as texts: DRIVER.md, a TOOL.md for each tool, SECRETS.md, a test.

Contracts take the server's own schemas, so that containment holds by reflexivity, and are closed where that only
narrows. Everything that a server says about itself is a draft for the reviewer, and the texts say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.cli.drafting.source import Source
from sandbox.spec.written import manifest
from sandbox.vet.containment import shown
from sandbox.vet.findings import Finding, blocking
from sandbox.vet.hazards import Subject, inspect
from sandbox.vet.model import ServerSurface

VERSION: Final = "1.0.0"
MAX_DESCRIPTION: Final = 1900
MAX_NAME: Final = 80

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
IRREVERSIBLE: Final = 3
CHANGES: Final = 1

_ELSEWHERE: Final = ("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "dependentSchemas", "patternProperties")
"""Keywords beside which ``additionalProperties: false`` could refuse what they name."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """One tool that gets a contract.

    Attributes:
        id: of the contract.
        name: in the server's list.
        definition: what the server says of it.
    """

    id: str
    name: str
    definition: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Return the contract's file, relative to the folder."""
        return f"tools/{self.id}/TOOL.md"


def unreadable(surface: ServerSurface) -> dict[str, str]:
    """Return tool → why nobody should write its definition into a file that people review."""
    found: dict[str, str] = {}
    for name, definition in surface.tools.items():
        bad = blocking(inspect(Subject({**definition, "name": name})))
        if bad or not name.isprintable():
            found[name] = f"{bad[0].id} {bad[0].message}" if bad else "its name cannot be shown"
    return found


def drafted(surface: ServerSurface, left_out: Mapping[str, str]) -> list[Drafted]:
    """Return the tools that get a contract, each with an id of its own."""
    found: list[Drafted] = []
    taken: set[str] = set()
    for name, definition in surface.tools.items():
        if name in left_out:
            continue
        plain = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", name)
        plain = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:70].strip("-")
        base = plain if len(plain) > 1 else f"tool-{plain or len(found) + 1}"
        number, id_ = 1, base
        while id_ in taken:
            number += 1
            id_ = f"{base}-{number}"
        taken.add(id_)
        found.append(Drafted(id_, name, definition))
    return found


# --- TOOL.md ----------------------------------------------------------------------------------------------------------
def contract(tool: Drafted, driver: str) -> str:
    """Return the text of a contract."""
    claims = tool.definition.get("annotations")
    claims = claims if isinstance(claims, Mapping) else {}
    reads = claims.get("readOnlyHint") is True
    title = tool.definition.get("title") or claims.get("title") or tool.name
    described = _line(tool.definition.get("description") or title)
    matter: dict[str, Any] = {
        "name": _line(title)[:MAX_NAME] or tool.id,
        "id": tool.id,
        "description": described[:MAX_DESCRIPTION] or tool.id,
        "version": VERSION,
        "inputs": inputs(tool.definition.get("inputSchema")),
        "outputs": outputs(tool.definition),
        "idempotent": reads or claims.get("idempotentHint") is True,
        "mutates": [] if reads else [f"mcp:{driver}"],
        "approval": "auto" if reads else "on-mutate",
        "risk_level": 0 if reads else IRREVERSIBLE if claims.get("destructiveHint") is True else CHANGES,
        "timeout_ms": 30_000,
        "tags": ["draft"],
    }
    said = "The server says that it only reads." if reads else "The server does not say that it only reads."
    body = (
        f"# {matter['name']}\n\nDrafted from what the server says of its tool {shown(tool.name)}: the description "
        f"and the schemas are its own words, and a model reads them. {said} Check `mutates`, `approval` and "
        "`risk_level`, narrow `inputs` to what callers need, mark paths and URIs with `x-mcp-sandbox`, then remove the "
        "tag `draft`."
    )
    return manifest(matter, body)


def inputs(schema: Any) -> dict[str, Any]:
    """Return the contract's inputs: the server's, closed where nothing else names members."""
    given = {key: value for key, value in _mapping(_worded(schema)).items() if key not in {"$schema", "$id", "id"}}
    closed = {"type": "object", "properties": {}, **given}
    if "additionalProperties" not in closed and not any(key in closed for key in _ELSEWHERE):
        closed["additionalProperties"] = False
    return closed


def outputs(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contract's outputs: the server's, or its text where it promises nothing (docs/calls.md)."""
    promised = definition.get("outputSchema")
    if not isinstance(promised, Mapping):
        return {"type": "string"}
    return {key: value for key, value in _worded(promised).items() if key not in {"$schema", "$id", "id"}}


def _worded(schema: Any) -> Any:
    """Return a schema whose prose shows on one line; names and values stay as they are."""
    if isinstance(schema, list):
        return [_worded(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _line(value) if key in {"description", "title"} and isinstance(value, str) else _worded(value)
        for key, value in schema.items()
    }


# --- DRIVER.md --------------------------------------------------------------------------------------------------------
def driver(source: Source, name: str, tools: Iterable[Drafted], surface: ServerSurface | None, notes: list[str]) -> str:
    """Return the text of DRIVER.md.

    Args:
        source: what was asked for.
        name: package with its version, image or path.
        tools: that get a binding.
        surface: what the server offers, ``None`` for the folder that it is first started from.
        notes: what a reviewer has to see to.
    """
    handshake = surface is not None and surface.era == "handshake"
    matter: dict[str, Any] = {
        "name": _line(source.id.removesuffix("-mcp").replace("-", " ").title() + " MCP")[:MAX_NAME],
        "id": source.id,
        "description": f"Draft for the MCP server {_line(name)[:200]}. Say here what it is for.",
        "version": VERSION,
        "kind": "mcp",
        "server": source.server(name),
        "transport": "stdio",
        **({"protocol_version": surface.protocol_version} if surface is not None and handshake else {}),
        **({"install": source.install(name)} if source.install(name) else {}),
        **({"auth": {"ref": "./SECRETS.md", "state": {"env": list(source.secrets)}}} if source.secrets else {}),
        "network": {"egress": []},
        **({"sandbox": {"fs": _grants(source)}} if source.read or source.write else {}),
        "limits": {"memory_mb": 512, "pids": 128},
        "region": ["self-hosted"],
        "policy_tags": ["self-hosted"],
        "implements": [
            {"tool": f"./{tool.path}", "version": f"^{VERSION}", "metadata": {"mcp": {"tool_name": tool.name}}}
            for tool in tools
        ],
        "tags": ["mcp", "draft"],
    }
    return manifest(matter, _body(matter["name"], notes))


def _grants(source: Source) -> dict[str, Any]:
    named = {"read": source.read, "write": source.write}
    return {kind: [{"path": path, "at": at} for at, path in pairs.items()] for kind, pairs in named.items() if pairs}


def _body(name: str, notes: list[str]) -> str:
    lines = "".join(f"- {note}\n" for note in notes)
    return (
        f"# {name}\n\nMade by `mcp-sandbox init` from what the server says of itself. Before it is used:\n\n"
        "- Read every TOOL.md; remove the bindings that nobody needs.\n"
        "- It has no network. `mcp-sandbox learn` shows which destinations it asks for; name them in "
        "`network.egress`.\n"
        f"- `mcp-sandbox plan` shows what it will be able to do.\n{lines}"
    )


def secrets(source: Source) -> str:
    """Return the text of SECRETS.md: slugs and variables, never a value."""
    entries = [
        {
            "slug": slug_of(name),
            "name": name,
            "description": f"Value of the server's variable {name}.",
            "kind": "opaque",
            "metadata": {"bindings": {"env": [name]}},
        }
        for name in source.secrets
    ]
    body = (
        "# Secrets\n\nValues are taken from the environment variables of the same names of whoever starts mcp-sandbox, "
        "or from where the operator's `secrets.toml` says. None stands in this folder. A variable that is an ordinary "
        "setting can move into `server.env` of DRIVER.md."
    )
    return manifest({"secrets": entries}, body)


def slug_of(name: str) -> str:
    """Return the slug of a variable: ``STRIPE_API_KEY`` → ``stripe-api-key``."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", plain) else f"env-{plain or 'x'}"


def test(source: Source) -> str:
    """Return a test of the folder for any pytest run: it is valid, and what was approved keeps its contracts."""
    return f'''"""The driver {source.id} is valid, and its approved server keeps its contracts. Starts nothing."""

import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent


def test_the_folder_is_valid() -> None:
    """Every manifest is read without a problem."""
    subprocess.run(["mcp-sandbox", "check", str(FOLDER)], check=True)


def test_what_was_approved_keeps_its_contracts() -> None:
    """Each contract is proved against the schemas that driver.lock approved."""
    subprocess.run(["mcp-sandbox", "vet", "--pinned", str(FOLDER)], check=True)
'''


def notes_of(surface: ServerSurface, left_out: Mapping[str, str], findings: Iterable[Finding]) -> list[str]:
    """Return what a reviewer has to know about what the server offers."""
    notes = [f"`{ascii(name)[1:-1]}` has no contract: {why}" for name, why in left_out.items()]
    notes += [f"{finding.id} {finding.place}: {finding.message}" for finding in findings]
    for kind, names in (("prompts", surface.prompts), ("resources", surface.resources)):
        if names:
            notes.append(f"The server also offers {len(names)} {kind}; none is declared, so none is visible.")
    return [" ".join(note.split()) for note in notes]


def _line(text: Any) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in str(text)).split())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
