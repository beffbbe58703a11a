"""``manifest.json`` → :class:`~sandbox.mcpkg.model.Manifest` (MCPKG §4, v0.2 §10 and §11).

Steps: 1 strict JSON; 2 the published schema; 3 input and output schema are JSON Schema whose references stay inside;
4 endpoints; 5 credentials; 6 chain; 7 files that it lists; 8 lint. Every problem is found before anything is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.mcpkg.bounds import MAX_MANIFEST_BYTES, MAX_TEXT_BYTES
from sandbox.mcpkg.cases import read_cases
from sandbox.mcpkg.contents import Contents
from sandbox.mcpkg.documents import Findings, check, parse
from sandbox.mcpkg.endpoints import endpoint_of
from sandbox.mcpkg.model import Auth, Case, Implementation, Manifest, Step
from sandbox.mcpkg.schemas import schema_of
from sandbox.spec.extract import segments

FILE: Final = "manifest.json"
PUBLISHER: Final = "meta/publisher.json"
PROVENANCE: Final = "meta/provenance.json"
_KNOWN: Final = frozenset(
    {
        "toolId",
        "name",
        "version",
        "description",
        "capabilities",
        "endpoint",
        "implementations",
        "chain",
        "input_schema",
        "output_schema",
        "auth",
        "tests",
        "examples",
        "meta",
    }
)
_CONVENTION_PARTS: Final = 3
_SIGNED_HEADERS: Final = {"bearer": "Authorization", "oauth2": "Authorization", "api_key": "X-API-Key"}


def read_package(contents: Contents) -> tuple[Manifest, tuple[Case, ...], Findings]:
    """Return a package's manifest and tests with the warnings found on the way.

    Raises:
        SpecError: everything that is wrong, at once: ``PKG-008`` … ``PKG-019``.
    """
    findings = Findings()
    manifest = _manifest(contents, findings)
    cases = read_cases(contents, manifest, findings) if manifest is not None else ()
    findings.raise_errors()
    assert manifest is not None  # noqa: S101 - an absent manifest is an error above
    return manifest, cases, findings


def _manifest(contents: Contents, findings: Findings) -> Manifest | None:
    if FILE not in contents.names():
        findings.error("PKG-008", contents.shown, "", f"there is no {FILE} at its top", "package the folder with it")
        return None
    raw = parse(contents.read(FILE), FILE, MAX_MANIFEST_BYTES, findings)  # 1
    if raw is None or not check(raw, "manifest", FILE, findings):  # 2
        return None
    meta = _meta(raw.get("meta", {}), contents, findings)
    schemas = [schema_of(raw[key], key, FILE, findings) for key in ("input_schema", "output_schema")]  # 3
    manifest = Manifest(
        tool_id=raw["toolId"],
        name=raw["name"],
        version=raw["version"],
        description=raw["description"],
        capabilities=tuple(raw["capabilities"]),
        input_schema=schemas[0],
        output_schema=schemas[1],
        implementations=_implementations(raw, contents, findings),  # 4
        chain=_chain(raw, findings),  # 6
        auth=_auth(raw.get("auth", {}), findings),  # 5
        tests=tuple(raw.get("tests", ())),
        examples=tuple(raw.get("examples", ())),
        meta=meta,
        raw=raw,
    )
    _listed(manifest, contents, findings)  # 7
    _lint(manifest, contents, findings)  # 8
    return manifest


def _implementations(raw: Mapping[str, Any], contents: Contents, findings: Findings) -> tuple[Implementation, ...]:
    found: list[Implementation] = []
    seen: set[str] = set()
    for index, entry in enumerate(raw.get("implementations", ())):
        place = f"implementations[{index}]"
        endpoint = endpoint_of(entry["endpoint"], f"{place}.endpoint", FILE, contents, findings)
        if entry["id"] in seen:
            findings.error("PKG-013", FILE, f"{place}.id", f"`{entry['id']}` stands twice", "give each one its own id")
        seen.add(entry["id"])
        if endpoint is not None:
            found.append(
                Implementation(
                    id=entry["id"],
                    endpoint=endpoint,
                    language=entry.get("language", ""),
                    runtime=entry.get("runtime", ""),
                    platforms=tuple(entry.get("platforms", ())),
                    requirements=entry.get("requirements", {}),
                )
            )
    if "endpoint" in raw:
        endpoint = endpoint_of(raw["endpoint"], "endpoint", FILE, contents, findings)
        if endpoint is not None:
            found.append(Implementation(id="endpoint", endpoint=endpoint))
    return tuple(found)


def _auth(raw: Mapping[str, Any], findings: Findings) -> Auth:
    kind = raw.get("type", "none")
    hints = raw.get("configHints", {})
    env = tuple(hints.get("env", ()))
    if kind != "none" and not env:
        mend = 'name one: "configHints": {"env": ["EXAMPLE_API_KEY"]}'
        findings.error("PKG-014", FILE, "auth.configHints.env", "no variable holds the credential", mend)
    return Auth(
        type=kind, scopes=tuple(raw.get("scopes", ())), env=env, header=_SIGNED_HEADERS.get(kind, ""), hints=hints
    )


def _chain(raw: Mapping[str, Any], findings: Findings) -> tuple[Step, ...]:
    known = {"input"}
    steps: list[Step] = []
    for index, entry in enumerate(raw.get("chain", ())):
        place = f"chain[{index}]"
        mapping = entry.get("inputMapping", {})
        for name, path in mapping.items():
            _mapped(path, known, f"{place}.inputMapping.{name}", findings)
        if entry["outputKey"] in known:
            message = f"`{entry['outputKey']}` is taken by the input or an earlier step"
            findings.error("PKG-015", FILE, f"{place}.outputKey", message, "give each step its own key")
        if entry["tool"] == raw["toolId"]:
            findings.error("PKG-015", FILE, f"{place}.tool", "the chain calls itself", "name another tool")
        known.add(entry["outputKey"])
        steps.append(Step(step=entry["step"], tool=entry["tool"], output_key=entry["outputKey"], mapping=mapping))
    return tuple(steps)


def _mapped(path: str, known: set[str], place: str, findings: Findings) -> None:
    """Check one JSONPath of a chain: of the fragment, and of something that exists by then (§11.4)."""
    try:
        parts = segments(path)
    except ValueError as error:
        findings.error("PKG-015", FILE, place, f"{path!r}: {error}", "write `$.input.name` or `$.<outputKey>.name`")
        return
    if not parts or parts[0] not in known:
        mend = f"begin with one of {', '.join(f'`$.{name}`' for name in sorted(known))}"
        findings.error("PKG-015", FILE, place, f"{path!r} names nothing that exists before this step", mend)


def _listed(manifest: Manifest, contents: Contents, findings: Findings) -> None:
    present = set(contents.names())
    for key, names in (("tests", manifest.tests), ("examples", manifest.examples)):
        for index, name in enumerate(names):
            if name not in present:
                message = f"{name!r} is not in the package"
                findings.error("PKG-016", FILE, f"{key}[{index}]", message, "package it, or take it off the list")


def _meta(raw: Mapping[str, Any], contents: Contents, findings: Findings) -> Mapping[str, Any]:
    """Return `meta` with the publisher of ``meta/publisher.json`` (§7.1); both files there are strict JSON objects."""
    said: dict[str, Any] = dict(raw.get("publisher", {}))
    for name in (PUBLISHER, PROVENANCE):
        if name not in contents.names():
            continue
        value = parse(contents.read(name), name, MAX_TEXT_BYTES, findings)
        if value is None:
            continue
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            findings.error("PKG-019", name, "", "it is not an object of texts", "write members whose values are texts")
        elif name == PUBLISHER:
            if said.get("id", value.get("id")) != value.get("id"):
                message = f"the publisher here is not `{said['id']}`, as in the manifest"
                findings.error("PKG-019", name, "id", message, "write the same id in both")
            said = {**value, **said}
    return {**raw, "publisher": said} if said else raw


def _lint(manifest: Manifest, contents: Contents, findings: Findings) -> None:
    for key in sorted(manifest.raw.keys() - _KNOWN):
        findings.warn("PKG-018", FILE, key, "this member is not known and has no effect", "remove it")
    if manifest.tool_id.count(".") + 1 < _CONVENTION_PARTS:
        message = "the convention is publisher.domain.capability.name"
        findings.warn("PKG-018", FILE, "toolId", message, "use three parts or more before it is published")
    if not manifest.tests:
        findings.warn("PKG-018", FILE, "tests", "there are no tests", "add one: hosts may ask for them")
    if not any(name.startswith("meta/") for name in contents.names()):
        findings.warn("PKG-018", contents.shown, "meta", "publisher and origin are not said", "add meta/publisher.json")
