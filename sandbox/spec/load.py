"""A driver folder → :class:`~sandbox.spec.model.DriverSpec`; the entry of this stage.

Steps:

1. the folder is opened and DRIVER.md is read (``files``, ``folder``, ``frontmatter``);
2. other spellings are made usual ones, unknown keys are judged (``keys``);
3. the fields of AIP-30 are checked, then those of AIP-32; problems of both are kept (S0-62);
4. SECRETS.md, server.json and RUNNER.md are read where the driver has them;
5. server, permissions, install and version check are made and held against each other;
6. each bound TOOL.md is read and bound;
7. conventions are linted.

Nothing raises before the end, so that an author sees every problem at once. Nothing here runs anything, resolves a
secret, or asks the network (B0-10).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.errors import Problem, SpecError
from sandbox.spec import frontmatter, keys
from sandbox.spec.bindings import Defaults, bindings
from sandbox.spec.contracts import contract
from sandbox.spec.environ import Inventory
from sandbox.spec.fields.mcp import Mcp
from sandbox.spec.fields.universal import KINDS, Universal
from sandbox.spec.files import Unreadable
from sandbox.spec.folder import Folder, Place
from sandbox.spec.install import install, version_check
from sandbox.spec.lint import conventions, prompts, resources
from sandbox.spec.manifests import Manifest, read, read_json, unreadable
from sandbox.spec.model import (
    BinaryServer,
    ConnectionOptions,
    DockerServer,
    DriverSpec,
    NpmServer,
    PromptDecl,
    Secret,
    ToolContract,
)
from sandbox.spec.permissions import Permissions, permissions
from sandbox.spec.report import Report, Source
from sandbox.spec.secrets import merge, secrets
from sandbox.spec.server import AnyServer, own_host, program, protocol_version, server, transport
from sandbox.spec.shape import check, wrong_type

_SKILL_NAME: Final = re.compile(r"[a-z0-9](?:-?[a-z0-9]){0,63}")
"""AIP-3 ``name``."""


def load_driver(path: Path) -> DriverSpec:
    """Return a driver folder as values.

    Args:
        path: DRIVER.md (or MCP.md), or the folder that holds it.

    Raises:
        SpecError: the folder is not valid; ``problems`` lists every error. Warnings alone do not raise; they are in
            ``DriverSpec.warnings``.
    """
    spec, problems = check_folder(path)
    if spec is None:
        raise SpecError(tuple(problem for problem in problems if problem.severity == "error"))
    return spec


def check_folder(path: Path) -> tuple[DriverSpec | None, tuple[Problem, ...]]:
    """Return the driver, or ``None`` when an error refuses it, and every problem found, warnings included.

    Args:
        path: as for :func:`load_driver`.
    """
    report = Report()
    try:
        folder = Folder(path)
    except Unreadable as error:
        unreadable(Source(report, str(path)), "", error)
        return None, report.ordered()
    with folder:
        spec = _Loader(report, folder).load()
    return (None if report.failed else spec), report.ordered()


@dataclass(slots=True)
class _Loader:
    """One load: the folder, the driver's front matter, and the contracts read so far."""

    report: Report
    folder: Folder
    source: Source = field(init=False)
    values: dict[str, Any] = field(init=False)
    tools: dict[tuple[int, str], ToolContract | None] = field(default_factory=dict)

    def load(self) -> DriverSpec | None:
        # 1 the manifest
        top = Source(self.report, self.folder.file)
        manifest = read(self.report, (self.folder.driver, self.folder.name), top, "")
        if manifest is None:
            return None
        self.source = manifest.source
        # 2 keys
        self.values = keys.normalise(self.source, manifest.values)
        if self._other_kind():
            return None
        keys.unknown(self.source, self.values)
        # 3 two passes
        universal = check(Universal, self._part(keys.UNIVERSAL), self.source, "")
        mcp = check(Mcp, self._part(keys.MCP), self.source, "")
        # 4 further files
        inventory = self._inventory()
        server_block = self._server_block()
        # 5 what the server is and may do
        asked = permissions(self.source, self.values, self._runner(), inventory)
        reached = self._server(server_block, mcp, inventory, asked)
        steps = install(self.source, universal.install, server_block) if universal else ()
        version = version_check(self.source, universal.version_check, server_block) if universal else None
        program(self.source, reached, installed=bool(steps))
        # 6 contracts
        bound = bindings(self.source, self._entries(), self._tool, self._defaults(universal, mcp))
        said = _Said(self.source, mcp)
        blocks = tuple(self._prompt(index, one) for index, one in enumerate(said.prompts))
        # 7 lint
        conventions(self.source, self.values, asked, reached, self.folder.driver.root)
        if universal is not None:
            _auth(self.source, universal, inventory)
        if universal is None or mcp is None or reached is None or self.report.failed:
            return None
        return DriverSpec(
            folder=str(self.folder.driver.root.resolve()),
            file=self.folder.file,
            digest=self.folder.budget.digest(),
            id=universal.id,
            name=universal.name,
            description=universal.description,
            version=universal.version,
            server=reached,
            transport=mcp.transport,
            protocol_version=said.protocol_version,
            install=steps,
            version_check=version,
            egress=asked.egress,
            ingress=asked.ingress,
            region=tuple(universal.region),
            policy_tags=tuple(universal.policy_tags),
            sandbox=asked.sandbox,
            limits=asked.limits,
            bindings=bound,
            prompts=blocks,
            resources=said.resources,
            connection=ConnectionOptions(**mcp.connection_options.model_dump()),
            secrets=inventory.secrets,
            auth=_plain(universal.auth),
            cost_override=_plain(universal.cost_override),
            retry_override=_plain(universal.retry_override),
            health_check=_plain(universal.health_check),
            requires=_plain(universal.requires),
            tags=tuple(universal.tags),
            metadata=universal.metadata,
            lines=self.source.lines,
            warnings=self.report.ordered(),
        )

    def _part(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {key: value for key, value in self.values.items() if key in names}

    def _other_kind(self) -> bool:
        kind = self.values.get("kind")
        if kind in KINDS and kind != "mcp":
            self.source.error(
                "SPEC-060",
                "kind",
                "this is a driver of another kind",
                found=kind,
                allowed="mcp",
                mend="run it with a host for its kind; this one runs MCP servers",
            )
            return True
        return False

    # --- files that the driver names ----------------------------------------------------------------------------------
    def _find(self, field_path: str, text: str) -> Place | None:
        try:
            return self.folder.find(text)
        except Unreadable as error:
            unreadable(self.source, field_path, error)
            return None

    def _inventory(self) -> Inventory:
        """Return the merged SECRETS.md: named by ``auth.ref`` or AIP-36 ``env.auth.ref``, or in a usual place."""
        places: list[tuple[str, Place]] = []
        for path in ("auth.ref", "sandbox.env.auth.ref"):
            text = _dig(self.values, path)
            place = self._find(path, text) if isinstance(text, str) and text else None
            if place is not None:
                places.append((path, place))
        places += [("", place) for place in self.folder.inventories()]
        found: dict[tuple[int, str], tuple[Source, tuple[Secret, ...]]] = {}
        for path, place in places:
            key = (id(place[0]), place[1])
            manifest = read(self.report, place, self.source, path) if key not in found else None
            if manifest is not None:
                found[key] = (manifest.source, secrets(manifest.source, manifest.values))
        return Inventory(merge(list(found.values())))

    def _server_block(self) -> dict[str, Any]:
        """Return ``server``; a text is the path of a server.json (S0-17)."""
        written = self.values.get("server")
        if written is None:
            self.source.error(
                "SPEC-041", "server", "the field is missing", mend="say where the MCP server lives (AIP-32 §server)"
            )
            return {}
        if isinstance(written, dict):
            return written
        if not isinstance(written, str):
            wrong_type(self.source, "server", written, "a mapping, or the path of a server.json")
            return {}
        place = self._find("server", written)
        manifest = read_json(self.report, place, self.source, "server") if place else None
        if manifest is None:
            return {}
        if "kind" not in manifest.values:
            self.source.error(
                "SPEC-035",
                "server",
                f"{manifest.source.file} is not a `server` block of AIP-32",
                allowed="an object with `kind` and what belongs to it; not an entry of the MCP registry",
                mend="write the block into DRIVER.md",
            )
            return {}
        return manifest.values

    def _runner(self) -> Any:
        """Return ``runner``; a text is the path of a RUNNER.md (AIP-17), whose front matter is the block."""
        written = self.values.get("runner")
        if not isinstance(written, str):
            if "runner" in self.values and written is None:
                wrong_type(self.source, "runner", written, "a mapping")
            return written
        place = self._find("runner", written)
        manifest: Manifest | None = read(self.report, place, self.source, "runner") if place else None
        if manifest is None:
            return None
        return manifest.values.get("runner", manifest.values)

    def _tool(self, path: str, text: str) -> ToolContract | None:
        """Return the contract that ``implements[].tool`` names, read once."""
        try:
            place = self.folder.find_tool(text)
        except Unreadable as error:
            unreadable(self.source, path, error)
            return None
        key = (id(place[0]), place[1])
        if key not in self.tools:
            manifest = read(self.report, place, self.source, path)
            made = contract(manifest.source, manifest.values, manifest.data) if manifest else None
            self.tools[key] = made
        return self.tools[key]

    def _prompt(self, index: int, prompt: PromptDecl) -> PromptDecl:
        """Return a prompt with the name of the skill that it becomes a block of (S0-46); vetting refuses one without.

        AIP-32 leaves ``skill_ref`` optional, so what is wrong with it warns here.
        """
        if prompt.integrate_as != "skill_block" or not prompt.skill_ref:
            return prompt
        field = f"prompts[{index}].skill_ref"
        try:
            tree, relative = self.folder.find(prompt.skill_ref)
            values = frontmatter.parse(tree.read(relative)).values
        except Unreadable as error:
            self.source.warn("SPEC-067", field, f"the skill cannot be read: {error.message}", mend=error.mend)
            return prompt
        except frontmatter.FrontMatterError as error:
            why = error.faults[0].message
            self.source.warn("SPEC-067", field, f"the skill cannot be read: {why}", mend="write an AIP-3 SKILL.md")
            return prompt
        name = values.get("name")
        if not isinstance(name, str) or not _SKILL_NAME.fullmatch(name):
            self.source.warn("SPEC-067", field, "the skill has no name of AIP-3", mend="write `name: my-skill` into it")
            return prompt
        return prompt.model_copy(update={"skill": name})

    # --- together -----------------------------------------------------------------------------------------------------
    def _server(
        self, block: Mapping[str, Any], mcp: Mcp | None, inventory: Inventory, asked: Permissions
    ) -> AnyServer | None:
        if not block:
            return None
        made = server(self.source, dict(block), inventory)
        if mcp is not None:
            made = transport(self.source, str(block.get("kind")), made, mcp.transport)
        own_host(self.source, made, asked.egress)
        if not asked.injected or not isinstance(made, BinaryServer | NpmServer | DockerServer):
            return made
        for name, value in asked.injected.items():
            if made.env.get(name, value) != value:
                self.source.error(
                    "SPEC-124",
                    f"server.env.{name}",
                    f"`sandbox.env.auth.state.env` gives `{name}` another value",
                    mend="keep one of them",
                )
        return made.model_copy(update={"env": {**made.env, **asked.injected}})

    def _entries(self) -> list[Any]:
        entries = self.values.get("implements")
        return entries if isinstance(entries, list) else []

    def _defaults(self, universal: Universal | None, mcp: Mcp | None) -> Defaults:
        return Defaults(
            tools=mcp.mcp_tools if mcp else {}, timeout_ms=universal.timeout_override_ms if universal else None
        )


class _Said:
    """What AIP-32 fields say on their own."""

    def __init__(self, source: Source, mcp: Mcp | None) -> None:
        self.protocol_version = protocol_version(source, mcp.protocol_version) if mcp else ""
        self.prompts = prompts(source, mcp.prompts) if mcp else ()
        self.resources = resources(source, mcp.resources) if mcp else ()


def _auth(source: Source, universal: Universal, inventory: Inventory) -> None:
    """Warn about what ``auth`` asks for and nobody does by itself."""
    for index, name in enumerate(universal.auth.state.env):
        if inventory.slug(name) is None:
            source.warn(
                "SPEC-195",
                f"auth.state.env[{index}]",
                f"no slug of SECRETS.md is called `{name}`",
                mend="add the slug, or remove the name",
            )
    if universal.auth.state.paths:
        source.warn(
            "SPEC-196",
            "auth.state.paths",
            "these paths are not mounted by being listed here",
            mend="grant them under `sandbox.fs`",
        )
    for key in ("login", "refresh"):
        if getattr(universal.auth, key) is not None:
            source.warn(
                "SPEC-197",
                f"auth.{key}",
                f"`{key}` is kept and not carried out: nothing logs in by itself",
                mend="put the credential into SECRETS.md",
            )


def _dig(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _plain(block: Any) -> dict[str, Any]:
    return block.model_dump(exclude_unset=True) if block is not None else {}
