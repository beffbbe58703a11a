"""Conventions that do not refuse a driver, and the preview blocks ``prompts`` and ``resources`` (AIP-32)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.spec.fields.mcp import PromptBlock, ResourceBlock
from sandbox.spec.model import PromptDecl, RemoteServer, ResourceDecl
from sandbox.spec.permissions import Permissions
from sandbox.spec.report import Source
from sandbox.spec.server import AnyServer

_TEMPLATE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[^{}\s]|\{[+#./;?&]?[A-Za-z0-9_.,%*:]+\})*")
"""RFC 6570 templates with a scheme of their own."""

_OF_THE_IMAGE: Final = ("/tmp", "/usr", "/bin", "/lib", "/etc", "/opt", "/dev", "/proc", "/sys", "/run", "/var")  # noqa: S108
"""Beginnings of paths that exist in an image without any grant."""


def conventions(
    source: Source, values: Mapping[str, Any], asked: Permissions, server: AnyServer | None, folder: Path
) -> None:
    """Warn where the conventions of AIP-32 are not kept (S0-18, S0-19), or an argument names a path nobody grants."""
    driver_id = values.get("id")
    if not isinstance(driver_id, str):
        return
    if not driver_id.endswith("-mcp"):
        source.warn(
            "SPEC-061",
            "id",
            "by convention the id of an MCP driver ends with `-mcp`",
            found=driver_id,
            mend="rename it",
        )
    name = folder.resolve().name
    if name != driver_id:
        source.warn(
            "SPEC-062",
            "id",
            "the folder should be called like the driver",
            found=driver_id,
            allowed=name,
            mend="rename one of them",
        )
    _arguments(source, asked, server)


def _arguments(source: Source, asked: Permissions, server: AnyServer | None) -> None:
    if server is None or isinstance(server, RemoteServer):
        return
    granted = [grant.at for grant in (*asked.sandbox.fs.read, *asked.sandbox.fs.write)]
    for index, argument in enumerate(server.args):
        known = any(argument == at or argument.startswith(f"{at}/") for at in (*granted, *_OF_THE_IMAGE))
        if argument.startswith("/") and not known:
            source.warn(
                "SPEC-063",
                f"server.args[{index}]",
                "this looks like a path, and no grant puts anything there",
                found=argument,
                mend=f"add `{{path: …, at: {argument}}}` to `sandbox.fs.read` or `sandbox.fs.write`",
            )


def prompts(source: Source, blocks: list[PromptBlock]) -> tuple[PromptDecl, ...]:
    """Return the declared prompts; a name stands once."""
    _once(source, "prompts", [block.name for block in blocks])
    return tuple(PromptDecl(**block.model_dump()) for block in blocks)


def resources(source: Source, blocks: list[ResourceBlock]) -> tuple[ResourceDecl, ...]:
    """Return the declared resources; each is a URI template (RFC 6570) with a scheme."""
    _once(source, "resources", [block.uri_template for block in blocks])
    for index, block in enumerate(blocks):
        if not _TEMPLATE.fullmatch(block.uri_template):
            source.error(
                "SPEC-064",
                f"resources[{index}].uri_template",
                "this is not a URI template",
                found=block.uri_template,
                allowed="a scheme, then text and `{names}` (RFC 6570)",
                mend="correct it",
            )
    return tuple(
        ResourceDecl(
            uri_template=block.uri_template,
            description=block.description,
            integrate_as=block.integrate_as,
            ref_kind_id=block.ref_kind_id or "",
        )
        for block in blocks
    )


def _once(source: Source, path: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            source.error("SPEC-065", f"{path}[{index}]", "this stands here twice", found=name, mend="remove one")
