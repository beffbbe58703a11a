"""What the actions on packages share: the store, the trust store, telling findings."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sandbox.cli import options
from sandbox.cli.report import line_of, say
from sandbox.errors import SandboxError, UsageError
from sandbox.mcpkg.archive import SUFFIX, open_archive
from sandbox.mcpkg.documents import Findings
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.store import Store
from sandbox.mcpkg.trust import MODES
from sandbox.spec.versions import compare

STORE: Final = ".mcp"
"""Where packages are installed unless `--store` or MCP_SANDBOX_PACKAGES says otherwise (MCPKG §8.1)."""

TRUST: Final = options.CONFIG / "publishers.toml"
"""The operator's trust store."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """Declare where packages are installed."""
    place = Path(os.environ.get("MCP_SANDBOX_PACKAGES") or STORE)
    parser.add_argument("--store", type=options.path, default=place, metavar="DIR", help="where packages are installed")


def add_signature(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Declare what is demanded of signatures."""
    parser.add_argument(
        "--signatures",
        choices=MODES,
        default=default,
        help="refuse packages without a trusted signature, warn of them, or do not check (default: as --trust says)",
    )
    parser.add_argument("--trust", type=options.path, default=TRUST, metavar="FILE", help="publishers and their keys")


def action(
    actions: Any, name: str, text: str, work: Any, *, json: bool = True, store: bool = False
) -> argparse.ArgumentParser:
    """Declare one action and return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(work=work)
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    if store:
        add_store(parser)
    return parser


def add_calling(parser: argparse.ArgumentParser) -> None:
    """Declare what concerns starting a sandbox and calling it."""
    from sandbox.cli.run import add_serving_options  # only the actions that start something pay for it

    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)
    parser.set_defaults(names="server")


def later(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """Return what carries an action out, imported when it is asked for."""

    def work(arguments: argparse.Namespace) -> int:
        carry: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), name)
        return carry(arguments)

    return work


def store_of(arguments: argparse.Namespace) -> Store:
    """Return the store that is worked on."""
    return Store(arguments.store)


def tell(findings: Findings) -> None:
    """Say the warnings of a package on stderr."""
    say(*(line_of(f"warning: {problem}") for problem in findings.problems if problem.severity == "warning"))


def existing(path: Path) -> Path:
    """Return a path that is there.

    Raises:
        UsageError: ``PKG-009``, it is not.
    """
    if not path.exists():
        raise UsageError("PKG-009", f"{path} does not exist", "name a package or a folder")
    return path


def find_package(arguments: argparse.Namespace) -> Path:
    """Return the package that ``install`` names: a file or folder, or an id among the packages of ``--from``.

    Raises:
        UsageError: ``PKG-009``, there is none.
    """
    if arguments.origin is None:
        return existing(arguments.package)
    found = []
    for path in sorted(Path(arguments.origin).glob(f"*{SUFFIX}")):
        try:
            manifest = read_package(open_archive(path))[0]
        except SandboxError as error:
            say(line_of(f"left out: {path}: {error}"))
            continue
        if manifest.tool_id == str(arguments.package):
            found.append((manifest.version, path))
    if not found:
        message = f"no package in {arguments.origin} is `{arguments.package}`"
        raise UsageError("PKG-009", message, "`mcp-sandbox pkg search --folder DIR` lists them")
    best = found[0]
    for one in found[1:]:
        best = one if compare(one[0], best[0]) > 0 else best
    return best[1]
